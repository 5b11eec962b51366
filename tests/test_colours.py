"""Colours follow matplotlib's scales, ends are clipped, and what is unknown is grey."""

import matplotlib as mpl
import numpy as np
import pytest

from manifoldrf._colours import DIVERGING, GREY, SEQUENTIAL, colours_of

SCALES = [("magma_r", SEQUENTIAL), ("RdBu", DIVERGING)]


@pytest.mark.parametrize(("name", "stops"), SCALES)
def test_colours_between_the_stops_are_near_those_of_matplotlib(name, stops):
    """Straight lines between 17 stops miss the bends of RdBu, which lie at tenths, by 9 of 255 at most."""
    values = np.linspace(-2, 3, 1001)
    exact = mpl.colormaps[name]((values + 2) / 5, bytes=True)[:, :3].astype(int)
    colours = colours_of(values, -2, 3, stops)
    assert colours.dtype == np.uint8
    assert np.abs(colours - exact).max() <= 9


def test_values_outside_get_the_ends_and_nan_gets_grey():
    colours = colours_of([-np.inf, -5.0, 0.0, 1.0, 5.0, np.inf, np.nan], 0.0, 1.0)
    low, high = np.rint(255 * SEQUENTIAL[0]), np.rint(255 * SEQUENTIAL[-1])
    np.testing.assert_array_equal(colours, [low] * 3 + [high] * 3 + [np.rint(255 * GREY)])


def test_a_range_of_very_large_numbers_does_not_overflow():
    np.testing.assert_array_equal(
        colours_of([-1.7e308, 0.0, 1.7e308], -1.7e308, 1.7e308), np.rint(255 * SEQUENTIAL[[0, 8, 16]])
    )
