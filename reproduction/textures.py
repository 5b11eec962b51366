"""Textures: pictures (Brodatz plates, tiles of photographs, noise), windows of them turned, and descriptors.

The descriptor of a window is the 5 x 5 covariance of intensity and derivatives of its pixels, written as a vector
whose Euclidean distance is the log-Euclidean distance of covariances.
"""

import importlib.util
import itertools
import math
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from reproduction.common import FloatArray, IntArray, Progress, generator, reject, silent

N_CHANNELS = 5

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


# ------------------------------------------------------------------------------------------------------ descriptors
def channels_of(image: FloatArray, sigma: float, *, signed: bool = False) -> FloatArray:
    """I, |I_x|, |I_y|, |I_xx|, |I_yy| after Gaussian smoothing, (5, h, w); x to the right, y down."""
    smooth = ndimage.gaussian_filter(image, sigma, mode="nearest") if sigma > 0 else image
    channels = np.zeros((N_CHANNELS, *image.shape))
    channels[0] = smooth
    first, second = (-0.5, 0.0, 0.5), (1.0, -2.0, 1.0)  # central differences, exact for parabolas
    for k, (axis, weights) in enumerate([(1, first), (0, first), (1, second), (0, second)], start=1):
        ndimage.correlate1d(smooth, weights, axis=axis, output=channels[k], mode="nearest")
    if not signed:
        np.abs(channels[1:], out=channels[1:])
    return channels


def margin_of(sigma: float) -> int:
    """Number of pixels beyond a window that affect its channels: reach of the smoothing plus one difference."""
    return int(4 * sigma + 0.5) + 1  # scipy cuts the Gaussian at 4 standard deviations


def window_covariances(channels: FloatArray, corners: IntArray, window: int) -> FloatArray:
    """Covariances (n, c, c) of channels (c, h, w) in the windows with these corners (n, 2), divided by n - 1.

    The mean of each window is subtracted before products are summed, as in ``numpy.cov``. Running sums of squares
    are faster for windows that overlap a lot, but lose the digits of faint textures.
    """
    n_channels, size = len(channels), window * window
    views = np.lib.stride_tricks.sliding_window_view(channels, (window, window), axis=(1, 2))
    covariances = np.zeros((len(corners), n_channels, n_channels))
    step = max(1, 2**21 // (8 * n_channels * size))  # 2 MB at once: 51 windows of 32 x 32 pixels
    for first in range(0, len(corners), step):
        rows, columns = corners[first : first + step].T
        pixels = views[:, rows, columns].reshape(n_channels, -1, size).swapaxes(0, 1)  # (step, c, window^2)
        pixels -= pixels.mean(axis=2, keepdims=True)
        covariances[first : first + step] = pixels @ pixels.swapaxes(1, 2)
    return covariances / (size - 1)


def spd_to_vectors(matrices: FloatArray, *, ridge: float = 0.0) -> FloatArray:
    """Logarithms of symmetric positive definite matrices, as vectors: ``||u - v|| = ||log A - log B||_F``.

    Parameters
    ----------
    matrices : array-like of shape (n, d, d)
    ridge : float, default=0.0
        Added to every diagonal entry: keeps the logarithm of singular covariances finite.

    Returns
    -------
    vectors : ndarray of shape (n, d (d + 1) / 2)
        The entries (0, 0), (0, 1), ..., (1, 1), ... of the logarithm, those off the diagonal times sqrt(2).

    Examples
    --------
    >>> spd_to_vectors(np.array([np.diag([1.0, np.e])])).round(6).tolist()
    [[0.0, 0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(np.asarray(matrices, dtype=np.float64))
    values += ridge  # the eigenvectors do not change
    # Eigenvalues ascend. One as small as the rounding of the largest has a logarithm that is noise.
    bad = np.flatnonzero(~(values[:, 0] > values.shape[1] * np.finfo(np.float64).eps * values[:, -1]))
    if len(bad):
        raise ValueError(
            "`matrices` must be positive definite; `ridge` helps if they are singular. "
            f"Got a smallest eigenvalue of {values[bad[0], 0]:.3g} in matrix {bad[0]}."
        )
    return upper_entries((vectors * np.log(values)[:, None, :]) @ vectors.swapaxes(1, 2))


def upper_entries(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices (n, d, d) as vectors (n, d (d + 1) / 2) whose distance is the Frobenius norm."""
    rows, columns = np.triu_indices(matrices.shape[1])
    return np.asarray(matrices[:, rows, columns] * np.where(rows != columns, np.sqrt(2.0), 1.0))


def check_image(image: ArrayLike) -> FloatArray:
    """Return intensities as finite floats in [0, 1]."""
    array: NDArray[Any] = np.asarray(image)
    if array.ndim != 2:
        reject("image", "an array of grey levels of shape (h, w)", f"shape {array.shape}")
    if array.dtype.kind == "u":
        return array / float(np.iinfo(array.dtype).max)
    if not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):  # interpolation may leave [0, 1] by rounding
        reject("image", "unsigned integers, or intensities in [0, 1]", f"{array.min():g} to {array.max():g}")
    return array.astype(np.float64)


