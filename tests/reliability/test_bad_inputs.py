"""Bad input is refused by an error that names the argument and the rule; unusual input works."""

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import hull_mesh
from scipy import sparse

import manifoldrf as mrf
from manifoldrf.geometry import thin
from manifoldrf.kernels import RandomWalkKernel, SeriesKernel
from manifoldrf.torch import linear_attention

POINTS = mrf.Sphere().grid(60)
VALUES = POINTS[:, 2]
KERNEL = mrf.HeatKernel(0.3)
STEPS = mrf.DiffusionKernel(3.0)
GRAPH = mrf.knn_graph(POINTS)
AFFINITY = GRAPH.affinity
MESH = hull_mesh(POINTS)
ONES = torch.ones(4, 2, dtype=torch.float64)


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
    "thin": ("points", lambda X: thin(X, 5)),
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


@pytest.mark.parametrize(
    ("function", "case"), [("fit", case) for case in BAD_POINTS] + [(name, "nan") for name in TAKE_POINTS]
)
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


def interpolator(values=VALUES, known=None, **options):
    return mrf.FieldInterpolator(**options).fit(MESH, values, known)


def smooth(field=VALUES, **options):
    return mrf.smooth(POINTS, field, **options)


def heat_graph(points=POINTS, t=0.3, **options):
    return mrf.heat_graph(points, t, **options)


def process(weights=None, **options):
    return mrf.ManifoldGaussianProcess(KERNEL, space=POINTS, **options).fit(POINTS, VALUES, sample_weight=weights)


def signatures(teacher, kernel=STEPS):
    return mrf.compute_signatures(GRAPH, kernel, [0], teacher=teacher)


def network(**options):
    return features(kernel=STEPS, graph=mrf.KnnGraph(), field=mrf.Network(n_starts=20, epochs=2, **options))


def attention(phi_q=ONES, phi_k=ONES, v=ONES, **options):
    return linear_attention(phi_q, phi_k, v, **options)


