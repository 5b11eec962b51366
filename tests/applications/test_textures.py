"""Texture descriptors: derivatives, covariances, distances, errors."""

import numpy as np
import pytest
from scipy.linalg import logm

from manifoldrf.applications.textures import (
    channels_of,
    covariance_descriptors,
    dense_corners,
    margin_of,
    texture_channels,
    window_covariances,
)
from manifoldrf.geometry.spd import vectors_to_spd

# x and y change places: I, |Iy|, |Ix|, |Iyy|, |Ixx|.
SWAPPED = [0, 2, 1, 4, 3]


def noise(shape=(60, 80), seed=0):
    return np.random.default_rng(seed).random(shape)


# -------------------------------------------------------------------------------------------------------- channels
@pytest.mark.parametrize("sigma", [0.0, 1.0, 2.0])
def test_derivatives_of_a_parabola_are_exact_away_from_the_border(sigma):
    y, x = np.mgrid[:50, :60] / 60
    channels = texture_channels(0.4 + 0.3 * x - 0.2 * y - 0.15 * x**2 + 0.1 * y**2, sigma=sigma)
    inside = (slice(margin_of(sigma), -margin_of(sigma)),) * 2
    expected = [np.abs(0.3 - 0.3 * x) / 60, np.abs(-0.2 + 0.2 * y) / 60, 0.3 / 3600 + 0 * x, 0.2 / 3600 + 0 * x]
    for channel, values in zip(channels[1:], expected, strict=True):
        np.testing.assert_allclose(channel[inside], values[inside], atol=1e-15)


def test_intensity_is_smoothed_by_a_gaussian_of_unit_sum():
    image = np.zeros((31, 31))
    image[15, 15] = 1
    smooth = texture_channels(image, sigma=1.5)[0]
    y, x = np.mgrid[-15:16, -15:16]
    expected = np.exp(-(x**2 + y**2) / (2 * 1.5**2))
    expected[np.maximum(abs(x), abs(y)) > 6] = 0  # cut at four standard deviations
    np.testing.assert_allclose(smooth, expected / expected.sum(), atol=1e-15)


def test_pixels_beyond_the_margin_do_not_matter():
    image = noise()
    other = image.copy()
    margin = margin_of(1.0)
    other[:10] = 1 - other[:10]
    here, there = texture_channels(image), texture_channels(other)
    np.testing.assert_array_equal(here[:, 10 + margin :], there[:, 10 + margin :])
    assert (here[:, 10 + margin - 1] != there[:, 10 + margin - 1]).any()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_unsigned_integers_are_scaled_to_the_unit_interval(kind):
    levels = np.random.default_rng(0).integers(0, np.iinfo(kind).max + 1, (20, 20)).astype(kind)
    np.testing.assert_array_equal(texture_channels(levels), texture_channels(levels / np.iinfo(kind).max))


def test_turning_an_image_by_a_right_angle_swaps_the_directions():
    """To rounding: smoothing goes along rows and columns in a fixed order."""
    image = noise()
    turned = texture_channels(np.rot90(image))
    np.testing.assert_allclose(turned, np.rot90(texture_channels(image)[SWAPPED], axes=(1, 2)), atol=1e-15)


# ----------------------------------------------------------------------------------------------------- covariances
@pytest.mark.parametrize("faint", [1.0, 1e-3, 1e-6])
def test_covariances_are_those_of_numpy_however_faint_the_texture(faint):
    """Sums of squares without the mean would lose (0.9 / faint)^2: all digits at 1e-6."""
    channels = channels_of(0.9 + 0.1 * faint * (noise() - 0.5), 1.0)
    corners = np.random.default_rng(1).integers(0, 60 - 16, (40, 2))
    found = window_covariances(channels, corners, 16)
    for (row, column), matrix in zip(corners, found, strict=True):
        expected = np.cov(channels[:, row : row + 16, column : column + 16].reshape(5, -1))
        np.testing.assert_allclose(matrix, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).min())


