"""Seeds, named streams, and the counter-based generator."""

import numpy as np
import pytest
from oracles import as_unit, philox, random_words
from scipy import stats

from manifoldrf._native import loops
from manifoldrf._random import Streams, generator

# Known-answer vectors of the Random123 distribution for philox 4x32 with 10 rounds: counter, key, output.
FULL = 0xFFFFFFFF
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((FULL,) * 4, (FULL,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


FROZEN_ROOT = "e45135fc2346a48fd3a5915c432bf7df"
FROZEN_KEY = [1194681818, 510605783]


def compiled_words(start, lane, key, n):
    """The state of a stream and n words of it."""
    words = np.zeros(n + 2, np.uint64)
    loops.stream_words(start, lane, np.array(key, np.uint32), words)
    return words.tolist()


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_its_published_test_vectors(counter, key, expected):
    assert philox(counter, key) == expected
    start, lane = (int(np.int64(np.uint64(low | high << 32))) for low, high in (counter[:2], counter[2:]))
    a, b, c, d = expected
    assert compiled_words(start, lane, key, 0) == [a << 32 | b, c << 32 | d | 1]  # the state is not zero


def test_words_are_those_of_xoroshiro():
    words = random_words(3, 1, (5, 7))
    assert compiled_words(3, 1, (5, 7), 100)[2:] == [next(words) for _ in range(100)]


def test_words_are_uniform_and_their_pairs_independent():
    pairs = np.array([as_unit(word) for word in compiled_words(0, 0, (1, 2), 40_000)[2:]]).reshape(-1, 2)
    assert pairs.min() >= 0
    assert pairs.max() < 1
    counts = np.histogram2d(*pairs.T, bins=10, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4  # one false alarm in 10,000 keys


def test_zero_is_a_seed_of_its_own():
    first = [generator(seed, "x").random() for seed in (0, 1, 42)]
    assert len(set(first)) == 3
    assert generator(0, "x").random() == first[0]


def test_streams_of_different_names_and_seeds_are_uncorrelated():
    streams = Streams.from_seed(7)
    draws = [streams.generator(name).normal(size=20_000) for name in ("a", "b")]
    draws.append(Streams.from_seed(8).generator("a").normal(size=20_000))
    correlations = np.corrcoef(draws)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


def test_a_new_consumer_shifts_no_other():
    streams = Streams.from_seed(3)
    before = streams.generator("walks").random(5)
    streams.generator("newcomer").random(100)
    np.testing.assert_array_equal(streams.generator("walks").random(5), before)


def test_streams_are_the_same_on_every_platform_and_version():
    """Frozen values: changing how streams are derived changes every seeded result of every user."""
    streams = Streams.from_seed(0)
    assert streams.root.hex() == FROZEN_ROOT
    assert streams.key("walks").tolist() == FROZEN_KEY


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState], ids=["Generator", "RandomState"])
def test_generators_are_seeds_and_are_advanced(make):
    rng, same = make(5), make(5)
    first, second = generator(rng, "x").random(), generator(rng, "x").random()
    assert first != second
    assert generator(same, "x").random() == first
