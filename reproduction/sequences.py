"""Deforming meshes with velocities: npz files and a simulated cloth."""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from manifoldrf import TriangleMesh
from reproduction.common import FloatArray, IntArray, existing_folder, files_in, generator, reject

# -------------------------------------------------------------------------------------------------- simulated cloth
FRAME = 0.02  # seconds from frame to frame, those of flag_simple
_WARM_UP = 50  # frames that are discarded, because the flag starts flat and at rest
# Small steps with one projection each converge better than long steps with many. With 12, edges are 1 % longer than
# at rest in the median and 6 to 15 % at the 95th percentile in a hard gust; at the two fixed corners, more.
_SUBSTEPS = 12
_PER_WIND = 4  # steps with the same wind, because computing it costs as much as eight projections
_SIZE = (2.0, 1.7)  # metres along and across
_DENSITY = 0.2  # kg per square metre, a light cloth
_GRAVITY = 9.81
_DRAG = 0.6  # half the density of air times a coefficient of one: pressure is drag times speed squared
_DAMPING = 0.4  # share of the velocity lost per second
# Share of the error of a distance that one step removes.
_SHEAR = 0.3  # of diagonals
_BENDING = 0.02  # of second neighbours: folds, but no creases

Part = tuple[slice, slice, slice]


@dataclass(frozen=True)
class _Links:
    """Pairs of vertices with a fixed distance; no vertex is in two pairs, so all can move at once."""

    start: Part  # of arrays (3, along, across)
    end: Part
    length: float
    stiffness: float


def simulate_cloth(seed: int, n_frames: int, shape: tuple[int, int]) -> tuple[FloatArray, IntArray, float]:
    """Positions (n_frames, V, 3), faces (F, 3) and the time from frame to frame.

    The flag hangs from the two corners of its first row. There is no contact: sheets come close, and may cross.
    """
    rest, faces = _grid(shape)  # (3, along, across)
    links = list(_all_links(shape))
    free = np.ones((1, *shape))
    free[0, 0, [0, -1]] = 0.0
    stream = generator(seed, "cloth")
    gusts = _Gusts.draw(stream)
    positions = rest + free * stream.normal(scale=0.004, size=rest.shape)  # flat cloth would stay flat
    velocity, force = np.zeros_like(rest), np.zeros_like(rest)
    weight = np.array([0.0, 0.0, -_GRAVITY])[:, None, None]
    mass = _DENSITY * _SIZE[0] * _SIZE[1] / (shape[0] * shape[1])
    step = FRAME / _SUBSTEPS
    frames = np.zeros((n_frames, shape[0] * shape[1], 3))
    for count in range((_WARM_UP + n_frames) * _SUBSTEPS):
        if count % _PER_WIND == 0:
            force = _wind_force(positions, velocity, faces, gusts.at(count * step))
        velocity = velocity * (1 - _DAMPING * step) + step * free * (force / mass + weight)
        moved = positions + step * velocity
        for link in links:
            _keep_lengths(moved, link, free)
        velocity, positions = (moved - positions) / step, moved
        frame, left = divmod(count + 1, _SUBSTEPS)
        if not left and frame > _WARM_UP:
            frames[frame - _WARM_UP - 1] = positions.reshape(3, -1).T
    return frames, faces, FRAME


@dataclass(frozen=True)
class _Gusts:
    """Wind as a sum of travelling waves with random strengths and phases."""

    strength: FloatArray  # (waves, 3) metres per second
    rate: FloatArray  # (waves,) radians per second
    wave: FloatArray  # (waves, 3) radians per metre
    phase: FloatArray  # (waves,)

    @classmethod
    def draw(cls, stream: np.random.Generator, n_waves: int = 6) -> "_Gusts":
        """Slow waves are long and strong."""
        rate = 2 * np.pi * stream.uniform(0.3, 2.0, n_waves)
        strength = stream.normal(size=(n_waves, 3)) * (2.0, 3.5, 1.0)
        wave = stream.normal(scale=2.0, size=(n_waves, 3))
        return cls(strength, rate, wave, stream.uniform(0, 2 * np.pi, n_waves))

    def at(self, t: float) -> "_Wind":
        """The wind of one moment."""
        return _Wind(self.strength, self.wave, self.rate * t + self.phase)


