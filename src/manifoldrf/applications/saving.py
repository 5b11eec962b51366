"""Save fitted regressors and interpolators to one file, and restore them from its state."""

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manifoldrf._codec import check_types, save_value, stored
from manifoldrf._files import html_table
from manifoldrf._validation import check_integer, reject
from manifoldrf.features.manifold_features import plain_params, restore_names, text_table
from manifoldrf.geometry.graphs import Graph


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose fitted attributes are values that a file can hold.

    Subclasses name the attributes with their types in ``_stored`` and check in ``_check_loaded`` that they belong
    together.
    """

    _stored: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_stored" in vars(cls):
            stored(cls)

    def save(self, path: Any) -> Path:
        """Write the fitted model to one file; :func:`manifoldrf.load` reads it, on any machine.

        The file holds arrays and plain text, no code. Predictions of a loaded model have the same bits. Parameters
        that are not needed after the fit are not stored: the space, a graph, functions, unfitted features and
        ``n_jobs``. :class:`GraphRandomFeatures` and features of other libraries
        cannot be stored; pickle such a model.
        """
        check_is_fitted(self, next(iter(self._stored)))
        return save_value(path, self)

    def _state(self) -> dict[str, Any]:
        """The state that a file holds."""
        params = plain_params(self, without=("space", "n_jobs"))
        return {
            "params": {name: value for name, value in params.items() if not isinstance(value, Graph)},
            "fitted": {name: getattr(self, name) for name in self._stored},
            "feature_names_in": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        """The estimator in a file; raises if :meth:`save` does not write such a state."""
        fitted, names = state["fitted"], state["feature_names_in"]
        if set(fitted) != set(cls._stored):
            raise TypeError("it lacks fitted attributes")
        check_types(cls._stored, fitted)
        if getattr(fitted.get("features_"), "asymmetric_", False):
            reject("features_", "features with one side", "two sides")
        model: Any = cls(**state["params"])
        vars(model).update(fitted)
        if names:
            restore_names(model, names, check_integer(getattr(model, "n_features_in_", None), "n_features_in_", 1))
        model._check_loaded()
        return model  # type: ignore[no-any-return]

    def summary(self) -> str:
        """What was fitted, as a text of a few lines."""
        check_is_fitted(self, next(iter(self._stored)))
        return text_table(self._facts())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Text of the parameters, with arrays abbreviated."""
        with np.printoptions(threshold=16, edgeitems=1, precision=4):
            return str(super().__repr__(N_CHAR_MAX))

    def _html_repr(self) -> str:
        """The table of a fit that notebooks show; it computes nothing and does not warn."""
        if not hasattr(self, next(iter(self._stored))):
            return str(super()._html_repr())
        return html_table(f"{type(self).__name__}, fitted", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """What was fitted, as names and texts."""
        raise NotImplementedError

    def _check_loaded(self) -> None:
        """Raise unless the attributes from a file belong together."""
        raise NotImplementedError
