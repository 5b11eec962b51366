"""Colours of numbers, for the explorer and for coloured mesh files. Both colour scales are from matplotlib."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manifoldrf._validation import FloatArray

# Colours (red, green, blue) in [0, 1] at 17 equally spaced stops. (17, 3)
# fmt: off
# magma_r: light is low. Lightness is monotone, so the scale also works in greyscale and for colour-blind readers.
SEQUENTIAL: FloatArray = np.array(
    [
        (0.9871, 0.9914, 0.7495), (0.9928, 0.8772, 0.6331), (0.9970, 0.7624, 0.5288), (0.9958, 0.6463, 0.4414),
        (0.9857, 0.5281, 0.3794), (0.9585, 0.4113, 0.3600), (0.8996, 0.3146, 0.3910), (0.8109, 0.2529, 0.4393),
        (0.7100, 0.2128, 0.4772), (0.6072, 0.1798, 0.4995), (0.5066, 0.1460, 0.5078), (0.4086, 0.1079, 0.5041),
        (0.3104, 0.0697, 0.4832), (0.2049, 0.0629, 0.4115), (0.1079, 0.0643, 0.2673), (0.0355, 0.0284, 0.1252),
        (0.0015, 0.0005, 0.0139),
    ]
)
# RdBu: red is low, blue is high, and the middle is almost white.
DIVERGING: FloatArray = np.array(
    [
        (0.4039, 0.0000, 0.1216), (0.5885, 0.0591, 0.1511), (0.7340, 0.1661, 0.2026), (0.8226, 0.3433, 0.2863),
        (0.8992, 0.5144, 0.4079), (0.9617, 0.6761, 0.5469), (0.9839, 0.8090, 0.7167), (0.9829, 0.9019, 0.8542),
        (0.9657, 0.9672, 0.9681), (0.8722, 0.9230, 0.9509), (0.7518, 0.8636, 0.9218), (0.5968, 0.7849, 0.8775),
        (0.4085, 0.6687, 0.8145), (0.2418, 0.5488, 0.7506), (0.1582, 0.4381, 0.6940), (0.0842, 0.3128, 0.5534),
        (0.0196, 0.1882, 0.3804),
    ]
)
# fmt: on
GREY: FloatArray = np.array([0.6, 0.6, 0.6])  # for missing values; neither scale contains it


def field_colours(values: FloatArray) -> NDArray[np.uint8]:
    """Colours of a field over its range of values, shape (n, 3); grey where it is not finite.

    Examples
    --------
    >>> field_colours(np.array([3.0, np.nan, 5.0])).tolist()
    [[252, 253, 191], [153, 153, 153], [0, 0, 4]]
    """
    known = np.where(np.isfinite(values), values, np.nan)
    present = known[~np.isnan(known)]
    low, high = (float(present.min()), float(present.max())) if len(present) else (0.0, 1.0)
    return colours_of(known, low, high)


def colours_of(
    values: ArrayLike, lowest: float, highest: float, stops: FloatArray = SEQUENTIAL
) -> NDArray[np.uint8]:
    """Map numbers to colours by linear interpolation between stops.

    Parameters
    ----------
    values : array-like of shape (n,)
        The numbers. Numbers outside the range get the colour of its end, NaN gets grey.
    lowest, highest : float
        Finite ends of the range. If they are equal, this value gets the middle of the scale.
    stops : ndarray of shape (k, 3), default=SEQUENTIAL
        Colours in [0, 1] at equally spaced stops.

    Returns
    -------
    ndarray of shape (n, 3), uint8
        Red, green and blue.

    Examples
    --------
    >>> colours_of([0.0, 0.5, 2.0, np.nan], 0.0, 1.0).tolist()
    [[252, 253, 191], [181, 54, 122], [0, 0, 4], [153, 153, 153]]
    """
    numbers = np.asarray(values, dtype=np.float64)
    unknown = np.isnan(numbers)
    inside = np.clip(np.where(unknown, lowest, numbers), lowest, highest)
    # Half widths, because highest - lowest can overflow.
    width = highest / 2 - lowest / 2
    position = (inside / 2 - lowest / 2) / width if width > 0 else np.full(len(inside), 0.5)
    grid = np.linspace(0.0, 1.0, len(stops))
    colours = np.stack([np.interp(position, grid, stops[:, channel]) for channel in range(3)], axis=1)
    colours[unknown] = GREY
    result: NDArray[np.uint8] = np.rint(255 * colours).astype(np.uint8)
    return result