@dataclass(frozen=True)
class _Wind:
    """Wind of one moment, anywhere."""

    strength: FloatArray
    wave: FloatArray
    phase: FloatArray

    def blow(self, places: FloatArray) -> FloatArray:
        """Velocity of the air (3, q) at places (3, q)."""
        waves = np.sin(self.wave @ places + self.phase[:, None])  # (waves, q)
        return np.asarray(np.array([[3.0], [0.0], [0.0]]) + self.strength.T @ waves)


def _wind_force(positions: FloatArray, velocity: FloatArray, faces: IntArray, wind: _Wind) -> FloatArray:
    """Force of the wind on the vertices, a third of each triangle's force at each corner, (3, along, across)."""
    a, b, c = (positions.reshape(3, -1)[:, corner] for corner in faces.T)  # (3, F) each
    cross = np.cross(b - a, c - a, axis=0)  # twice the area, along the normal
    twice = np.sqrt((cross**2).sum(axis=0)) + 1e-12
    own = sum(velocity.reshape(3, -1)[:, corner] for corner in faces.T) / 3
    through = ((wind.blow((a + b + c) / 3) - own) * cross).sum(axis=0) / twice  # speed across the triangle
    push = _DRAG / 6.0 * through * np.abs(through) * cross  # the area is half of `twice`, and a third goes here
    size = positions[0].size
    force = [np.bincount(faces.ravel(), np.repeat(row, 3), minlength=size) for row in push]
    return np.array(force, dtype=np.float64).reshape(positions.shape)


def _keep_lengths(moved: FloatArray, link: _Links, free: FloatArray) -> None:
    """Move both ends of every pair towards their distance at rest; fixed vertices do not move."""
    start, end = moved[link.start], moved[link.end]
    gap = end - start
    distance = np.sqrt(gap[0] ** 2 + gap[1] ** 2 + gap[2] ** 2) + 1e-12
    shares = free[link.start] + free[link.end]  # 0 for a pair with two fixed ends
    pull = (link.stiffness * (1 - link.length / distance)) / np.maximum(shares, 1.0) * gap
    start += free[link.start] * pull
    end -= free[link.end] * pull


def _grid(shape: tuple[int, int]) -> tuple[FloatArray, IntArray]:
    """Vertices (3, along, across) of a flat flag and its triangles (F, 3), with diagonals that alternate."""
    along, across = np.meshgrid(
        *(np.linspace(0, size, n) for size, n in zip(_SIZE, shape, strict=True)), indexing="ij"
    )
    vertices = np.stack([along, np.zeros(shape), across])
    numbers = np.arange(along.size).reshape(shape)
    a, b, c, d = (numbers[i : i - 1 or None, j : j - 1 or None].ravel() for i in (0, 1) for j in (0, 1))
    is_even = (np.add.outer(np.arange(shape[0] - 1), np.arange(shape[1] - 1)) % 2 == 0).ravel()[:, None]
    first = np.where(is_even, np.column_stack([a, c, d]), np.column_stack([a, c, b]))
    second = np.where(is_even, np.column_stack([a, d, b]), np.column_stack([c, d, b]))
    return vertices, np.concatenate([first, second])


def _all_links(shape: tuple[int, int]) -> Iterator[_Links]:
    """Links along both axes, both diagonals, and to second neighbours, in groups without common vertices."""
    spacing = [size / (n - 1) for size, n in zip(_SIZE, shape, strict=True)]
    steps = {(1, 0): 1.0, (0, 1): 1.0, (1, 1): _SHEAR, (1, -1): _SHEAR, (2, 0): _BENDING, (0, 2): _BENDING}
    for (i, j), stiffness in steps.items():
        length = float(np.hypot(i * spacing[0], j * spacing[1]))
        # Every other pair along the axis is left for the next group, so that a vertex is in one link per group.
        stride, axis = (2 * i, 0) if i else (2 * j, 1)
        for first in range(stride):
            ends = []
            for at in (0, 1):
                rows = slice(at * i, shape[0] - i + at * i)
                columns = slice(max(0, -j) + at * j, shape[1] - max(0, j) + at * j)
                part = [slice(None), rows, columns]
                whole = part[axis + 1]
                part[axis + 1] = slice(whole.start + first, whole.stop, stride)
                ends.append((part[0], part[1], part[2]))
            yield _Links(ends[0], ends[1], length, stiffness)


# --------------------------------------------------------------------------------------------------- the experiment


