"""Windows of rotated textures: few with a label, many without, and test windows at other angles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from manifoldrf._random import Streams
from manifoldrf._runtime import Progress, thread_pool
from manifoldrf._validation import NONNEGATIVE, FloatArray, IntArray, check_integer, check_jobs, check_real, reject
from manifoldrf.applications.textures import N_CHANNELS, channels_of, check_image, margin_of, window_covariances
from manifoldrf.geometry.spd import spd_to_vectors
from reproduction.texture_data import Plates

__all__ = ["Draws", "Protocol", "Views", "draw_views", "rotated_centre"]

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
        Of :func:`manifoldrf.covariance_descriptors`.
    signed : bool
        Whether derivatives keep their signs. The descriptors of the library have absolute values.

    Examples
    --------
    >>> from reproduction.texture_views import Protocol
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
    # photographs in scikit-image (`try_descriptors` in brodatz.py). Smoothing hides the blur of rotations.
    window: int = 64
    sigma: float = 1.0
    signed: bool = False
    ridge: float = 1e-6  # below the resolution of 8 bits; from 1e-5 to 1e-11 raw accuracies are within 0.3 points

    def __post_init__(self) -> None:
        for role in ROLES:
            check_integer(self.windows(role), f"{role}_windows", 1)
            angles = self.angles(role)
            if not angles or len(set(angles)) < len(angles) or not np.isfinite(angles).all():
                reject(f"{role}_angles", "at least one angle, all different and finite", angles)
        check_integer(self.window, "window", 3)
        check_real(self.sigma, "sigma", NONNEGATIVE)
        check_real(self.ridge, "ridge", NONNEGATIVE)

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
    >>> from reproduction.texture_data import generated_plates
    >>> from reproduction.texture_views import Protocol, draw_views
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
    plates: Plates,
    protocol: Protocol,
    seeds: Sequence[int],
    *,
    n_jobs: int = -1,
    progress: Progress = lambda what, done, total: None,
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
    n_jobs : int, default=-1
        Threads; the result is the same for any number.
    progress : callable
        Called with a text, the number of plates done and their total.

    Returns
    -------
    views : list of Views
        In the order of the seeds. 11 MB each at the size of the paper.

    Examples
    --------
    >>> from reproduction.texture_data import generated_plates
    >>> from reproduction.texture_views import Protocol, draw_views
    >>> protocol = Protocol(unlabelled_windows=4, test_windows=5, window=16)
    >>> draw_views(generated_plates(side=64), protocol, [0])
    [Views(144 labelled, 768 unlabelled, 480 test, seed 0)]
    """
    if not seeds or len(set(seeds)) < len(seeds):
        reject("seeds", "at least one integer, all different", list(seeds))
    for name, image in zip(plates.names, plates.images, strict=True):
        _check_size(name, image.shape, protocol)
    streams = [Streams.from_seed(seed) for seed in seeds]
    described = {role: np.zeros((len(seeds), len(plates), protocol.per_class(role), 15)) for role in ROLES}

    def work(place: int) -> dict[str, FloatArray]:
        return _describe(plates.names[place], check_image(plates.images[place]), protocol, streams)

    with thread_pool(check_jobs(n_jobs)) as pool:
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
    >>> from reproduction.texture_views import rotated_centre
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


def _describe(name: str, image: FloatArray, protocol: Protocol, streams: list[Streams]) -> dict[str, FloatArray]:
    """Descriptors (seeds, windows, 15) of the windows of one texture, by role."""
    sizes = {role: protocol.per_class(role) for role in ROLES}
    covariances = {role: np.zeros((len(streams), n, N_CHANNELS, N_CHANNELS)) for role, n in sizes.items()}
    margin, span = margin_of(protocol.sigma), _span(min(image.shape), protocol)
    for angle in sorted({angle for role in ROLES for angle in protocol.angles(role)}):
        channels = channels_of(rotated_centre(image, angle), protocol.sigma, signed=protocol.signed)
        for role in (role for role in ROLES if angle in protocol.angles(role)):
            n = protocol.windows(role)
            first = protocol.angles(role).index(angle) * n
            names = f"{role} windows of {name} at {angle:g} degrees"
            corners = margin + np.concatenate(
                [stream.generator(names).integers(0, span, (n, 2)) for stream in streams]
            )
            found = window_covariances(channels, corners, protocol.window)
            covariances[role][:, first : first + n] = found.reshape(len(streams), n, N_CHANNELS, N_CHANNELS)
    return {
        role: spd_to_vectors(found.reshape(-1, N_CHANNELS, N_CHANNELS), ridge=protocol.ridge).reshape(
            len(streams), sizes[role], -1
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
