"""What the experiments use of the library beyond its public names: checks, random streams, files."""

from manifoldrf._files import (
    TEMPORARY,
    as_path,
    atomic_path,
    atomic_paths,
    existing_file,
    folder_for_results,
    writable_folder,
)  # fmt: skip
from manifoldrf._random import SeedLike, Streams, generator
from manifoldrf._runtime import (
    Progress,
    available,
    filtered,
    map_threads,
    one_blas_thread,
    require,
    thread_pool,
    without_warnings,
)  # fmt: skip
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    Interval,
    check_faces,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_real,
    reject,
)  # fmt: skip

__all__ = [
    "NONNEGATIVE", "POSITIVE", "TEMPORARY", "FloatArray", "IntArray", "Interval", "Progress", "SeedLike",
    "Streams", "as_path", "atomic_path", "atomic_paths", "available", "check_faces", "check_integer",
    "check_jobs", "check_option", "check_points", "check_real", "existing_file", "filtered",
    "folder_for_results", "generator", "map_threads", "one_blas_thread", "reject", "require", "thread_pool",
    "without_warnings", "writable_folder",
]  # fmt: skip
