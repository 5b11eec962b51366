"""The paper's first table at a small size: every figure against its definition."""

import dataclasses

import numpy as np
import pytest

from manifoldrf import DiffusionKernel, HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error
from reproduction import surfaces
from reproduction.surface_graphs import SPHERE_TIME, SURFACES, reference_kernel
from reproduction.surfaces import PUBLISHED, SIZES, _Key, _Surface, run

TINY = dataclasses.replace(
    SIZES["smoke"],
    n_nodes=500,
    n_starts=120,
    n_walks=200,
    epochs=4,
    n_queries=60,
    n_features=120,
    t=0.16,
    repeats=2,
)
METHODS = [
    "paper, published",
    "paper's recipe",
    "paper's network, our 120 anchors",
    "default, same kernel",
    "default, heat kernel, 120 features",
    "default, heat kernel, all nodes",
]


@pytest.fixture(scope="module")
def record():
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surfaces, "_first_run", lambda config: None)  # no time is tested
        found = run(TINY, lambda what, done, total: seen.append((done, total)))
    shares = [done / total for done, total in seen]
    assert shares == sorted(shares)  # a bar never goes back
    assert shares[-1] == 1
    return found


def rows_of(record, method):
    return {row["surface"]: row for row in record.tables["surfaces"] if row["method"] == method}


@pytest.mark.slow
def test_every_surface_has_every_method_the_published_one_first(record):
    rows = [(row["surface"], row["method"]) for row in record.tables["surfaces"]]
    wanted = [(name, method) for name in SURFACES for method in METHODS]
    assert rows == [*wanted, ("mobius", "paper's recipe, 12 neighbours")]
    for name, row in rows_of(record, METHODS[0]).items():
        assert {key: row[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_the_heat_kernel_is_right_at_new_points_in_absolute_units(record):
    for name, row in rows_of(record, METHODS[-1]).items():
        assert row["features"] == pytest.approx(500, rel=0.1), name
        assert row["new_points_plain"] < 0.03  # .001 to .003 with 4000 nodes; the error falls like 1/N
        assert row["nodes_plain"] < 0.03


def test_figures_agree_with_a_direct_computation(record):
    """The sphere's row, from features made here and the formula of the error."""
    sphere = Sphere()
    queries = sphere.sample(60, seed=0)
    graph = HeatGraph(n_nodes=500)
    features = ManifoldRandomFeatures(HeatKernel(0.16), "all", normalize=False, graph=graph, random_state=0)
    phi = features.fit(sphere).transform(queries)
    exact = sphere.heat_kernel(queries, queries, 0.16)
    error = np.linalg.norm(phi @ phi.T - exact) / np.linalg.norm(exact)
    assert rows_of(record, METHODS[-1])["sphere"]["new_points_plain"] == pytest.approx(error, rel=1e-6)


def test_the_reference_of_the_sphere_is_analytic_and_that_of_others_has_converged():
    sphere, torus = Sphere(), SURFACES["torus"][0]
    places = sphere.sample(30, seed=1)
    np.testing.assert_array_equal(
        reference_kernel(sphere, places, 0.1, 500, 4), sphere.heat_kernel(places, places, 0.1)
    )
    places = torus.sample(40, seed=1)
    coarse, fine = (reference_kernel(torus, places, 0.1, n, 4) for n in (400, 800))
    assert relative_error(coarse, fine) < 0.02  # halves when the nodes double


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)


# ------------------------------------------------------------------------------------------ the paper's recipe
def test_the_recipe_is_fitted_on_the_graph_of_the_table():
    surface = _Surface(_Key("mobius", 24, 0), TINY, lambda what, share=0.0: None)
    surface.fit_network()
    assert (surface.network.graph_.affinity != surface.graph.affinity).nnz == 0
    assert len(surface.nodes) == surface.graph.n_nodes - TINY.n_starts


def test_the_recipe_is_compared_as_in_the_paper(record):
    """All nodes, aligned; on the sphere against the analytic kernel at the time of the paper's fingerprint."""
    surface = _Surface(_Key("sphere", 8, 0), TINY, lambda what, share=0.0: None)
    surface.fit_network()
    found = surface.network.kernel_matrix(surface.points)
    analytic = Sphere().heat_kernel(surface.points, surface.points, 8 * SPHERE_TIME)  # as many steps, 500 nodes
    error = np.linalg.norm(found * np.linalg.norm(analytic) / np.linalg.norm(found) - analytic)
    row = next(row for row in record.tables["recipe"] if row["surface"] == "sphere")
    assert row["kernel"] == pytest.approx(error / np.linalg.norm(analytic), rel=1e-6)
    exact = DiffusionKernel(20.0).matrix(surface.graph)
    assert row["nodes"] == pytest.approx(relative_error(found, exact, alignment="frobenius"), rel=1e-6)
    main = rows_of(record, "paper's recipe")["sphere"]
    info = surface.network.training_
    assert [main[name] for name in ("r2", "re", "mse")] == pytest.approx(
        [info.validation_r2, info.validation_re, info.validation_mse]
    )


# -------------------------------------------------------------------------------------------------------- parts
ONE = dataclasses.replace(TINY, epochs=2, strip_neighbors=(12,))


@pytest.fixture
def quick(monkeypatch):
    """Only the strip, only the recipe; returns the list of trainings."""
    trained = []
    fit = _Surface.fit_network

    def counted(surface):
        trained.append(surface.key)
        fit(surface)

    def keys(config):
        return [_Key("mobius", 12, seed, only_recipe=True) for seed in range(config.strip_seeds)]

    monkeypatch.setattr(surfaces, "_first_run", lambda config: None)
    monkeypatch.setattr(surfaces, "_part_keys", keys)
    monkeypatch.setattr(_Surface, "fit_network", counted)
    return trained


def test_finished_parts_are_used_again_and_only_new_ones_are_measured(tmp_path, quick):
    first = run(ONE, parts=tmp_path / "parts")
    assert [key.seed for key in quick] == [0]
    more = run(dataclasses.replace(ONE, strip_seeds=2), parts=tmp_path / "parts")
    assert [key.seed for key in quick] == [0, 1]
    assert more.tables["recipe"][0] == first.tables["recipe"][0]
    assert more.seconds > first.seconds
    commit = more.environment["commit"]
    assert more.environment["commits of its parts"] == f"{commit} (2 of 2)"
    np.testing.assert_array_equal(
        more.arrays["training_mobius_k12_seed0"], first.arrays["training_mobius_k12_seed0"]
    )


def test_a_training_that_was_finished_before_an_interruption_is_not_repeated(tmp_path, quick, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_Surface, "recipe_tables", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(ONE, parts=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]  # no half-written part
    again = run(ONE, parts=tmp_path)
    (row,), (whole,) = again.tables["recipe"], run(ONE).tables["recipe"]
    changing = ("training_s", "part_s")
    assert {k: v for k, v in row.items() if k not in changing} == {
        k: v for k, v in whole.items() if k not in changing
    }


def _interrupt(surface):
    raise KeyboardInterrupt
