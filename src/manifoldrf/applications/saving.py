"""Save fitted regressors and interpolators to one file, and make them again from its state."""

import sys
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manifoldrf._codec import Record, check_types, save_state
from manifoldrf._files import html_table
from manifoldrf._validation import check_integer, reject
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.state import plain_params, state_of, text_table
from manifoldrf.geometry.graphs import Graph


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose fitted attributes are values that a file can hold, or features.

    Subclasses name the attributes with their types in ``_stored`` and check in ``_check_loaded`` that they belong
    together.
    """

    _stored: ClassVar[dict[str, Any]]

    def save(self, path: Any) -> Path:
        """Write the fitted model to one file; :func:`manifoldrf.load` reads it, on any machine.

        The file holds arrays and plain text, no code, and the version of manifoldrf that wrote it. Predictions of a
        loaded model have the same bits. Parameters that are not needed after the fit are not stored: the space, a
        graph, functions, unfitted features and ``n_jobs``.
        """
        check_is_fitted(self, next(iter(self._stored)))
        params = plain_params(self, without=("space", "n_jobs"))
        state = {
            "version": sys.modules["manifoldrf"].__version__,
            "params": {name: value for name, value in params.items() if not isinstance(value, Graph)},
            "fitted": {name: _stored_value(name, getattr(self, name)) for name in self._stored},
            "feature_names_in": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }
        return save_state(path, type(self).__name__, state)

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        """The estimator of a file; raises if the state is not one that :meth:`save` writes."""
        fitted, names = state["fitted"], state["feature_names_in"]
        if set(fitted) != set(cls._stored) or not isinstance(state["version"], str):
            raise TypeError("it lacks fitted attributes")
        check_types(cls._stored, fitted)
        model: Any = cls(**state["params"])
        for name, value in fitted.items():
            setattr(model, name, value)
        if names:
            n = check_integer(getattr(model, "n_features_in_", None), "n_features_in_", 1)
            if len(names) != n or not all(isinstance(name, str) for name in names):
                reject("feature_names_in", f"{n} texts", str(names)[:80])
            model.feature_names_in_ = np.array(names, dtype=object)
        model._check_loaded()
        model._version = state["version"]
        return model  # type: ignore[no-any-return]

    def summary(self) -> str:
        """What was fitted, as a text of a few lines."""
        check_is_fitted(self, next(iter(self._stored)))
        return text_table(self._facts())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Text of the parameters; of an array only its corners."""
        with np.printoptions(threshold=16, edgeitems=1, precision=4):
            return str(super().__repr__(N_CHAR_MAX))

    def _html_repr(self) -> str:
        """What notebooks show: a table of a fit, computing nothing and warning of nothing."""
        if not hasattr(self, next(iter(self._stored))):
            return str(super()._html_repr())
        return html_table(f"{type(self).__name__}, fitted", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """What was fitted, as names and texts."""
        raise NotImplementedError

    def _check_loaded(self) -> None:
        """Raise unless the attributes from a file belong together."""
        raise NotImplementedError


def _stored_value(name: str, value: Any) -> Any:
    """An attribute as a file holds it."""
    if isinstance(value, ManifoldRandomFeatures):
        return Record("ManifoldRandomFeatures", {"state": state_of(value)})
    if name == "features_" and value is not None:
        rule = "None or ManifoldRandomFeatures in a model that is saved; others can be pickled"
        reject("features", rule, type(value).__name__, TypeError)
    return value


def read_features(*, state: dict[str, Any]) -> ManifoldRandomFeatures:
    """Features as part of another file."""
    return ManifoldRandomFeatures._from_state(state)
