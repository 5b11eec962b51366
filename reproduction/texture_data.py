"""Pictures of textures for experiments: a folder of Brodatz plates, tiles of photographs, or generated noise."""

import importlib.util
import io
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from manifoldrf._files import as_path
from manifoldrf._random import generator
from manifoldrf._runtime import filtered, require
from manifoldrf._validation import FloatArray, check_integer, reject
from manifoldrf.applications.textures import check_image

__all__ = ["Plates", "builtin_plates", "generated_plates", "photo_plates", "read_plates"]

# Where plates are searched, in this order: the folder itself, and the usual subfolders of collections.
_MOST_PIXELS = 16_000_000  # of a picture; those of the album have 0.4 million
_PLACES = (".", "brodatz", "textures/brodatz")
_NAME = re.compile(r"d0*(\d+)\.(png|gif)", re.IGNORECASE)
# The digitisation that most papers use has no D14: 111 classes. It is ignored if a folder contains it.
_LEFT_OUT = 14

# Photographs of 512 x 512 pixels in the wheel of scikit-image, each with a single kind of texture.
_PHOTOS = ("brick", "grass", "gravel")
_SIDE = 192  # of a tile; its rotated centre is still large enough for windows of 32 pixels
_ZOOMS = (1.0, 1.4, 2.0, 2.8)  # half an octave apart: neighbours look alike, but not the same
_CONTRASTS = (1.0, 0.75, 0.55)  # each a quarter smaller, about the spread between parts of one photograph
# Position of the tile of each contrast, as shares of the free space: tiles at zoom 1 have no pixel in common.
_CUTS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0))

_WAVES = (0.06, 0.085, 0.12, 0.17)  # cycles per pixel of made textures, half an octave apart
_GRAINS = (0.0, 0.6)  # additional variation in one direction
_SPREAD = 0.35  # width of the band of waves, relative to its middle


