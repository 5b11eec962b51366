"""Named streams of random numbers that are derived from one seed.

Every consumer has its own stream, so a new consumer does not change the others. The streams are counter-based
(Philox): any part can be computed in any thread and in any order, with the same bits.
"""

import functools
import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import reject

SeedLike: TypeAlias = int | np.integer | np.random.Generator | np.random.RandomState | None

# The same on every platform and Python version, unlike ``hash``. 128 bits: collisions are negligible.
_keyed_hash = functools.partial(hashlib.blake2b, digest_size=16)


@dataclass(frozen=True)
class Streams:
    """Named random streams that are derived from one root key.

    Parameters
    ----------
    root : bytes
        The 128-bit root key; made by :meth:`from_seed`.

    Examples
    --------
    >>> streams = Streams.from_seed(0)
    >>> float(streams.generator("sample").random()) == float(streams.generator("sample").random())
    True
    >>> float(streams.generator("sample").random()) == float(streams.generator("walks").random())
    False
    """

    root: bytes

    @classmethod
    def from_seed(cls, seed: SeedLike, name: str = "seed") -> "Streams":
        """Derive the root key from ``None`` (fresh entropy), an int, a Generator or a RandomState.

        A generator is advanced by one draw, as usual in scientific Python.
        """
        if seed is None:
            seed = int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
        if isinstance(seed, np.random.Generator):
            plain = seed.integers(0, 2**32, size=4, dtype=np.uint32).astype("<u4").tobytes()
        elif isinstance(seed, np.random.RandomState):
            plain = seed.randint(0, 2**32, size=4, dtype=np.uint32).astype("<u4").tobytes()
        else:
            rule = "None, a non-negative integer, a numpy Generator or a RandomState"
            if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
                reject(name, rule, repr(seed), TypeError)
            if seed < 0:
                reject(name, rule, seed)
            plain = int(seed).to_bytes(max(1, (int(seed).bit_length() + 7) // 8), "little")
        return cls(_keyed_hash(plain, key=b"manifoldrf seed").digest())

    def key(self, name: str) -> NDArray[np.uint32]:
        """Return two 32-bit words that key the generator of walks."""
        return np.frombuffer(_keyed_hash(name.encode(), key=self.root).digest()[:8], dtype="<u4").astype(np.uint32)

    def generator(self, name: str) -> np.random.Generator:
        """Return a NumPy generator at the start of the stream of this name."""
        key = int.from_bytes(_keyed_hash(name.encode(), key=self.root).digest(), "little")
        return np.random.Generator(np.random.Philox(key=key))


def generator(seed: SeedLike, name: str) -> np.random.Generator:
    """Return the stream ``name`` of ``seed``, for functions that need only one."""
    return Streams.from_seed(seed).generator(name)
