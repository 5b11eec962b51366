"""Masked tokens: every method against its formula written out, and the tables against the errors they sum up."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.spatial.distance import cdist

from manifoldrf.torch import linear_attention
from reproduction import attention as methods
from reproduction.attention import (
    HEAT,
    METHODS,
    NYSTROM,
    OWN,
    PAPER,
    PAPER_SOURCES,
    RBF,
    SIZES,
    SPARSE,
    Config,
    along_edges,
    draw_trial,
    run,
    targets,
)
from reproduction.record import Record
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
KERNELS = [name for name, how in METHODS.items() if how.group != methods.REFERENCE]
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


@pytest.mark.parametrize("variant", ["farthest", "uniform"])
def test_other_anchors_have_other_columns_and_weights(task, heat, variant):
    if variant == "farthest":
        found, anchors = _at(methods.mrf_farthest(task), TAU), methods.farthest_anchors(task.graph, 48)
        cells = _cells(cdist(task.points[anchors], task.points))
    else:
        found, anchors, cells = _at(methods.mrf_uniform(task), TAU), task.uniform, 1.0
    columns = heat(TAU / 2)[:, anchors]
    expected = _attend((columns * cells) @ columns.T, task, np.sqrt(task.graph.degrees))
    np.testing.assert_allclose(_filled(task, found), expected, rtol=1e-5, atol=1e-6)


def test_balanced_anchors_hold_the_means_around_them(task, heat):
    """Two steps: every anchor takes a mean of the visible values, every token a mean of the anchors."""
    share = np.sqrt(task.graph.degrees[task.visible])[:, None]
    columns = heat(TAU / 2)[:, task.medoids.nodes]
    means = columns[task.visible].T @ (share * task.known) / (columns[task.visible].T @ share)
    rows = columns[task.masked] / columns[task.masked].sum(axis=1, keepdims=True)
    found = _filled(task, _at(methods.mrf(task), TAU))
    np.testing.assert_allclose(found, rows @ means, rtol=1e-5, atol=1e-6)
    bumps = np.exp(-cdist(task.points, task.points[task.medoids_in_space.nodes], "sqeuclidean") / SIGMA**2)
    means = bumps[task.visible].T @ task.known / bumps[task.visible].sum(axis=0)[:, None]
    rows = bumps[task.masked] / bumps[task.masked].sum(axis=1, keepdims=True)
    found = _filled(task, _at(methods.linear_rbf(task), SIGMA))
    np.testing.assert_allclose(found, rows @ means, rtol=1e-9)


def test_sparse_features_leave_out_tails_only(task, heat):
    anchors = methods.farthest_along_edges(task.graph, 100)
    columns = heat(2.0)[:, anchors]
    columns = np.where(columns >= 1e-3 * columns.max(axis=0), columns, 0.0)
    kernel = (columns * _cells(task.graph.shortest_paths(anchors))) @ columns.T
    found = _at(methods.mrf_sparse(task), 4.0)
    assert found.left.nnz < 0.5 * np.prod(found.left.shape)
    np.testing.assert_allclose(
        _filled(task, found), _attend(kernel, task, np.sqrt(task.graph.degrees)), rtol=1e-5, atol=1e-6
    )


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


def test_exact_kernels_are_the_kernels_themselves(task, heat):
    gaussian = np.exp(-cdist(task.points, task.points, "sqeuclidean") / (2 * SIGMA**2))
    found = _filled(task, _at(methods.exact_rbf(task), SIGMA))
    np.testing.assert_allclose(found, _attend(gaussian, task, np.ones(400)), atol=1e-10)
    found = _filled(task, _at(methods.exact_heat(task), TAU))
    np.testing.assert_allclose(found, _attend(heat(TAU), task, np.sqrt(task.graph.degrees)), atol=1e-6)


def test_gaussians_around_anchors_stand_for_the_gaussian_between_tokens(task):
    anchors = methods.farthest_anchors(task.graph, 48)
    distances = cdist(task.points[anchors], task.points, "sqeuclidean")
    bumps = np.exp(-distances / SIGMA**2)  # of width sigma / sqrt(2)
    kernel = (bumps.T * _cells(distances)) @ bumps
    found = _filled(task, _at(methods.linear_rbf_farthest(task), SIGMA))
    np.testing.assert_allclose(found, _attend(kernel, task, np.ones(400)), atol=1e-9)


def test_random_features_share_their_draws_between_widths(task):
    seed = task.streams.generator("random features")
    frequencies = methods.RFF(n_features=48, random_state=seed).fit(task.points).frequencies_  # (24, 3)
    for sigma, weights in methods.random_features(task, methods.RFF):
        phases = task.points @ frequencies.T / sigma
        np.testing.assert_allclose(weights.left[:, :24], np.cos(phases) / np.sqrt(24), atol=1e-10)
        np.testing.assert_array_equal(weights.right, weights.left[task.visible])


def test_solves_hold_the_visible_values_and_are_harmonic_elsewhere(task):
    laplacian = np.diag(task.graph.degrees) - task.graph.affinity.toarray()
    for name, matrix in (("harmonic", laplacian), ("biharmonic", laplacian @ laplacian)):
        whole = np.zeros((400, 2))
        whole[task.visible], whole[task.masked] = task.known, METHODS[name].fill(task).values
        residual = matrix[task.masked] @ whole
        assert np.abs(residual).max() < 1e-9 * np.abs(matrix).max()


# ------------------------------------------------------------------------------------- what all share
@pytest.mark.parametrize("balanced", [False, True])
def test_linear_attention_is_the_reconstruction(task, balanced):
    """The layer for torch, given the same features, fills in the same values."""
    weights = dataclasses.replace(_at(methods.mrf_cells(task), TAU), balanced=balanced)
    sums = weights.right.T @ weights.share if balanced else np.ones(48)
    phi, share = torch.as_tensor(weights.left / np.sqrt(sums)), torch.as_tensor(weights.share)
    queries, keys, known = phi[task.masked], phi[task.visible], torch.as_tensor(task.known)
    found = linear_attention(queries, keys, known, weights=share, empty="mean")
    np.testing.assert_allclose(found.numpy(), _filled(task, weights), rtol=1e-10, atol=1e-12)
    unweighted = linear_attention(queries, keys * share[:, None], known)
    np.testing.assert_allclose(unweighted.numpy(), found.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, how in METHODS.items() if how.group != methods.SIGNED])
def test_constants_are_filled_in_as_they_are(task, name):
    constant = dataclasses.replace(task, known=np.full((len(task.visible), 1), 3.0))
    # Sums of signed features may be close to zero, which magnifies rounding.
    tolerance = 1e-6 if name in ("RFF", "ORF") else 1e-9
    np.testing.assert_allclose(METHODS[name].fill(constant).values, 3.0, rtol=tolerance)


@pytest.mark.parametrize("name", [name for name, how in METHODS.items() if how.is_positive])
def test_positive_features_stay_in_the_range_of_the_visible_values(task, name):
    found = METHODS[name].fill(task).values
    slack = 1e-12 * np.abs(task.known).max()
    assert (found <= task.known.max(axis=0) + slack).all()
    assert (found >= task.known.min(axis=0) - slack).all()


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


def test_tokens_without_weight_get_the_visible_mean(task):
    nothing = methods.Weights(np.zeros((400, 1)), np.ones((len(task.visible), 1)), np.ones(len(task.visible)))
    np.testing.assert_allclose(_filled(task, nothing), np.tile(task.known.mean(axis=0), (280, 1)))
    negative = dataclasses.replace(nothing, left=np.full((400, 1), -1.0))
    np.testing.assert_allclose(_filled(task, negative), _filled(task, nothing))


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


def test_anchors_lie_in_the_middle_of_their_cells(task):
    anchors = task.medoids
    distances = task.graph.shortest_paths(anchors.nodes)
    owner = distances.argmin(axis=0)
    assert len(set(anchors.nodes)) == 48
    assert anchors.cells.sum() == 400
    np.testing.assert_array_equal(anchors.cells, np.bincount(owner))
    within = along_edges(task.graph)[1]
    for place, node in enumerate(anchors.nodes):
        cell = np.flatnonzero(owner == place)
        spread = (within(cell) ** 2).sum(axis=1)
        assert spread[cell == node] == spread.min()


# ------------------------------------------------------------------------------------- the record
def test_every_surface_has_every_method_and_number_of_sources(record):
    wanted = [(surface, method) for surface in SMALL.surfaces for method in METHODS]
    assert [(row["surface"], row["method"]) for row in record.tables["attention"]] == wanted
    found = [(row["surface"], row["method"], row["sources"]) for row in record.tables["sources"]]
    assert found == [(*key, count) for key in wanted for count in (5, 8)]
    budget = {row["method"]: row["features"] for row in record.tables["attention"] if row["surface"] == "folded"}
    assert (budget[OWN], budget["RFF"], budget[SPARSE], budget[HEAT], budget["harmonic"]) == (
        48,
        48,
        375,
        None,
        None,
    )


def test_tables_sum_up_the_errors_of_all_signals(record):
    names = list(METHODS)
    for row in record.tables["attention"]:
        mse = record.arrays[f"{row['surface']}_mse"]
        of = mse[names.index(row["method"])]
        assert row["median"] == np.median(of)
        assert row["mean"] == pytest.approx(of.sum() / 4)
        assert row["mse"] == pytest.approx(np.prod(of) ** (1 / 4))
        assert row["ratio"] == pytest.approx(np.prod(of / mse[0]) ** (1 / 4))
        assert row["l2"] == np.median(record.arrays[f"{row['surface']}_l2"][names.index(row["method"])])
    for row in record.tables["sources"]:
        place = names.index(row["method"]), slice(None), (5, 8).index(row["sources"])
        for column in ("mse", "l2"):
            both = record.arrays[f"{row['surface']}_{column}"][place]
            assert row[column] == pytest.approx(np.sqrt(both[0] * both[1]))


def test_an_error_is_what_its_definition_says(record):
    trial = draw_trial("folded", SMALL, 1)
    gap = METHODS[OWN].fill(trial.task).values - trial.hidden
    np.testing.assert_allclose(record.arrays["folded_mse"][0, 1], (gap**2).mean(axis=0), rtol=1e-12)
    relative = np.linalg.norm(gap, axis=0) / np.linalg.norm(trial.hidden, axis=0)
    np.testing.assert_allclose(record.arrays["folded_l2"][0, 1], relative, rtol=1e-12)


def test_the_parameter_of_a_row_is_the_median_of_those_chosen(record):
    chosen = [METHODS[OWN].fill(draw_trial("folded", SMALL, seed).task).parameters for seed in range(2)]
    rows = {row["method"]: row for row in record.tables["attention"] if row["surface"] == "folded"}
    assert rows[OWN]["parameter"] == np.median(chosen)
    assert rows["biharmonic"]["parameter"] is None


def test_few_features_of_the_surface_beat_the_space_around_where_sheets_nearly_touch(record):
    verdict = next(row for row in record.tables["verdict"] if row["surface"] == "folded")
    errors = {row["method"]: row["mse"] for row in record.tables["attention"] if row["surface"] == "folded"}
    best = min(AMBIENT, key=errors.get)
    assert verdict["ambient"] == best
    assert verdict["over_ambient"] == pytest.approx(errors[best] / errors[OWN])
    assert verdict["over_ambient"] > 1.5
    assert verdict["over_rbf"] == pytest.approx(errors[RBF] / errors[OWN])
    assert verdict["geometry"].startswith("helps;")


def test_targets_compare_the_worst_case_with_its_limit(record):
    rows = {row["what"].split("; ")[1]: row for row in record.tables["targets"]}
    assert all(row["what"].startswith("folded") for row in rows.values())  # the strip has no sheets that touch
    of = {(row["method"], row["sources"]): row for row in record.tables["sources"] if row["surface"] == "folded"}
    worst = min(of[method, count]["mse"] / of[OWN, count]["mse"] for method in AMBIENT for count in (5, 8))
    first, second, third = rows.values()
    assert first["seen"] == pytest.approx(worst)
    assert first["holds"] == (worst >= 1.0)
    by_method = {row["method"]: row["mse"] for row in record.tables["attention"] if row["surface"] == "folded"}
    assert second["seen"] == pytest.approx(by_method[OWN] / by_method[NYSTROM])
    assert second["holds"] == (second["seen"] <= 1.05)
    assert third["seen"] == pytest.approx(by_method[RBF] / by_method[OWN])


def test_a_target_that_is_missed_says_so():
    summary = [{"surface": "swiss", "method": name, "ratio": 1.2} for name in AMBIENT]
    summary += [{"surface": "swiss", "method": name, "ratio": r} for name, r in ((NYSTROM, 0.9), (RBF, 1.2))]
    rows = [{"surface": "swiss", "method": name, "sources": 5, "ratio": 0.99} for name in AMBIENT]
    assert [row["holds"] for row in targets(rows, summary)] == [False, False, False]


def test_the_paper_table_is_whole_and_stands_beside_the_plain_strip_only(record):
    assert len(PAPER) == 10
    assert all(len(column) == len(PAPER_SOURCES) for pair in PAPER.values() for column in pair)
    mse = np.array([pair[0] for pair in PAPER.values()])
    l2 = np.array([pair[1] for pair in PAPER.values()])
    assert next(iter(PAPER)) == OWN
    assert (mse.argmin(axis=0) == 0).sum() == 6
    assert (l2.argmin(axis=0) == 0).sum() == 5
    for row in record.tables["sources"]:
        known = row["surface"] == "mobius" and row["method"] in PAPER
        expected = PAPER[row["method"]][0][PAPER_SOURCES.index(row["sources"])] if known else None
        assert row["published_mse"] == expected
    own = record.tables["attention"][0]
    assert own["published_mse"] == pytest.approx(np.mean(PAPER[OWN][0]))


def test_pictures_have_the_first_task_of_every_surface(record):
    trial = draw_trial("folded", SMALL, 0)
    np.testing.assert_array_equal(record.arrays["folded_points"], trial.task.points)
    np.testing.assert_array_equal(record.arrays["folded_visible"], trial.task.visible)
    signal, filled = record.arrays["folded_signal"], record.arrays["folded_mrf"]
    np.testing.assert_array_equal(signal[trial.task.visible], filled[trial.task.visible])
    np.testing.assert_array_equal(signal[trial.task.masked], trial.hidden[:, -1])
    error = ((signal - filled)[trial.task.masked] ** 2).mean()
    assert error == pytest.approx(record.arrays["folded_mse"][0, 0, -1])


def test_the_record_comes_back_from_its_files(record, tmp_path):
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.plain()["tables"]
    assert again.config["methods"] == list(METHODS)


def test_the_same_seed_gives_the_same_numbers_and_another_others(record):
    tiny = dataclasses.replace(SMALL, surfaces=("mobius",), n_seeds=1)
    steps = []
    first = run(tiny, lambda *step: steps.append(step))
    # The first seed does not depend on how many follow, nor a surface on the others.
    np.testing.assert_array_equal(first.arrays["mobius_mse"][:, 0], record.arrays["mobius_mse"][:, 0])
    assert len(steps) == len(METHODS) + 1
    assert all(0 <= done <= total for _, done, total in steps)
    other = draw_trial("mobius", dataclasses.replace(tiny, seed=1), 0)
    assert not np.array_equal(other.task.points, first.arrays["mobius_points"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surfaces": ("cube",)}, "`surfaces` must be different ones of mobius, mobius2, swiss, folded"),
        ({"surfaces": ("swiss", "swiss")}, "`surfaces` must be different ones"),
        ({"surfaces": ()}, "`surfaces` must be different ones"),
        ({"sources": (0, 5)}, "`sources` must be different positive numbers"),
        ({"sources": ()}, "`sources` must be different positive numbers"),
        ({"n_features": 63}, "`n_features` must be even, and at most a quarter of the tokens. Got 63"),
        ({"n_features": 1000}, "`n_features` must be even, and at most a quarter"),
        ({"masked": 1.0}, r"`masked` must be a number in \(0, 1\)"),
        ({"masked_touching": 0.9999}, "`masked` must be a share that leaves 5 tokens visible"),
        ({"n_seeds": 0}, r"`n_seeds` must be an integer in \[1, inf\)"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SIZES["paper"], **change)


# ------------------------------------------------------------------------------------------- learned features
def test_a_perfect_network_gives_the_features_of_exact_signatures(task, monkeypatch):
    """A field is divided by the roots of the degrees at both ends, which the weights of the sources make up for."""
    anchors, degrees = task.uniform, task.graph.degrees
    exact = methods.signatures(task.graph, 20.0, anchors)
    field = exact / np.sqrt(degrees[:, None] * degrees[anchors])

    class Perfect:
        def features(self, places, seed):
            return field

    monkeypatch.setattr(methods, "learn_field", lambda *_: Perfect())
    found = methods.fill_learned(task, SMALL.recipe, 0)
    weights = methods._of_surface(task, exact / np.sqrt(degrees[anchors]))
    wanted = weights.reconstruct(task.known, np.arange(len(task.visible)), task.masked)
    np.testing.assert_allclose(found.values, wanted, rtol=0, atol=1e-9)
    assert (found.parameters == 20.0).all()


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
