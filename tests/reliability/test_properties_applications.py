"""Interpolated fields stay in range, and any options are refused with a reason or fill the field."""

import warnings

import numpy as np
import torch
from hypothesis import strategies as st
from reliability.strategies import SEEDS, Outcomes, graphs, holds_for, hulls, mostly, options, quietly

from manifoldrf import FieldInterpolator, ManifoldWarning
from manifoldrf.torch import linear_attention


def interpolated(space, values, known, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)
        return quietly(FieldInterpolator(**settings).fit, space, values, known).predict()


def check_ranges(graph, values, known, field):
    """Each component stays within the range of what is known of it, and is NaN where nothing is."""
    for component in range(graph.n_components):
        inside = graph.components == component
        here = values[inside & known]
        if len(here):
            assert field[inside].min() >= here.min()
            assert field[inside].max() <= here.max()
        else:
            assert np.isnan(field[inside]).all()


def test_interpolated_fields_stay_between_the_known_values_of_their_component():
    outcomes = Outcomes()

    @holds_for(
        graph=graphs(),
        method=st.sampled_from(["kernel", "harmonic"]),
        tau=st.floats(0.1, 100.0),
        seed=SEEDS,
        share=st.sampled_from([0.1, 0.5, 1.0]),
    )
    def check(graph, method, tau, seed, share):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal(graph.n_nodes)
        known = rng.random(graph.n_nodes) < share
        known[rng.integers(graph.n_nodes)] = True
        for field in outcomes.of(interpolated, graph, values, known, method=method, tau=tau):
            check_ranges(graph, values, known, field)
            if method == "harmonic":
                np.testing.assert_array_equal(field[known], values[known])

    check()
    # Refused are harmonic systems with affinities from 1e-11 to 1e11 beside each other.
    assert outcomes.counts["accepted"] > 0.98 * outcomes.counts.total(), outcomes.counts


def test_any_options_of_interpolation_are_refused_with_a_reason_or_fill_the_field():
    outcomes = Outcomes()
    choices = {
        "method": mostly(st.sampled_from(["kernel", "gp", "harmonic", "biharmonic"])),
        "tau": mostly(st.floats(0.1, 50.0)),
        "weights": mostly(st.sampled_from(["unit", "gaussian"])),
        "noise_variance": mostly(st.floats(0.0, 1.0)),
        "normalize": mostly(st.just(False)),
        "random_state": mostly(SEEDS),
        "n_jobs": mostly(st.sampled_from([1, 2])),
    }

    @holds_for(mesh=hulls(max_size=20), given=options(choices, most=4, least=2), seed=SEEDS)
    def check(mesh, given, seed):
        known = np.arange(mesh.n_vertices) % 2 == 0
        values = np.random.default_rng(seed).standard_normal(mesh.n_vertices)
        settings = {"method": "kernel", "tau": 3.0} | given
        for field in outcomes.of(interpolated, mesh, values, known, **settings):
            assert field.shape == values.shape
            assert np.isfinite(field).all()

    check()
    assert outcomes.both_happened(0.2), outcomes.counts


@holds_for(
    seed=SEEDS,
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 140), st.integers(1, 5)),
    single=st.booleans(),
    causal=st.booleans(),
)
def test_attention_takes_means_of_the_values_that_are_visible(seed, sizes, single, causal):
    rng = np.random.default_rng(seed)
    n, m, d = (sizes[1], sizes[0], sizes[2])
    dtype = torch.float32 if single else torch.float64
    sparse_rows = np.where(rng.random((2, n, m)) < 0.5, rng.random((2, n, m)) * 10.0 ** rng.uniform(-9, 3), 0.0)
    phi_q, phi_k = (torch.tensor(rows, dtype=dtype) for rows in sparse_rows)
    v = torch.tensor(rng.standard_normal((n, d)), dtype=dtype)
    mask = torch.tensor((rng.random(n) < 0.7).astype(float), dtype=dtype)
    found = linear_attention(phi_q, phi_k, v, causal, weights=mask)
    assert torch.isfinite(found).all()
    # A convex combination, up to the rounding of n terms; zero where nothing has weight.
    slack = 16 * n * torch.finfo(dtype).eps * float(v.abs().max())
    low, high = min(0.0, float(v.min())), max(0.0, float(v.max()))
    assert low - slack <= float(found.min())
    assert float(found.max()) <= high + slack
    weights = (phi_q @ phi_k.T) * mask
    weights = torch.tril(weights) if causal else weights
    clear = weights.sum(dim=1) > 1e-20
    exact = (weights @ v)[clear] / weights.sum(dim=1)[clear, None]
    np.testing.assert_allclose(found[clear], exact, rtol=0, atol=4 * slack)
