"""Points that estimators are given: checked by scikit-learn where it wants its own words, else in ours."""

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from manifoldrf._validation import FloatArray, check_points, column_names, refuse_text


def estimator_points(estimator: Any, X: Any, name: str = "X", **options: Any) -> tuple[FloatArray, Any]:
    """Points as float64, and the float type that they came in.

    Parameters
    ----------
    estimator : estimator
        Its number of coordinates and their names are noted or, with ``reset=False``, compared.
    X : array-like of shape (n, d)
    name : str
        What the user calls them.
    **options
        Of scikit-learn's ``validate_data``.
    """
    refuse_text(X, name)  # scikit-learn reads numbers from texts
    found = validate_data(estimator, X, dtype=(np.float64, np.float32), ensure_all_finite=False, **options)
    return check_points(found, name, names=column_names(X)), found.dtype
