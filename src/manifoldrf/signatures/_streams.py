"""Fast random words for compiled walks: xoroshiro128+ streams, each seeded by Philox.

A stream belongs to (start node, lane) and never to a thread, so the bits do not depend on the number of threads.
Its 128-bit state is drawn by Philox from the key of the run: streams of 2^40 words, a billion of them, overlap with
probability below 1e-11. (D. Blackman and S. Vigna, Scrambled linear pseudorandom number generators, 2021.)
"""

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf._philox import philox4x32

_32 = np.uint64(32)
_TO_UNIT = 1.0 / 9007199254740992.0  # 2^-53


@compiled()
def open_stream(start, lane, key):  # type: ignore[no-untyped-def]
    """State (two words) of the stream that belongs to a start node and a lane; ``key`` has two uint32 words."""
    start, lane = np.uint64(start), np.uint64(lane)
    a, b, c, d = philox4x32(start, start >> _32, lane, lane >> _32, key[0], key[1])
    # The state zero would stay zero for ever.
    return (a << _32) | b, ((c << _32) | d) | np.uint64(1)


@compiled(inline="always")
def next_word(s0, s1):  # type: ignore[no-untyped-def]
    """The next 64 random bits, and the state after them: ``word, s0, s1 = next_word(s0, s1)``."""
    word = s0 + s1
    s1 ^= s0
    s0 = ((s0 << np.uint64(24)) | (s0 >> np.uint64(40))) ^ s1 ^ (s1 << np.uint64(16))
    s1 = (s1 << np.uint64(37)) | (s1 >> np.uint64(27))
    return word, s0, s1


@compiled(inline="always")
def as_unit(word):  # type: ignore[no-untyped-def]
    """A double in [0, 1) from the upper 53 bits of a word."""
    return np.float64(word >> np.uint64(11)) * _TO_UNIT
