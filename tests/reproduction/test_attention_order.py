"""The order of attention methods under changes of what the paper leaves open."""

import dataclasses

import numpy as np
import pytest

from reproduction import attention
from reproduction.attention_order import RIVALS, SIZES, UNIFORM, order_of, run


@pytest.fixture(scope="module")
def record():
    return run(dataclasses.replace(SIZES["smoke"], sources=(5, 10)))


def test_the_first_variation_is_the_experiment_attention(record):
    config = record.config
    trial = attention.draw_trial(
        "mobius", attention.Config(surfaces=("mobius",), n_tokens=config["n_tokens"], sources=(5, 10)), 0
    )
    for place, name in enumerate((*RIVALS, UNIFORM)):
        found = attention.METHODS[name].fill(trial.task).values
        wanted = ((found - trial.hidden) ** 2).mean(axis=0)
        # Rounding alone: products of the experiment run on one thread.
        np.testing.assert_allclose(record.arrays["mse"][0, place, 0], wanted, rtol=1e-9, err_msg=name)


def test_ranks_are_of_geometric_means_and_the_uniform_anchors_take_the_place_of_mrf():
    errors = {name: float(place + 2) for place, name in enumerate(RIVALS)}
    errors |= {"MRF": 5.5, "exact heat": 99.0, "exact RBF": 1.0}
    mse = np.array([*[errors[name] for name in RIVALS], 1.5])[:, None, None] * np.array([[1.0, 4.0], [0.25, 1.0]])
    row = order_of("a change", mse)
    below = sum(error < 5.5 for error in errors.values())
    assert (row["mrf"], row["mrf_uniform"], row["exact_heat"], row["exact_rbf"]) == (below + 1, 2, 10, 1)
    assert (row["best"], row["worst"]) == ("exact RBF", "exact heat")
    paper = np.array([[np.mean(attention.PAPER[name][0])] for name in (*RIVALS, "MRF")])[:, :, None]
    assert order_of("the paper", paper)["correlation"] == pytest.approx(1.0)