def test_descriptors_are_logarithms_of_covariances_with_a_ridge():
    image = noise()
    corners = dense_corners(image.shape, window=20, stride=20)
    channels = texture_channels(image, sigma=0.7)
    found = covariance_descriptors(image, corners, window=20, sigma=0.7, ridge=1e-4)
    rows, columns = np.triu_indices(5)
    for (row, column), vector in zip(corners, found, strict=True):
        matrix = np.cov(channels[:, row : row + 20, column : column + 20].reshape(5, -1)) + 1e-4 * np.eye(5)
        expected = logm(matrix)[rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
        # Condition numbers are below 1e4: logarithms are good to 1e-11.
        np.testing.assert_allclose(vector, expected, atol=1e-10)


def test_a_row_depends_on_its_own_window_only_bit_for_bit():
    """More windows than are gathered at a time."""
    image = noise((200, 200))
    corners = np.random.default_rng(2).integers(0, 200 - 32, (130, 2))
    every = covariance_descriptors(image, corners)
    np.testing.assert_array_equal(every[50:53], covariance_descriptors(image, corners[50:53]))
    np.testing.assert_array_equal(every[129:], covariance_descriptors(image, corners[129:]))


def test_turning_an_image_swaps_the_directions_of_covariances():
    image = noise((64, 64))
    here = vectors_to_spd(covariance_descriptors(image, [[20, 12]]))[0]
    there = vectors_to_spd(covariance_descriptors(np.rot90(image), [[64 - 32 - 12, 20]]))[0]
    np.testing.assert_allclose(there, here[np.ix_(SWAPPED, SWAPPED)], rtol=1e-9, atol=1e-12)


def test_brightness_changes_nothing_and_contrast_only_the_trace():
    image = 0.5 * noise((48, 48))
    corners = dense_corners(image.shape)
    plain = covariance_descriptors(image, corners, ridge=0.0)
    np.testing.assert_allclose(covariance_descriptors(image + 0.4, corners, ridge=0.0), plain, atol=1e-9)
    shift = covariance_descriptors(0.5 * image, corners, ridge=0.0) - plain
    diagonal = np.flatnonzero(np.equal(*np.triu_indices(5)))
    expected = np.zeros(15)
    expected[diagonal] = 2 * np.log(0.5)
    np.testing.assert_allclose(shift, np.tile(expected, (len(corners), 1)), atol=1e-9)


def test_windows_without_texture_are_finite_with_a_ridge_and_refused_without():
    image = np.full((40, 40), 0.3)
    vector = covariance_descriptors(image, [[0, 0]])[0]
    np.testing.assert_allclose(vector, np.where(np.equal(*np.triu_indices(5)), np.log(1e-6), 0), atol=1e-9)
    with pytest.raises(ValueError, match=r"positive definite; `ridge` helps.*in matrix 0"):
        covariance_descriptors(image, [[0, 0]], ridge=0.0)


# --------------------------------------------------------------------------------------------------------- corners
def test_dense_corners_cover_an_image_and_stay_inside():
    corners = dense_corners((50, 71), window=10, stride=3)
    assert corners.min() == 0
    assert corners.max(axis=0).tolist() == [39, 60]
    assert len(corners) == len(np.unique(corners, axis=0)) == 14 * 21


@pytest.mark.parametrize(
    ("corners", "text"),
    [
        ([[0, 0], [29, 0]], r"rows in \[0, 28\], columns in \[0, 48\]. Got \(29, 0\) at index 1"),
        ([[0, 49]], r"Got \(0, 49\) at index 0"),
        ([[-1, 0]], r"Got \(-1, 0\) at index 0"),
        ([0, 0], r"shape \(n, 2\) with n >= 1. Got shape \(2,\)"),
        (np.zeros((0, 2), dtype=int), r"Got shape \(0, 2\)"),
    ],
)
def test_windows_outside_the_image_are_refused(corners, text):
    with pytest.raises(ValueError, match=text):
        covariance_descriptors(noise(), corners)


def test_corners_between_pixels_are_refused():
    with pytest.raises(TypeError, match=r"`corners` must be integers\. Got dtype float64"):
        covariance_descriptors(noise(), [[0.5, 0.0]])


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (np.zeros((8, 8, 3)), r"grey levels of shape \(h, w\). Got shape \(8, 8, 3\)"),
        (np.full((8, 8), np.nan), "`image` must be finite"),
        (np.full((8, 8), 200.0), r"unsigned integers, or intensities in \[0, 1\]. Got float64 with the value 200"),
        (np.full((8, 8), -3), "Got int64 with the value -3"),
        (np.zeros((0, 8)), "at least 1 row"),
    ],
)
def test_arrays_that_are_no_grey_images_are_refused(image, text):
    with pytest.raises(ValueError, match=text):
        texture_channels(image)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: texture_channels(noise(), sigma=-1.0), "`sigma` must be a number"),
        (lambda: covariance_descriptors(noise(), [[0, 0]], window=61), r"`window` must be an integer in \[3, 60\]"),
        (lambda: covariance_descriptors(noise(), [[0, 0]], ridge=-1e-6), "`ridge` must be a number"),
        (lambda: dense_corners((8, 8, 3)), "`shape` must be the height and width"),
        (lambda: dense_corners((8, 8)), r"`window` must be an integer in \[1, 8\]"),
        (lambda: dense_corners((80, 80), stride=0), r"`stride` must be an integer in \[1, inf\)"),
    ],
)
def test_bad_options_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
