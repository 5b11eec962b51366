"""Texture descriptors: covariances of intensity and derivatives in windows of an image, as vectors."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_points,
    check_real,
    reject,
)
from manifoldrf.geometry.spd import spd_to_vectors

__all__ = ["covariance_descriptors", "dense_corners", "texture_channels"]

N_CHANNELS = 5
# Bytes gathered at once: 51 windows of 32 x 32 pixels. A window takes 19 us; with 512 KB 21, with 8 MB 28.
_GATHERED = 1 << 21
# Interpolation of intensities may leave [0, 1] by rounding.
_SLACK = 1e-6
_FIRST = (-0.5, 0.0, 0.5)  # central differences, exact for parabolas
_SECOND = (1.0, -2.0, 1.0)


def texture_channels(image: ArrayLike, *, sigma: float = 1.0) -> FloatArray:
    """Intensity and the sizes of its first and second derivatives, after Gaussian smoothing.

    Parameters
    ----------
    image : array-like of shape (h, w)
        Intensities in [0, 1], or unsigned integers, which are divided by the largest value of their type.
    sigma : float, default=1.0
        Standard deviation of the smoothing in pixels; 0 for none. Without smoothing, derivatives react to the blur
        of a rotated or scaled image, so that views of one texture look different.

    Returns
    -------
    channels : ndarray of shape (5, h, w)
        ``I, |I_x|, |I_y|, |I_xx|, |I_yy|`` by central differences, x to the right, y down. The image is extended by
        its border pixels, which affects up to 4 sigma + 1 pixels inside.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import texture_channels
    >>> ramp = np.tile(np.linspace(0, 1, 21), (21, 1))
    >>> texture_channels(ramp)[:, 10, 10].round(6).tolist()
    [0.5, 0.05, 0.0, 0.0, 0.0]
    """
    return channels_of(check_image(image), check_real(sigma, "sigma", NONNEGATIVE))


def channels_of(image: FloatArray, sigma: float, *, signed: bool = False) -> FloatArray:
    """Channels (5, h, w) of checked intensities; derivatives keep their signs if asked to."""
    smooth = ndimage.gaussian_filter(image, sigma, mode="nearest") if sigma > 0 else image
    channels = np.zeros((N_CHANNELS, *image.shape))
    channels[0] = smooth
    for k, (axis, weights) in enumerate([(1, _FIRST), (0, _FIRST), (1, _SECOND), (0, _SECOND)], start=1):
        ndimage.correlate1d(smooth, weights, axis=axis, output=channels[k], mode="nearest")
    if not signed:
        np.abs(channels[1:], out=channels[1:])
    return channels


def margin_of(sigma: float) -> int:
    """Number of pixels beyond a window that affect its channels: reach of the smoothing plus one difference."""
    return int(4 * sigma + 0.5) + 1  # scipy cuts the Gaussian at 4 standard deviations


def covariance_descriptors(
    image: ArrayLike, corners: ArrayLike, *, window: int = 32, sigma: float = 1.0, ridge: float = 1e-6
) -> FloatArray:
    """Describe square windows of an image by vectors of 15 numbers, whose Euclidean distance compares textures.

    The descriptor of a window is the 5 x 5 covariance of the :func:`texture_channels` of its pixels, converted to a
    vector by :func:`spd_to_vectors`. Distances of descriptors are log-Euclidean distances of covariances.

    Parameters
    ----------
    image : array-like of shape (h, w)
        Intensities in [0, 1], or unsigned integers, which are divided by the largest value of their type.
    corners : array-like of int of shape (n, 2)
        Row and column of the top left pixel of each window; :func:`dense_corners` makes a grid of them.
    window : int, default=32
        Side of the windows in pixels, at least 3.
    sigma : float, default=1.0
        Gaussian smoothing before derivatives, in pixels.
    ridge : float, default=1e-6
        Added to the diagonal of the covariances, so that windows without texture stay finite. The default is the
        square of a quarter of one of 256 grey levels, below the resolution of an 8-bit image.

    Returns
    -------
    descriptors : ndarray of shape (n, 15)
        A row depends only on its window and the pixels around it that smoothing and derivatives use, bit for bit.

    Raises
    ------
    ValueError
        If a window leaves the image (the error names the first), or if ``ridge`` is 0 and a window is constant.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import covariance_descriptors, dense_corners
    >>> image = np.random.default_rng(0).random((64, 96))
    >>> covariance_descriptors(image, dense_corners(image.shape, stride=16)).shape
    (15, 15)
    """
    pixels = check_image(image)
    window = check_integer(window, "window", 3, min(pixels.shape))
    places = _check_corners(corners, pixels.shape, window)
    channels = channels_of(pixels, check_real(sigma, "sigma", NONNEGATIVE))
    return spd_to_vectors(window_covariances(channels, places, window), ridge=ridge)


def window_covariances(channels: FloatArray, corners: IntArray, window: int) -> FloatArray:
    """Covariances (n, c, c) of channels (c, h, w) in the windows with these corners (n, 2), divided by n - 1.

    The mean of each window is subtracted before products are summed, as in ``numpy.cov``. Running sums of squares
    are faster for windows that overlap a lot, but lose the digits of faint textures.
    """
    n_channels, size = len(channels), window * window
    views = np.lib.stride_tricks.sliding_window_view(channels, (window, window), axis=(1, 2))
    covariances = np.zeros((len(corners), n_channels, n_channels))
    step = max(1, _GATHERED // (8 * n_channels * size))
    for first in range(0, len(corners), step):
        rows, columns = corners[first : first + step].T
        pixels = views[:, rows, columns].reshape(n_channels, -1, size).swapaxes(0, 1)  # (step, c, window^2)
        pixels -= pixels.mean(axis=2, keepdims=True)
        covariances[first : first + step] = pixels @ pixels.swapaxes(1, 2)
    return covariances / (size - 1)


def dense_corners(shape: tuple[int, int], *, window: int = 32, stride: int = 8) -> IntArray:
    """Top left corners of a grid of windows inside an image.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the image.
    window : int, default=32
    stride : int, default=8
        Pixels from one window to the next, in both directions.

    Returns
    -------
    corners : ndarray of int64 of shape (n, 2)
        Row by row.

    Examples
    --------
    >>> from manifoldrf import dense_corners
    >>> dense_corners((32, 48)).tolist()
    [[0, 0], [0, 8], [0, 16]]
    """
    if np.ndim(shape) != 1 or len(shape) != 2:
        reject("shape", "the height and width of an image", shape)
    height, width = (check_integer(length, "shape", 1) for length in shape)
    window = check_integer(window, "window", 1, min(height, width))
    stride = check_integer(stride, "stride", 1)
    rows, columns = (np.arange(0, length - window + 1, stride, dtype=np.int64) for length in (height, width))
    return np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)


def check_image(image: ArrayLike) -> FloatArray:
    """Return intensities as finite floats in [0, 1]."""
    array: NDArray[Any] = np.asarray(image)
    if array.ndim != 2:
        reject("image", "an array of grey levels of shape (h, w)", f"shape {array.shape}")
    if array.dtype.kind == "u":
        return array / float(np.iinfo(array.dtype).max)
    pixels = check_points(array, "image")
    for value in (pixels.min(), pixels.max()):
        if not -_SLACK <= value <= 1 + _SLACK:
            given = f"{array.dtype} with the value {value:g}"
            reject("image", "unsigned integers, or intensities in [0, 1]", given)
    return pixels


def _check_corners(corners: ArrayLike, shape: tuple[int, ...], window: int) -> IntArray:
    """Check that the corners (n, 2) belong to windows inside the image."""
    array = np.asarray(corners)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0:
        reject("corners", "an array of rows and columns of shape (n, 2) with n >= 1", f"shape {array.shape}")
    if array.dtype.kind not in "iu":
        reject("corners", "integers", f"dtype {array.dtype}", TypeError)
    last = np.array(shape) - window
    bad = np.flatnonzero(((array < 0) | (array > last)).any(axis=1))
    if len(bad):
        rule = f"corners of windows inside the image: rows in [0, {last[0]}], columns in [0, {last[1]}]"
        reject("corners", rule, f"{tuple(array[bad[0]].tolist())} at index {bad[0]}")
    return array.astype(np.int64, copy=False)