@dataclass(frozen=True, eq=False, repr=False)
class Plates:
    """Pictures of textures, each of them a class.

    Parameters
    ----------
    names : tuple of str
    images : tuple of array of shape (h, w)
        Unsigned integers, or intensities in [0, 1].
    source : str
        One sentence: what the pictures are.

    Examples
    --------
    >>> from reproduction.texture_data import generated_plates
    >>> generated_plates(side=64)
    Plates(24 textures, 64 x 64 pixels)
    """

    names: tuple[str, ...]
    images: tuple[NDArray[Any], ...]
    source: str

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.images):
            text = f"{len(self.names)} names and {len(self.images)} images"
            reject("plates", "at least one image, and one name for each", text)
        if len(set(self.names)) < len(self.names):
            reject("names", "all different", ", ".join(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        low, high = (choose(min(image.shape) for image in self.images) for choose in (min, max))
        sides = f"{low} x {low}" if low == high else f"sides of {low} to {high}"
        return f"Plates({len(self)} textures, {sides} pixels)"


# ---------------------------------------------------------------------------------------------------------- files
def read_plates(folder: Path) -> Plates:
    """Read the plates D1, D2, ... of the Brodatz album from a folder, in order of number.

    Parameters
    ----------
    folder : path
        With files D1.png or D1.gif and so on, in it or in ``brodatz`` or ``textures/brodatz`` inside it. D14 is
        left out: the usual digitisation lacks it, and the paper has 111 classes.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or has no plate.
    ValueError
        If a file is damaged or not grey; the error names it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from PIL import Image
    >>> with TemporaryDirectory() as name:
    ...     for number in (2, 10, 14):
    ...         Image.fromarray(np.zeros((64, 64), dtype=np.uint8)).save(f"{name}/D{number}.png")
    ...     read_plates(Path(name)).names
    ('D2', 'D10')
    """
    files = plate_files(folder)
    names = tuple(f"D{number}" for number in files)
    images = tuple(_read_image(path) for path in files.values())
    return Plates(names, images, f"{len(names)} plates of the Brodatz album")


def plate_files(folder: Path) -> dict[int, Path]:
    """Files of the plates by number, ascending; png is preferred to gif."""
    root = as_path(folder, "data")
    if not root.is_dir():
        reject("data", "an existing folder", root, FileNotFoundError)
    for place in _PLACES:
        found: dict[int, Path] = {}
        for path in sorted((root / place).glob("*"), key=lambda path: (path.suffix.lower() != ".png", path.name)):
            match = _NAME.fullmatch(path.name)
            if match and int(match[1]) != _LEFT_OUT:
                found.setdefault(int(match[1]), path)
        if found:
            return dict(sorted(found.items()))
    reject("data", "a folder with plates D1.png (or .gif), D2.png, ...", f"none in {root}", FileNotFoundError)


def _read_image(path: Path) -> NDArray[Any]:
    """Grey levels of a file, with 8 or 16 bits."""
    image_module = require("PIL.Image", "viz")
    rule = "a folder of grey png or gif images"
    bombs = (image_module.DecompressionBombError, image_module.DecompressionBombWarning)
    try:
        with filtered("error", "", bombs[1]):
            levels = _pixels(image_module, path)
    # Pillow raises SyntaxError for broken chunks of png files, ValueError and EOFError for broken gif ones.
    except (OSError, ValueError, SyntaxError, EOFError, *bombs) as error:
        reject("data", rule, f"{path.name}, which cannot be read ({error})")
    if levels.ndim == 2:
        return levels
    if (levels != levels[..., :1]).any():
        reject("data", rule, f"{path.name}, which is in colour")
    return np.ascontiguousarray(levels[..., 0])


def _pixels(image_module: Any, path: Path) -> NDArray[Any]:
    """Grey levels of 16 bits, or the colours of a picture in a third axis."""
    # These two formats only: others start programs (eps) or may unpack to more than memory can hold. From bytes in
    # memory: for a file, Pillow would request as many bytes as a chunk declares.
    with image_module.open(io.BytesIO(path.read_bytes()), formats=("PNG", "GIF")) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, more than {_MOST_PIXELS}")
        if image.mode.startswith("I;16"):
            return np.asarray(image).astype(np.uint16)
        return np.asarray(image.convert("RGB"))  # palettes become colours


# ------------------------------------------------------------------------------------------------------- built in
def builtin_plates() -> Plates:
    """Textures that need no download: :func:`photo_plates`, or :func:`generated_plates` without scikit-image.

    Examples
    --------
    >>> from reproduction.texture_data import builtin_plates
    >>> len(builtin_plates()) in (24, 36)
    True
    """
    return photo_plates() if _photo_folder() else generated_plates()


def photo_plates(*, side: int = _SIDE) -> Plates:
    """Tiles of three photographs inside the package scikit-image, at four scales and three contrasts: 36 classes.

    Parameters
    ----------
    side : int, default=192
        Side of a tile in pixels, at most 256.

    Raises
    ------
    ModuleNotFoundError
        If scikit-image is not installed.

    Examples
    --------
    >>> from reproduction.texture_data import photo_plates
    >>> photo_plates(side=64)
    Plates(36 textures, 64 x 64 pixels)
    """
    side = check_integer(side, "side", 8, 256)  # two tiles must fit side by side in a photograph
    folder = _photo_folder()
    if folder is None:
        require("skimage", "test")  # raises an error that names the extra
        raise FileNotFoundError(f"This version of scikit-image comes without {', '.join(_PHOTOS)}.")
    names: list[str] = []
    images: list[FloatArray] = []
    for photo in _PHOTOS:
        pixels = check_image(_read_image(folder / f"{photo}.png"))
        for zoom, (contrast, cut) in itertools.product(_ZOOMS, zip(_CONTRASTS, _CUTS, strict=True)):
            tile = _tile(pixels, zoom, cut, side)
            names.append(f"{photo} x{zoom:g} contrast {contrast:g}")
            images.append(tile.mean() + contrast * (tile - tile.mean()))
    source = f"{len(names)} tiles of the photographs {', '.join(_PHOTOS)} in scikit-image, scaled and dimmed"
    return Plates(tuple(names), tuple(images), source)


def _photo_folder() -> Path | None:
    """Folder of the photographs in scikit-image, without importing it; None if they do not exist."""
    spec = importlib.util.find_spec("skimage")
    places = spec.submodule_search_locations if spec is not None else None
    folder = Path(places[0]) / "data" if places else None
    return folder if folder and all((folder / f"{photo}.png").is_file() for photo in _PHOTOS) else None


def _tile(pixels: FloatArray, zoom: float, cut: tuple[float, float], side: int) -> FloatArray:
    """A tile of side x side pixels that shows side / zoom pixels of the photograph."""
    start = [part * (length - side) for part, length in zip(cut, pixels.shape, strict=True)]
    if zoom == 1:
        row, column = (round(value) for value in start)
        return pixels[row : row + side, column : column + side]
    matrix = np.full(2, 1 / zoom)
    return np.asarray(
        ndimage.affine_transform(pixels, matrix, offset=start, output_shape=(side, side), order=1, mode="nearest")
    )


def generated_plates(*, side: int = _SIDE, seed: int = 0) -> Plates:
    """Filtered noise in bands of four scales, isotropic and stretched, at three contrasts: 24 classes.

    Parameters
    ----------
    side : int, default=192
        Of a picture in pixels.
    seed : int, default=0

    Examples
    --------
    >>> from reproduction.texture_data import generated_plates
    >>> generated_plates(side=64).names[:2]
    ('waves 0.06 grain 0 contrast 1', 'waves 0.06 grain 0 contrast 0.75')
    """
    side = check_integer(side, "side", 8)
    kinds = list(itertools.product(_WAVES, _GRAINS, _CONTRASTS))
    names = tuple(f"waves {wave:g} grain {grain:g} contrast {contrast:g}" for wave, grain, contrast in kinds)
    images = tuple(
        np.clip(0.5 + 0.15 * kind[2] * _noise(kind[0], kind[1], side, generator(seed, f"texture {name}")), 0, 1)
        for name, kind in zip(names, kinds, strict=True)
    )
    return Plates(names, images, f"{len(names)} textures of filtered noise, made with seed {seed}")


def _noise(wave: float, grain: float, side: int, rng: np.random.Generator) -> FloatArray:
    """White noise through a band of waves, stronger along one direction; variance 1."""
    down, right = (np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None, :])
    size = np.hypot(down, right)
    band = np.exp(-0.5 * ((size - wave) / (_SPREAD * wave)) ** 2)
    band *= 1 + grain * np.cos(2 * np.arctan2(down, right))
    waves = np.fft.ifft2(np.fft.fft2(rng.standard_normal((side, side))) * band).real
    return np.asarray((waves - waves.mean()) / waves.std())
