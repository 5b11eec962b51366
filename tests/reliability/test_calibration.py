"""The estimated error against the true one: four small problems, and the sixty of the page in the slow tests."""

import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.calibration.{name}")


# Of each way in which the estimate is made: even and random nodes, a guessed rim, a mesh, a kernel in steps.
SMALL = {1040: "spheres, even", 1041: "spheres, random", 1005: "clouds with a rim", 1027: "closed meshes"}


@pytest.mark.parametrize("seed", SMALL)
def test_the_estimate_of_a_small_problem_is_within_a_factor_of_two(calibration, monkeypatch, seed):
    problems = calibration("problems")
    monkeypatch.setattr(problems, "MOST", 1000)
    problem = problems.draw(seed)
    assert problem.family == SMALL[seed]
    assert 0.5 < problems.solve(problem)["ratio"] < 2


# Seeds of the development: they were at .31 and .41 before the estimate saw hidden layers and what noise leaves.
@pytest.mark.parametrize(("seed", "family"), [(3046, "rolls"), (3050, "noise")])
def test_the_estimate_sees_layers_that_noise_joins_and_what_noise_leaves(calibration, seed, family):
    problems = calibration("problems")
    problem = problems.draw(seed)
    assert problem.family == family
    assert 0.5 < problems.solve(problem)["ratio"] < 2


@pytest.mark.slow
@pytest.mark.parametrize("position", range(60))
def test_the_record_holds_what_the_library_estimates_today(calibration, position):
    """To 2 %: builds of numpy round differently, and a fit chooses between fields by their errors."""
    row = calibration("record").load()[position]
    problems = calibration("problems")
    found = problems.solve(problems.draw(row["seed"]))
    for name in ("true", "estimate"):
        assert found[name] == pytest.approx(row[name], rel=0.02)


def test_the_record_holds_the_sixty_problems_of_the_fixed_seeds(calibration):
    record, problems = calibration("record"), calibration("problems")
    rows = record.load()
    assert [row["seed"] for row in rows] == list(range(60)) == list(record.SEEDS)
    assert [row["family"] for row in rows] == [problems.family_of(seed) for seed in range(60)]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["estimate"] / row["true"], rel=2e-3)


def test_the_page_says_what_the_record_says(calibration):
    page = calibration("page")
    text = page.PATH.read_text(encoding="utf-8")
    assert page.page_text(text, calibration("record").load()) == text


def test_the_seeds_that_were_tuned_on_are_not_reported(calibration):
    assert max(calibration("record").SEEDS) < 1000 <= min(SMALL)


def test_a_problem_depends_on_its_seed_alone(calibration):
    draw = calibration("problems").draw
    first, again, other = draw(1009), draw(1009), draw(1019)
    assert (first.kernel, first.n_nodes, first.name) == (again.kernel, again.n_nodes, again.name)
    assert first.kernel != other.kernel


@pytest.mark.parametrize("seed", range(2000, 2010))
def test_clouds_as_they_come_are_drawn_with_their_flaws_and_nothing_is_told(calibration, seed):
    problems = calibration("problems")
    problem, known = problems.draw(seed), problems.draw(seed).known
    assert problem.family == list(problems.ROUGH_MAKERS)[seed % 10]
    assert problem.given.graph is None
    assert problem.given.space.shape == (problem.n_nodes, known.sample(1, np.random.default_rng(0)).shape[1])
    off = np.linalg.norm(problem.given.space - known.nearest(problem.given.space), axis=1)
    assert (np.median(off) > 1e-4) == ("noise" in problem.name and problem.name[-7:] != "noise 0")


def test_families_have_looks_in_the_picture(calibration):
    picture, problems = calibration("picture"), calibration("problems")
    assert set(picture.LOOKS) == set(problems.MAKERS)
    assert set(picture.ROUGH_LOOKS) == set(problems.ROUGH_MAKERS)


def test_estimates_that_are_off_are_counted_and_named(calibration):
    record = calibration("record")
    rows = [{"seed": k, "ratio": ratio} for k, ratio in enumerate((0.4, 0.5, 1.0, 2.0, 2.1))]
    assert record.within(rows) == 3
    assert record.too_low([{"ratio": 0.3}, *rows]) == 1
    assert [row["seed"] for row in record.extremes(rows)] == [0, 4]
