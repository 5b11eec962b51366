"""Random numbers for compiled code: xoroshiro128+ streams that Philox 4x32-10 seeds.

Philox is a pure function of key and counter (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011). The counter holds the start node and the lane, so a stream has the same bits in any thread and
in any order.
"""

import numpy as np

from manifoldrf._compiling import compiled

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10


@compiled()
def philox4x32(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Return four 32-bit words (as uint64) for a counter of four and a key of two 32-bit words."""
    a, b, c, d = np.uint64(c0) & _LOW, np.uint64(c1) & _LOW, np.uint64(c2) & _LOW, np.uint64(c3) & _LOW
    x, y = np.uint64(k0) & _LOW, np.uint64(k1) & _LOW
    for _ in range(_ROUNDS):
        p0 = _MULTIPLIER_0 * a
        p1 = _MULTIPLIER_1 * c
        a, b, c, d = (p1 >> _32) ^ b ^ x, p1 & _LOW, (p0 >> _32) ^ d ^ y, p0 & _LOW
        x = (x + _WEYL_0) & _LOW
        y = (y + _WEYL_1) & _LOW
    return a, b, c, d


@compiled()
def open_stream(start, lane, key):  # type: ignore[no-untyped-def]
    """State (two words) of the stream of a start node and a lane; ``key`` has two uint32 words."""
    start, lane = np.uint64(start), np.uint64(lane)
    a, b, c, d = philox4x32(start, start >> _32, lane, lane >> _32, key[0], key[1])
    # The last bit is set because the state zero would stay zero forever.
    return (a << _32) | b, ((c << _32) | d) | np.uint64(1)


@compiled(inline="always")
def next_word(s0, s1):  # type: ignore[no-untyped-def]
    """Next 64 random bits and the new state: ``word, s0, s1 = next_word(s0, s1)``."""
    word = s0 + s1
    s1 ^= s0
    s0 = ((s0 << np.uint64(24)) | (s0 >> np.uint64(40))) ^ s1 ^ (s1 << np.uint64(16))
    s1 = (s1 << np.uint64(37)) | (s1 >> np.uint64(27))
    return word, s0, s1


@compiled(inline="always")
def as_unit(word):  # type: ignore[no-untyped-def]
    """A double in [0, 1) from the upper 53 bits of a word; it never rounds up to 1."""
    return np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)  # 2^-53
