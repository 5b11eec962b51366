"""Regressors and interpolators in files: the same bits, no code, and reasons for refusals."""

import copy
import dataclasses
import functools
import json

import numpy as np
import polars
import pytest
from command_line import invoke
from oracles import sphere_mesh
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import RBFSampler

from manifoldrf import (
    FieldInterpolator,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRidge,
    ManifoldWarning,
    ModelFileError,
    Sphere,
    load,
)

POINTS = Sphere().sample(200, seed=0)
DATA, NEW = POINTS[:60], POINTS[60:]
VALUES = np.column_stack([DATA[:, 2], DATA[:, 0] * DATA[:, 1]])
MESH = sphere_mesh(300)
FIELD = np.where(np.arange(300)[:, None] % 3 == 0, MESH.vertices[:, :2], np.nan)


def _ridge(y):
    return ManifoldRidge(space=POINTS, random_state=0).fit(DATA, y)


def _process(y, **options):
    return ManifoldGaussianProcess(HeatKernel(0.2), space=POINTS, n_features=80, random_state=0, **options).fit(
        DATA, y
    )


def _few():
    with pytest.warns(ManifoldWarning, match="too few to show the space"):
        return ManifoldGaussianProcess(random_state=0).fit(DATA, VALUES)


def _field(method, values=FIELD, **options):
    return FieldInterpolator(method, random_state=0, **options).fit(MESH, values)


MODELS = {
    "ridge": lambda: _ridge(VALUES),
    "ridge of a vector": lambda: _ridge(VALUES[:, 0]),
    "average": lambda: _process(VALUES),
    "average of a vector": lambda: _process(VALUES[:, 0]),
    "process": lambda: _process(VALUES, optimize=False, variance=1.0, noise_variance=0.01),
    "few": lambda: _few(),
    "kernel": lambda: _field("kernel", tau=4.0),
    "gp": lambda: _field("gp", FIELD[:, 0], tau=4.0, noise_variance=0.01),
    "biharmonic": lambda: _field("auto", normalize=True),
}


@functools.cache
def fitted(name):
    return MODELS[name]()


@pytest.fixture(params=MODELS)
def model(request):
    return copy.copy(fitted(request.param))


def results(model):
    """Everything that a model computes."""
    if isinstance(model, FieldInterpolator):
        return [model.predict(), model.predict(NEW), model.refit(FIELD[::-1] - 1).predict()]
    if isinstance(model, ManifoldRidge):
        return [model.predict(NEW)]
    drawn = (model.sample_posterior(NEW, 2, random_state=0),)
    return [*model.predict(NEW, return_std=True), model.predict(NEW[:5], return_cov=True)[1], *drawn]


def test_a_loaded_model_computes_the_same_bits(model, tmp_path):
    path = model.save(tmp_path / "model.safetensors")
    again = load(path)
    assert type(again) is type(model)
    for found, expected in zip(results(again), results(model), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_command_line_names_the_kind_of_a_file(tmp_path):
    path = fitted("ridge").save(tmp_path / "model.safetensors")
    assert json.loads(invoke("info", path, "--json").stdout)["kind"] == "ManifoldRidge"


def test_names_of_columns_are_kept(tmp_path):
    frame = polars.DataFrame(DATA, schema=["x", "y", "z"])
    again = load(
        ManifoldRidge(space=POINTS, random_state=0).fit(frame, VALUES).save(tmp_path / "model.safetensors")
    )
    assert again.feature_names_in_.tolist() == ["x", "y", "z"]


def test_models_that_cannot_be_saved_say_why_and_leave_no_file(tmp_path):
    with pytest.raises(NotFittedError):
        ManifoldRidge().save(tmp_path / "model.safetensors")
    other = ManifoldRidge(RBFSampler(n_components=20), space=POINTS).fit(DATA, VALUES)
    with pytest.raises(TypeError, match="features_"):
        other.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


BROKEN = [
    ("ridge", "coef_", lambda coef: coef[:-1], "`coef_` must be of shape"),
    ("ridge", "intercept_", lambda _: "zero", "`intercept_` must be of type"),
    ("ridge", "n_features_in_", lambda _: 4, "`n_features_in_` must be an integer in"),
    ("average", "variance_", lambda found: found[:1], "`variance_` must be of shape"),
    ("kernel", "_known", lambda known: dataclasses.replace(known, mask=known.mask[1:]), "`mask` must be of shape"),
    ("kernel", "method_", lambda _: "magic", "`method_` must be one of"),
]


@pytest.mark.parametrize(("name", "attribute", "change", "text"), BROKEN)
def test_files_whose_parts_do_not_fit_together_are_refused(name, attribute, change, text, tmp_path):
    broken = copy.copy(fitted(name))
    setattr(broken, attribute, change(getattr(broken, attribute)))
    path = broken.save(tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert text in str(caught.value)
