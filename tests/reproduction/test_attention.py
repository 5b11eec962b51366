"""Masked tokens: every method against its formula written out, and the tables against the errors they sum up."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg

from reproduction import attention as methods
from reproduction.attention import METHODS, NYSTROM, OWN, PAPER, RBF, SIZES, Config, draw_trial, run
from reproduction.token_surfaces import Tokens

# So many tokens that no neighbours are on different sheets of the accordion.
SMALL = Config(
    surfaces=("mobius", "folded"),
    n_tokens=400,
    n_tokens_touching=1500,
    masked=0.7,
    masked_touching=0.92,
    n_seeds=2,
    sources=(5, 8),
    n_features=48,
    n_learned=0,
)
AMBIENT = (
    *("linear RBF", "linear RBF cells", "linear RBF farthest", "linear RBF uniform"),
    *("RFF", "ORF", "PRF", "PORF"),
)
TAU, SIGMA = 16.0, 0.22  # of both grids


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


@pytest.fixture(scope="module")
def trial():
    return draw_trial("mobius", SMALL, 0)


@pytest.fixture(scope="module")
def task(trial):
    return trial.task


@pytest.fixture(scope="module")
def heat(task):
    """exp(-tau L) as a function of tau, from all eigenpairs."""
    values, vectors = linalg.eigh(task.graph.operator.toarray())
    return lambda tau: (vectors * np.exp(tau * (values - 1.0))) @ vectors.T


def _at(candidates, parameter):
    return next(weights for found, weights in candidates if found == parameter)


def _attend(kernel, task, share):
    """sum_j k(i, j) s_j y_j / sum_j k(i, j) s_j over the visible tokens, from the whole kernel."""
    weights = kernel[np.ix_(task.masked, task.visible)] * share[task.visible]
    return (weights @ task.known) / weights.sum(axis=1, keepdims=True)


def _filled(task, weights):
    return weights.reconstruct(task.known, np.arange(len(task.visible)), task.masked)


def _cells(distances):
    """Number of tokens nearest to each anchor, for distances (m, n)."""
    return np.bincount(distances.argmin(axis=0), minlength=len(distances))


# ------------------------------------------------------------------------------------- methods as formulas
def test_features_of_the_surface_are_columns_of_the_root_of_the_heat_kernel(task, heat):
    anchors = task.medoids.nodes
    cells = _cells(task.graph.shortest_paths(anchors))
    columns = heat(TAU / 2)[:, anchors]
    expected = _attend((columns * cells) @ columns.T, task, np.sqrt(task.graph.degrees))
    # Chebyshev terms left out are below 1e-10 of entries of 1e-4 and more.
    np.testing.assert_allclose(_filled(task, _at(methods.mrf_cells(task), TAU)), expected, rtol=1e-5, atol=1e-6)


def test_nystrom_is_exact_through_its_anchors(task, heat):
    anchors, kernel = task.medoids.nodes, heat(TAU)
    low_rank = kernel[:, anchors] @ linalg.solve(kernel[np.ix_(anchors, anchors)], kernel[anchors])
    expected = _attend(low_rank, task, np.sqrt(task.graph.degrees))
    np.testing.assert_allclose(_filled(task, _at(methods.geodesic_nystrom(task), TAU)), expected, atol=1e-4)


def test_a_diffusion_map_keeps_the_largest_eigenvalues(task):
    values, vectors = linalg.eigh(task.graph.operator.toarray())
    values, vectors = values[-48:], vectors[:, -48:]
    kernel = (vectors * np.exp(TAU * (values - 1.0))) @ vectors.T
    expected = _attend(kernel, task, np.sqrt(task.graph.degrees))
    np.testing.assert_allclose(_filled(task, _at(methods.diffusion_map(task), TAU)), expected, atol=1e-6)


def test_solves_hold_the_visible_values_and_are_harmonic_elsewhere(task):
    laplacian = np.diag(task.graph.degrees) - task.graph.affinity.toarray()
    for name, matrix in (("harmonic", laplacian), ("biharmonic", laplacian @ laplacian)):
        whole = np.zeros((400, 2))
        whole[task.visible], whole[task.masked] = task.known, METHODS[name].fill(task).values
        residual = matrix[task.masked] @ whole
        assert np.abs(residual).max() < 1e-9 * np.abs(matrix).max()


@pytest.mark.parametrize("name", METHODS)
def test_masked_values_never_influence_predictions(monkeypatch, trial, name):
    read, masked = Tokens.read, trial.task.masked

    def spoilt(self, density):
        values = read(self, density)
        values[masked] = np.random.default_rng(0).standard_normal(values[masked].shape) * 1e6
        return values

    monkeypatch.setattr(Tokens, "read", spoilt)
    other = draw_trial("mobius", SMALL, 0)
    assert np.abs(other.hidden).max() > 1e5
    np.testing.assert_array_equal(METHODS[name].fill(other.task).values, METHODS[name].fill(trial.task).values)


@pytest.mark.parametrize("name", [OWN, NYSTROM, RBF])
def test_every_signal_has_the_parameter_with_the_least_error_at_visible_tokens(task, name):
    candidates = {OWN: methods.mrf, NYSTROM: methods.geodesic_nystrom, RBF: methods.exact_rbf}[name]
    errors, fills = {}, {}
    for parameter, weights in candidates(task):
        found = np.zeros_like(task.known)
        for out in range(5):
            rest, left_out = task.folds != out, task.folds == out
            right = weights.right.toarray() if name == RBF else weights.right
            keys = weights.share[rest, None] * right[rest]
            with np.errstate(divide="ignore", invalid="ignore"):
                if name == OWN:  # balanced by the tokens that are left, not by all visible ones
                    keys = np.nan_to_num(keys / keys.sum(axis=0))
                part = weights.left[task.visible[left_out]] @ keys.T
                mass = part.sum(axis=1, keepdims=True)
                found[left_out] = np.where(mass > 0, part @ task.known[rest] / mass, task.known[rest].mean(axis=0))
        errors[parameter] = ((found - task.known) ** 2).sum(axis=0)
        fills[parameter] = _filled(task, weights)
    best = np.array(list(errors))[np.argmin(list(errors.values()), axis=0)]
    filled = METHODS[name].fill(task)
    np.testing.assert_array_equal(filled.parameters, best)
    for signal, parameter in enumerate(best):
        np.testing.assert_array_equal(filled.values[:, signal], fills[parameter][:, signal])


def test_an_error_is_what_its_definition_says(record):
    trial = draw_trial("folded", SMALL, 1)
    gap = METHODS[OWN].fill(trial.task).values - trial.hidden
    np.testing.assert_allclose(record.arrays["folded_mse"][0, 1], (gap**2).mean(axis=0), rtol=1e-12)
    relative = np.linalg.norm(gap, axis=0) / np.linalg.norm(trial.hidden, axis=0)
    np.testing.assert_allclose(record.arrays["folded_l2"][0, 1], relative, rtol=1e-12)


def test_few_features_of_the_surface_beat_the_space_around_where_sheets_nearly_touch(record):
    verdict = next(row for row in record.tables["verdict"] if row["surface"] == "folded")
    errors = {row["method"]: row["mse"] for row in record.tables["attention"] if row["surface"] == "folded"}
    best = min(AMBIENT, key=errors.get)
    assert verdict["ambient"] == best
    assert verdict["over_ambient"] == pytest.approx(errors[best] / errors[OWN])
    assert verdict["over_ambient"] > 1.5
    assert verdict["over_rbf"] == pytest.approx(errors[RBF] / errors[OWN])
    assert verdict["geometry"].startswith("helps;")


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)


def test_learned_features_are_a_row_of_the_strip(tmp_path):
    learned = {"n_learned": 2, "n_walks": 20, "epochs": 1}
    tiny = dataclasses.replace(SMALL, surfaces=("mobius",), n_seeds=1, **learned)  # a seed more than there is
    found = run(tiny, parts=tmp_path)
    told = []
    again = run(tiny, lambda what, done, total: told.append(what), parts=tmp_path)
    assert (again.tables, told) == (found.tables, ["done"])  # finished parts are not measured again
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    run(dataclasses.replace(tiny, epochs=2), lambda what, done, total: told.append(what), parts=tmp_path)
    assert told == ["done", f"mobius, seed 0: {methods.LEARNED}", "done"]  # only this depends on the epochs
    (row,) = [row for row in found.tables["attention"] if row["method"] == methods.LEARNED]
    mse, own = found.arrays["mobius_learned_mse"], found.arrays["mobius_mse"][list(METHODS).index("MRF")]
    assert mse.shape == (1, len(SMALL.sources))
    assert row["mse"] == pytest.approx(np.exp(np.log(mse).mean()))
    assert row["ratio"] == pytest.approx(np.exp(np.log(mse / own).mean()))
    assert row["l2"] == pytest.approx(np.median(found.arrays["mobius_learned_l2"]))
    assert row["published_mse"] == pytest.approx(np.mean(PAPER[OWN][0]))  # MRF of the paper are learned
    (library,) = [row for row in found.tables["attention"] if row["method"] == OWN]
    assert library["published_mse"] is None
    assert SIZES["paper"].recipe.epochs == 1000