# The argument that an error names, a word of the rule, and a call.
REFUSED = [
    ("t", "number", lambda: mrf.HeatKernel(0.0)),
    ("t", "number", lambda: mrf.HeatKernel(True)),
    ("t", "number", lambda: mrf.HeatKernel([0.1, 0.2])),
    ("t", "at most", lambda: smooth(t=1e9)),
    ("t", "at least", lambda: mrf.heat_graph(mrf.Sphere().sample(300, seed=0), 1e-9)),
    ("a", "number", lambda: RandomWalkKernel(1.9, 2)),  # not positive definite
    ("nu", "", lambda: mrf.MaternKernel(50.0, 1e10)),  # overflows
    ("alpha", "finite", lambda: SeriesKernel([1e308, 1e308])),
    ("tol", "number", lambda: STEPS.apply(GRAPH, VALUES, tol=1e-15)),
    ("X", "60", lambda: STEPS.apply(GRAPH, np.ones(7))),
    ("rows", "integers", lambda: STEPS.matrix(GRAPH, rows=[60])),
    ("j", "", lambda: SeriesKernel.fit(GRAPH, [0, 1], [1], [1.0, 1.0])),
    ("kernel", "kernel", lambda: features(kernel="heat")),
    ("n_features", "", lambda: features(n_features=1.5)),
    ("n_features", "", lambda: features(anchors="all", n_features=5)),
    ("times", "", lambda: features(kernel=None, times=(2.0, 1.0))),
    ("times", "kernel", lambda: features(kernel=mrf.HeatKernel(9.0), times=(0.1, 0.2))),
    ("t", "range", lambda: features(kernel=None, times=(0.2, 0.4)).at(0.9)),
    ("anchors", "one of", lambda: features(anchors="nearest")),
    ("graph", "", lambda: features(graph=mrf.MeshGraph())),
    ("random_state", "", lambda: features(random_state="zero")),
    ("n_jobs", "-1", lambda: features(n_jobs=0)),
    ("n_steps", "", lambda: mrf.HeatGraph(n_steps=3)),
    ("n_steps", "", lambda: heat_graph(n_steps=3)),
    ("volumes", "", lambda: heat_graph(volumes=np.zeros(60))),
    ("dim", "", lambda: heat_graph(dim=1, metric=mrf.Sphere())),
    ("metric", "mesh", lambda: heat_graph(MESH, metric=mrf.Sphere())),
    ("noise_std", "", lambda: heat_graph(noise_std=-1.0)),
    ("n_neighbors", "59", lambda: mrf.knn_graph(POINTS, n_neighbors=60)),
    ("bandwidth", "number", lambda: mrf.knn_graph(POINTS, bandwidth="wide")),
    ("bandwidth", "coincide", lambda: mrf.knn_graph(np.ones((20, 3)))),
    ("density_correction", "finite", lambda: mrf.knn_graph(POINTS, density_correction=np.full(60, 1e-200))),
    ("points", "spread", lambda: mrf.knn_graph(1e-170 * POINTS)),
    ("metric", "manifold", lambda: mrf.knn_graph(POINTS, metric="cosine")),
    ("points", "|x| = radius", lambda: mrf.knn_graph(2 * POINTS, metric=mrf.Sphere())),
    ("side", "10^8", lambda: mrf.grid_graph(10, 9)),
    ("affinity", "nonnegative", lambda: mrf.Graph.from_affinity(-AFFINITY)),
    ("affinity", "symmetric", lambda: mrf.Graph.from_affinity(sparse.triu(AFFINITY))),
    ("affinity", "square", lambda: mrf.Graph.from_affinity(AFFINITY[:5])),
    ("sources", "integers", lambda: GRAPH.shortest_paths([60])),
    ("n", "60", lambda: thin(POINTS, 61)),
    ("faces", "integers", lambda: mrf.TriangleMesh(POINTS, [[0, 1, 60]])),
    ("faces", "integers", lambda: mrf.TriangleMesh(POINTS, [[0.5, 1.0, 2.0]])),
    ("seed", "", lambda: MESH.sample(3, seed=-1)),
    ("radius", "(0, 20]", lambda: mrf.HyperbolicSpace(radius=21.0)),
    ("half_width", "(0, 1)", lambda: mrf.MobiusStrip(half_width=1.0)),
    ("factors", "manifolds", lambda: mrf.ProductSpace(mrf.Sphere(), 3)),
    ("rotations", "not zero", lambda: mrf.Rotations().rows(np.zeros((1, 4)))),
    ("X", "|x| = radius", lambda: mrf.Sphere().check(2 * POINTS, "X")),
    ("X", "hypot", lambda: mrf.Torus().check([[1.0, 0, 0]], "X")),
    ("X", "half_width", lambda: mrf.MobiusStrip().check([[1.3, 0, 0]], "X")),
    ("X", "|x| < 1", lambda: mrf.HyperbolicSpace(dim=2).check([[0.6, 0.8]], "X")),
    ("p_halt", "at most", lambda: signatures(mrf.Walks(10, p_halt=0.9), mrf.DiffusionKernel(100.0))),
    ("coupling", "", lambda: mrf.Walks(coupling="repelling", transitions="weighted")),
    ("teacher", "function", lambda: signatures("guess")),
    ("learning_rate", "smaller", lambda: network(loss="l2", learning_rate=1e30)),
    ("checkpoint", "folder", lambda: network(checkpoint="no/such/folder")),
    ("alpha", "'cv'", lambda: mrf.ManifoldRidge(alpha="gcv").fit(POINTS, VALUES)),
    ("noise_variance", "number", lambda: process(noise_variance=0.0)),
    ("sample_weight", "[0, inf)", lambda: process(np.full(60, -1.0))),
    ("method", "one of", lambda: interpolator(method="spline")),
    ("known", "distinct", lambda: interpolator(known=np.ones(60, int))),
    ("values[known]", "finite", lambda: interpolator(np.full(60, np.inf), np.ones(60, bool))),
    ("fwhm", "`t`", lambda: smooth(fwhm=1.0, t=1.0)),
    ("field", "(60,)", lambda: smooth(VALUES[:5], t=0.3)),
    ("phi_q", "shape", lambda: attention(phi_q=ONES[:3], causal=True)),
    ("v", "float64", lambda: attention(v=ONES.float())),
    *(("weights", "mask == 0", lambda x=x: attention(weights=x * ONES[:, 0])) for x in (-1e9, -np.inf)),
    ("K", "shape", lambda: mrf.relative_error(POINTS, POINTS[:5])),
    ("reference", "not zero", lambda: mrf.relative_error(POINTS, 0 * POINTS)),
    ("path", "existing", lambda: mrf.load("no such file")),
]


@pytest.mark.parametrize(
    ("argument", "rule", "call"), REFUSED, ids=[f"{row[0]}-{k}" for k, row in enumerate(REFUSED)]
)
def test_bad_arguments_are_refused_by_argument_and_rule(argument, rule, call):
    with pytest.raises((TypeError, ValueError, OSError)) as error:
        call()
    assert f"`{argument}` must be" in str(error.value)
    assert rule in str(error.value)


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
