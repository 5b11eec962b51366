"""Bad input is refused by an error that names the argument and the rule; unusual input works."""

import numpy as np
import pandas as pd
import pytest
from oracles import hull_mesh
from scipy import sparse

import manifoldrf as mrf

POINTS = mrf.Sphere().grid(60)
VALUES = POINTS[:, 2]
KERNEL = mrf.HeatKernel(0.3)
AFFINITY = mrf.knn_graph(POINTS).affinity


def fit(X):
    return mrf.ManifoldRandomFeatures(KERNEL, random_state=0, n_jobs=1).fit(X)


def spoiled(value, dtype=np.float64):
    points = POINTS.astype(dtype)
    points[3, 1] = value
    return points


MODEL = fit(POINTS)
# Functions of points, with the name of the argument.
TAKE_POINTS = {
    "fit": ("X", fit),
    "transform": ("X", MODEL.transform),
    "kernel_matrix": ("Z", MODEL.kernel_matrix),
    "knn_graph": ("points", mrf.knn_graph),
    "heat_graph": ("points", lambda X: mrf.heat_graph(X, 0.3)),
    "thin": ("points", lambda X: mrf.thin(X, 5)),
    "ridge": ("X", lambda X: mrf.ManifoldRidge(mrf.ManifoldRandomFeatures(KERNEL)).fit(X, VALUES)),
    "interpolator": ("space", lambda X: mrf.FieldInterpolator("kernel").fit(X, VALUES)),
    "mesh": ("vertices", lambda X: mrf.TriangleMesh(X, [[0, 1, 2]])),
}
BAD_POINTS = {
    "nan": (spoiled(np.nan), "finite"),
    "inf": (spoiled(np.inf), "finite"),
    "huge": (spoiled(1e300), "below"),
    "text": (spoiled("a", object), ""),
    "complex": (POINTS + 1j, ""),
    "none": (None, ""),
    "a column": (POINTS[:, 0], ""),
    "three axes": (POINTS[None], ""),
    "no points": (POINTS[:0], ""),
}


@pytest.mark.parametrize("case", BAD_POINTS)
@pytest.mark.parametrize("function", TAKE_POINTS)
def test_bad_points_are_refused_by_name(function, case):
    argument, call = TAKE_POINTS[function]
    points, rule = BAD_POINTS[case]
    with pytest.raises((TypeError, ValueError)) as error:
        call(points)
    # scikit-learn's checks of estimators require some texts of its own.
    theirs = ("Found array", "Expected 2D", "Complex data", "float()", "Found input", "dtype", "could not convert")
    text = str(error.value)
    assert (f"`{argument}`" in text and rule in text) or any(words in text for words in theirs)


def features(**options):
    return mrf.ManifoldRandomFeatures(**({"kernel": KERNEL, "random_state": 0} | options)).fit(POINTS)