@dataclass(frozen=True, eq=False, repr=False)
class Sequence:
    """A moving mesh with the same triangles in every frame.

    Parameters
    ----------
    positions : array of shape (T, V, 3)
        Of the vertices, in T >= 2 frames.
    faces : array of shape (F, 3)
    dt : float
        Time from frame to frame.
    name, source : str
        The name in tables; where the sequence is from.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.sequences import Sequence
    >>> corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    >>> Sequence(np.stack([corners, corners + 0.5]), [[0, 1, 2]], 0.1).velocity(1)[0].tolist()
    [5.0, 5.0, 5.0]
    """

    positions: FloatArray
    faces: IntArray
    dt: float = 1.0
    name: str = "sequence"
    source: str = ""

    def __post_init__(self) -> None:
        raw = np.asarray(self.positions)
        if raw.ndim != 3 or raw.shape[0] < 2 or raw.shape[2] != 3:
            reject("positions", "an array of shape (T, V, 3) with T >= 2", f"shape {raw.shape}")
        faces = np.asarray(self.faces, dtype=np.int64)
        if not np.isfinite(raw).all() or not self.dt > 0:
            reject("positions", "finite, with a positive time step", f"dt {self.dt}")
        object.__setattr__(self, "positions", raw.astype(np.float64))
        object.__setattr__(self, "faces", faces)

    def __repr__(self) -> str:
        return f"Sequence({self.name!r}, {self.n_frames} frames of {self.n_vertices} vertices)"

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.positions)

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return int(self.positions.shape[1])

    def mesh(self, frame: int) -> TriangleMesh:
        """The mesh in one frame."""
        return TriangleMesh(self.positions[frame], self.faces)

    def velocity(self, frame: int) -> FloatArray:
        """Velocities of the vertices (V, 3): backward differences over dt; frame 0 has none."""
        return np.asarray((self.positions[frame] - self.positions[frame - 1]) / self.dt)


def read_npz(path: str | PathLike[str]) -> Sequence:
    """Read a sequence of an .npz file.

    Parameters
    ----------
    path : str or path
        A file with ``pos`` (T, V, 3) and ``faces`` (F, 3), and optionally ``dt``, seconds from frame to frame, and
        ``source``, a text. Without ``dt`` velocities are per frame.

    Returns
    -------
    Sequence
        Named after the file.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from reproduction.sequences import read_npz
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/still.npz", pos=np.zeros((2, 3, 3)), faces=[[0, 1, 2]], dt=0.02)
    ...     read_npz(f"{folder}/still.npz")
    Sequence('still', 2 frames of 3 vertices)
    """
    source = Path(path)
    with np.load(source) as found:
        missing = {"pos", "faces"} - set(found)
        if missing:
            reject(
                "path", "a sequence with pos and faces", f"{source.name} without {' and '.join(sorted(missing))}"
            )
        dt, text = float(found.get("dt", 1.0)), str(found.get("source", ""))
        return Sequence(found["pos"], found["faces"], dt, source.stem, text)


def generate_cloth(seed: int = 0, *, n_frames: int = 121, shape: tuple[int, int] = (43, 37)) -> Sequence:
    """Simulate a flag of two metres in gusts, fixed at two corners; takes a few seconds.

    Parameters
    ----------
    seed : int, default=0
        Of the gusts; the same seed gives the same bits.
    n_frames : int, default=121
        Frames of 1/50 s, after one second that is discarded.
    shape : tuple of two ints, default=(43, 37)
        Vertices along and across: 1591.

    Returns
    -------
    Sequence

    Examples
    --------
    >>> from reproduction.sequences import generate_cloth
    >>> generate_cloth(n_frames=2, shape=(6, 5))
    Sequence('cloth_0', 2 frames of 30 vertices)
    """
    positions, faces, dt = simulate_cloth(seed, n_frames, shape)
    return Sequence(positions, faces, dt, f"cloth_{seed}", "generated")


def find_sequences(folder: Path) -> list[Sequence]:
    """Read all .npz sequences of a folder, or of the folder ``sequences`` in it, by name."""
    root = existing_folder(folder, "--data")
    inner = root / "sequences"
    files = files_in(inner if inner.is_dir() else root, (".npz",))
    if not files:
        rule = "a folder with .npz sequences (reproduction.convert_tfrecords makes them of .tfrecord files)"
        reject("--data", rule, root, FileNotFoundError)
    return [read_npz(path) for path in files]