# --------------------------------------------------------------------------------------------------------- pictures
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
    >>> from reproduction.textures import generated_plates
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
    root = Path(folder)
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
    """Grey levels of a png or gif file; other formats may start programs or unpack to more than memory can hold."""
    from PIL import Image

    with Image.open(path, formats=("PNG", "GIF")) as image:
        if image.width * image.height > _MOST_PIXELS:
            reject("data", f"a folder of pictures of at most {_MOST_PIXELS} pixels", path.name)
        levels = np.asarray(image if image.mode.startswith("I;16") else image.convert("RGB"))
    if levels.ndim == 3 and (levels != levels[..., :1]).any():
        reject("data", "a folder of grey png or gif images", f"{path.name}, which is in colour")
    return np.ascontiguousarray(levels if levels.ndim == 2 else levels[..., 0])


# ------------------------------------------------------------------------------------------------------- built in
def builtin_plates() -> Plates:
    """Textures that need no download: :func:`photo_plates`, or :func:`generated_plates` without scikit-image.

    Examples
    --------
    >>> from reproduction.textures import builtin_plates
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
    >>> from reproduction.textures import photo_plates
    >>> photo_plates(side=64)
    Plates(36 textures, 64 x 64 pixels)
    """
    folder = _photo_folder()
    if folder is None:
        raise ModuleNotFoundError("The photographs are inside scikit-image: pip install 'manifoldrf[test]'.")
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
    >>> from reproduction.textures import generated_plates
    >>> generated_plates(side=64).names[:2]
    ('waves 0.06 grain 0 contrast 1', 'waves 0.06 grain 0 contrast 0.75')
    """
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


# ---------------------------------------------------------------------------------------------------------- windows
ROLES = ("labelled", "unlabelled", "test")


@dataclass(frozen=True)
class Protocol:
    """Which windows are drawn from every texture. The defaults are the paper's.

    Parameters
    ----------
    labelled_angles, unlabelled_angles, test_angles : tuple of float
        Degrees, counterclockwise.
    labelled_windows, unlabelled_windows, test_windows : int
        Windows of each texture at each of these angles. All test windows of a texture and an angle are one group.
    window : int
    sigma, ridge : float
        Of the smoothing, and what is added to the diagonal of covariances.
    signed : bool
        Whether derivatives keep their signs.

    Examples
    --------
    >>> from reproduction.textures import Protocol
    >>> [Protocol().per_class(role) for role in ("labelled", "unlabelled", "test")]
    [6, 600, 200]
    """

    labelled_angles: tuple[float, ...] = (0, 90)
    unlabelled_angles: tuple[float, ...] = (0, 15, 45, 75, 90, 105, 135, 165)
    test_angles: tuple[float, ...] = (30, 60, 120, 150)
    labelled_windows: int = 3  # 6 labels of a class
    unlabelled_windows: int = 75  # 600 of a class, 66,600 of 111
    test_windows: int = 50  # one vote
    # The paper gives neither windows nor smoothing nor signs. Of 30 descriptors, these recognise most tiles of the
    # photographs in scikit-image. Smoothing hides the blur of rotations.
    window: int = 64
    sigma: float = 1.0
    signed: bool = False
    ridge: float = 1e-6  # below the resolution of 8 bits; from 1e-5 to 1e-11 raw accuracies are within 0.3 points

    def angles(self, role: str) -> tuple[float, ...]:
        """Angles of labelled, unlabelled or test windows."""
        return tuple(getattr(self, f"{role}_angles"))

    def windows(self, role: str) -> int:
        """How many windows of each texture at each angle."""
        return int(getattr(self, f"{role}_windows"))

    def per_class(self, role: str) -> int:
        """How many windows of each texture."""
        return len(self.angles(role)) * self.windows(role)


@dataclass(frozen=True, eq=False, repr=False)
class Views:
    """Descriptors of one draw of windows; rows by class, then angle.

    Attributes
    ----------
    seed : int
    labelled, unlabelled, test : ndarray of shape (n, 15)
    labelled_y, unlabelled_y, test_y : ndarray of int64 of shape (n,)
        Indices of the plates. Those of unlabelled windows are for diagnosis only; methods do not use them.
    labelled_angle, unlabelled_angle, test_angle : ndarray of shape (n,)
    test_group : ndarray of int64 of shape (n,)
        Windows with the same number have the same texture and angle and vote together.

    Examples
    --------
    >>> from reproduction.textures import generated_plates
    >>> from reproduction.textures import Protocol, draw_views
    >>> protocol = Protocol(unlabelled_windows=1, test_windows=2, window=16)
    >>> views = draw_views(generated_plates(side=64), protocol, [0])[0]
    >>> views.test_group[:6].tolist(), views.test_angle[:6].tolist()
    ([0, 0, 1, 1, 2, 2], [30.0, 30.0, 60.0, 60.0, 120.0, 120.0])
    """

    seed: int
    labelled: FloatArray
    labelled_y: IntArray
    labelled_angle: FloatArray
    unlabelled: FloatArray
    unlabelled_y: IntArray
    unlabelled_angle: FloatArray
    test: FloatArray
    test_y: IntArray
    test_angle: FloatArray
    test_group: IntArray

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(getattr(self, role))} {role}" for role in ROLES)
        return f"Views({sizes}, seed {self.seed})"


def draw_views(
    plates: Plates, protocol: Protocol, seeds: Sequence[int], *, progress: Progress = silent
) -> list[Views]:
    """Rotate every texture, draw windows at random places and describe them, once for each seed.

    A texture is rotated once for all seeds, and only the central square is kept, which is inside the picture at
    every angle. Windows keep a distance from its border, so that smoothing and differences use pixels inside.
    Windows may overlap.

    Parameters
    ----------
    plates : Plates
    protocol : Protocol
    seeds : sequence of int
        The windows of a seed depend neither on the other seeds nor on the other plates.
    progress : callable
        Called with a text, the number of plates done and their total.

    Returns
    -------
    views : list of Views
        In the order of the seeds. 11 MB each at the size of the paper.

    Examples
    --------
    >>> from reproduction.textures import generated_plates
    >>> from reproduction.textures import Protocol, draw_views
    >>> protocol = Protocol(unlabelled_windows=4, test_windows=5, window=16)
    >>> draw_views(generated_plates(side=64), protocol, [0])
    [Views(144 labelled, 768 unlabelled, 480 test, seed 0)]
    """
    for name, image in zip(plates.names, plates.images, strict=True):
        _check_size(name, image.shape, protocol)
    described = {role: np.zeros((len(seeds), len(plates), protocol.per_class(role), 15)) for role in ROLES}

    def work(place: int) -> dict[str, FloatArray]:
        return _describe(plates.names[place], check_image(plates.images[place]), protocol, seeds)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for place, found in enumerate(pool.map(work, range(len(plates)))):
            progress(f"windows of {plates.names[place]}", place + 1, len(plates))
            for role in ROLES:
                described[role][:, place] = found[role]
    return [
        _views(int(seed), {role: described[role][k] for role in ROLES}, protocol) for k, seed in enumerate(seeds)
    ]


class Draws:
    """Windows of some seeds, drawn together when the first of them is asked for: a picture is turned once for all.

    Parameters
    ----------
    plates : Plates
    protocol : Protocol
    seeds : sequence of int
        Those before the first one asked for are not drawn.
    progress : callable
    """

    def __init__(self, plates: Plates, protocol: Protocol, seeds: Sequence[int], progress: Progress) -> None:
        self.plates, self.protocol, self.seeds, self.progress = plates, protocol, list(seeds), progress
        self._drawn: dict[int, Views] = {}

    def __getitem__(self, seed: int) -> Views:
        if seed not in self._drawn:
            seeds = self.seeds[self.seeds.index(seed) :]
            found = draw_views(self.plates, self.protocol, seeds, progress=self.progress)
            self._drawn = {views.seed: views for views in found}
        return self._drawn[seed]


def rotated_centre(image: FloatArray, angle: float) -> FloatArray:
    """The largest central square that is inside an image at every angle, rotated counterclockwise.

    Right angles permute the pixels; other angles interpolate between four pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.textures import rotated_centre
    >>> rotated_centre(np.eye(640), 30.0).shape
    (452, 452)
    """
    side = min(image.shape)
    centre = centre_side(side)
    if angle % 90 == 0:
        # Rows and columns outside the square: even numbers for a square picture, see `centre_side`.
        top, left = ((length - centre) // 2 for length in image.shape)
        return np.ascontiguousarray(np.rot90(image[top : top + centre, left : left + centre], round(angle / 90)))
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    matrix = np.array([[cosine, sine], [-sine, cosine]])  # from (row, column) of the new image to the old one
    # The centre of the square at right angles, so that all rotations have the same centre.
    middle = np.array([(length - centre) // 2 + (centre - 1) / 2 for length in image.shape])
    offset = middle - matrix @ np.full(2, (centre - 1) / 2)
    turned = ndimage.affine_transform(
        image, matrix, offset=offset, output_shape=(centre, centre), order=1, mode="nearest"
    )
    return np.asarray(turned)


def centre_side(side: int) -> int:
    """Side of the central square whose pixels stay inside a picture at every angle: about side / sqrt(2)."""
    centre = int((side - 1) / math.sqrt(2)) + 1  # the centres of n pixels span n - 1
    return centre - (side - centre) % 2  # the same number of pixels on both sides


def _span(side: int, protocol: Protocol) -> int:
    """Number of positions of a window in one direction; less than 1 if the picture is too small."""
    return centre_side(side) - 2 * margin_of(protocol.sigma) - protocol.window + 1


def _check_size(name: str, shape: tuple[int, ...], protocol: Protocol) -> None:
    if len(shape) != 2 or _span(min(shape), protocol) < 1:
        least = next(side for side in range(protocol.window, 10**6) if _span(side, protocol) >= 1)
        rule = f"images of at least {least} x {least} pixels for windows of {protocol.window}"
        reject("plates", rule, f"shape {shape} for {name}")


def _describe(name: str, image: FloatArray, protocol: Protocol, seeds: Sequence[int]) -> dict[str, FloatArray]:
    """Descriptors (seeds, windows, 15) of the windows of one texture, by role."""
    sizes = {role: protocol.per_class(role) for role in ROLES}
    covariances = {role: np.zeros((len(seeds), n, N_CHANNELS, N_CHANNELS)) for role, n in sizes.items()}
    margin, span = margin_of(protocol.sigma), _span(min(image.shape), protocol)
    for angle in sorted({angle for role in ROLES for angle in protocol.angles(role)}):
        channels = channels_of(rotated_centre(image, angle), protocol.sigma, signed=protocol.signed)
        for role in (role for role in ROLES if angle in protocol.angles(role)):
            n = protocol.windows(role)
            first = protocol.angles(role).index(angle) * n
            names = f"{role} windows of {name} at {angle:g} degrees"
            corners = margin + np.concatenate([generator(seed, names).integers(0, span, (n, 2)) for seed in seeds])
            found = window_covariances(channels, corners, protocol.window)
            covariances[role][:, first : first + n] = found.reshape(len(seeds), n, N_CHANNELS, N_CHANNELS)
    return {
        role: spd_to_vectors(found.reshape(-1, N_CHANNELS, N_CHANNELS), ridge=protocol.ridge).reshape(
            len(seeds), sizes[role], -1
        )
        for role, found in covariances.items()
    }


def _views(seed: int, described: dict[str, FloatArray], protocol: Protocol) -> Views:
    """The descriptors of one seed, with classes and angles."""
    parts: dict[str, Any] = {}
    for role, found in described.items():
        n_classes, per_class, n_columns = found.shape
        parts[role] = found.reshape(-1, n_columns)
        parts[f"{role}_y"] = np.repeat(np.arange(n_classes, dtype=np.int64), per_class)
        angles = np.repeat(np.array(protocol.angles(role), dtype=np.float64), protocol.windows(role))
        parts[f"{role}_angle"] = np.tile(angles, n_classes)
    n_groups = len(parts["test"]) // protocol.test_windows
    parts["test_group"] = np.repeat(np.arange(n_groups, dtype=np.int64), protocol.test_windows)
    return Views(seed=seed, **parts)