# The argument that an error must name, and a call.
REFUSED = {
    "time 0": ("t", lambda: mrf.HeatKernel(0.0)),
    "negative time": ("t", lambda: mrf.heat_graph(POINTS, -1.0)),
    "time of NaN": ("t", lambda: mrf.HeatKernel(np.nan)),
    "time as text": ("t", lambda: mrf.HeatKernel("1")),
    "time as a flag": ("t", lambda: mrf.HeatKernel(True)),
    "two times": ("t", lambda: mrf.HeatKernel([0.1, 0.2])),
    "negative tau": ("tau", lambda: mrf.DiffusionKernel(-1.0)),
    "nu of 0": ("nu", lambda: mrf.MaternKernel(nu=0.0, lengthscale=1.0)),
    "kernel of another kind": ("kernel", lambda: features(kernel="heat")),
    "no features": ("n_features", lambda: features(n_features=0)),
    "half a feature": ("n_features", lambda: features(n_features=1.5)),
    "features as a word": ("n_features", lambda: features(n_features="many")),
    "unknown anchors": ("anchors", lambda: features(anchors="nearest")),
    "unknown teacher": ("teacher", lambda: features(teacher="oracle")),
    "unknown field": ("field", lambda: features(field="magnetic")),
    "seed as text": ("random_state", lambda: features(random_state="zero")),
    "no jobs": ("n_jobs", lambda: features(n_jobs=0)),
    "too many neighbours": ("n_neighbors", lambda: mrf.knn_graph(POINTS, n_neighbors=60)),
    "bandwidth of 0": ("bandwidth", lambda: mrf.knn_graph(POINTS, bandwidth=0.0)),
    "more points than there are": ("n", lambda: mrf.thin(POINTS, 61)),
    "negative affinity": ("affinity", lambda: mrf.Graph.from_affinity(-AFFINITY)),
    "affinity without symmetry": ("affinity", lambda: mrf.Graph.from_affinity(sparse.triu(AFFINITY))),
    "affinity that is not square": ("affinity", lambda: mrf.Graph.from_affinity(AFFINITY[:5])),
    "faces beyond the vertices": ("faces", lambda: mrf.TriangleMesh(POINTS, [[0, 1, 60]])),
    "faces of floats": ("faces", lambda: mrf.TriangleMesh(POINTS, [[0.5, 1.0, 2.0]])),
    "radius of 0": ("radius", lambda: mrf.Sphere(radius=0.0)),
    "points off the sphere": ("X", lambda: mrf.Sphere().distance(2 * POINTS, POINTS)),
    "nodes that are not there": ("nodes", lambda: mrf.compute_signatures(MODEL.graph_, KERNEL, [60])),
    "alpha below 0": ("alpha", lambda: mrf.ManifoldRidge(alpha=-1.0).fit(POINTS, VALUES)),
    "an unknown method": ("method", lambda: mrf.FieldInterpolator("magic").fit(POINTS, VALUES)),
    "fewer values than points": ("field", lambda: mrf.smooth(POINTS, VALUES[:5], t=0.3)),
    "another shape": ("K", lambda: mrf.relative_error(POINTS, POINTS[:5])),
    "a reference of zeros": ("reference", lambda: mrf.relative_error(POINTS, 0 * POINTS)),
    "points at one position": ("X", lambda: fit(np.ones((60, 3)))),
    "fewer columns than at the fit": ("", lambda: MODEL.transform(POINTS[:, :2])),
    "a file that is not there": ("path", lambda: mrf.load("no such file")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_by_name(case):
    argument, call = REFUSED[case]
    with pytest.raises((TypeError, ValueError, OSError)) as error:
        call()
    assert argument == "" or f"`{argument}`" in str(error.value)


# Inputs that look unusual and mean the same points.
SAME = {
    "a list": POINTS.tolist(),
    "a frame": pd.DataFrame(POINTS),
    "another memory order": np.asfortranarray(POINTS),
    "every other row of more": np.repeat(POINTS, 2, axis=0)[::2],
    "other bytes": POINTS.astype(">f8"),
    "not writeable": np.frombuffer(POINTS.tobytes()).reshape(-1, 3),
}


@pytest.mark.parametrize("case", SAME)
def test_unusual_forms_of_the_same_points_give_the_same_bits(case):
    np.testing.assert_array_equal(fit(SAME[case]).transform(SAME[case]), MODEL.transform(POINTS))


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_the_unit_of_length_does_not_matter(unit):
    """Kernels are per unit of volume; t has the unit of a squared length."""
    scaled = mrf.ManifoldRandomFeatures(mrf.HeatKernel(0.3 * unit**2), random_state=0).fit(unit * POINTS)
    np.testing.assert_allclose(scaled.transform(unit * POINTS), MODEL.transform(POINTS), rtol=1e-6, atol=1e-9)


def test_copies_points_far_away_and_columns_of_zeros_work():
    for points in (
        np.concatenate([POINTS, POINTS[:20]]),
        POINTS + 1e6,
        np.column_stack([POINTS, np.zeros((60, 4))]),
        POINTS.astype(np.float32),
    ):
        assert np.isfinite(fit(points).transform(points)).all()
    assert np.isfinite(fit(hull_mesh(POINTS)).transform(POINTS)).all()
