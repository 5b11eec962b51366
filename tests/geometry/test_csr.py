"""Gaussian affinities in cells and products by threads, against plain numpy and scipy."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf import Graph, GraphRandomFeatures
from manifoldrf.geometry import csr
from manifoldrf.geometry.csr import components_of, local_form, renumbered, scaled_both_ends, times


@pytest.fixture
def rng(global_seed):
    return np.random.default_rng(global_seed)


def random_csr(rng, n, density):
    matrix = sparse.random_array((n, n), density=density, rng=rng, format="csr")
    return sparse.csr_array(matrix + matrix.T)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (11,)])
def test_products_are_those_of_scipy_and_do_not_depend_on_threads(rng, shape):
    matrix, table = random_csr(rng, 500, 0.4), rng.standard_normal((500, *shape))
    one, three = (times(matrix, table, n_jobs) for n_jobs in (1, 3))
    np.testing.assert_array_equal(one, three)
    np.testing.assert_allclose(one, matrix @ table, atol=1e-13 * np.abs(one).max())


def test_values_scaled_at_both_ends_are_symmetric_to_the_bit(rng):
    matrix, scale = random_csr(rng, 500, 0.4), 10 ** rng.uniform(-150, 150, 500)
    values = scaled_both_ends(matrix, scale)
    result = sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    assert (result != result.T).nnz == 0
    assert np.isfinite(values).all()
    expected = sparse.diags_array(scale) @ matrix @ sparse.diags_array(scale)
    np.testing.assert_allclose(result.toarray(), expected.toarray(), rtol=1e-15)


@pytest.mark.parametrize("density", [0.0, 0.001, 0.003, 0.02])
def test_components_are_those_of_scipy(rng, density):
    matrix = random_csr(rng, 400, density)
    expected = csgraph.connected_components(matrix, directed=False)[1]
    np.testing.assert_array_equal(components_of(matrix), expected)


def test_renumbered_matrices_are_sorted_and_hold_the_same_entries(rng):
    matrix, order = random_csr(rng, 300, 0.4), rng.permutation(300)
    found = renumbered(matrix, order)
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray()[np.ix_(order, order)], matrix.toarray())


def test_a_local_order_brings_neighbours_together(rng):
    x = rng.random(2000)  # a line in random order
    matrix = sparse.csr_array(np.abs(x[:, None] - x) < 0.01, dtype=float)
    local = local_form(matrix)
    np.testing.assert_array_equal(local.order[local.place], np.arange(2000))
    np.testing.assert_array_equal(local.matrix[local.place][:, local.place].toarray(), matrix.toarray())
    rows, columns = local.matrix.nonzero()
    assert np.abs(rows - columns).max() < 200  # 40 on average; in random order up to 2000


def test_dense_rows_become_sparse_ones_with_narrow_indices(rng):
    dense = random_csr(rng, 30, 0.1).toarray()
    dense[7] = 0.0
    found = csr.nonzeros(dense[:, ::2])
    np.testing.assert_array_equal(found.toarray(), dense[:, ::2])
    assert found.nnz == np.count_nonzero(dense[:, ::2])
    assert found.indices.dtype == found.indptr.dtype == np.int32


@pytest.mark.parametrize(
    "broken", [{"indices": [0, 50_000_000]}, {"indptr": [0, 5_000_000, 2]}, {"indices": [0, -1]}]
)
def test_indices_out_of_range_are_refused_before_they_are_read(broken):
    matrix = sparse.csr_array(np.eye(2))
    for name, values in broken.items():
        setattr(matrix, name, np.array(values, np.int32))
    for build in (Graph, Graph.from_affinity, GraphRandomFeatures().fit):
        with pytest.raises(ValueError, match="indices"):
            build(matrix)
