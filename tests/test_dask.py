"""Dask collections: all rows or a sample that covers the space, and blocks with the bits of one machine."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from manifoldrf import (
    Counts,
    DiffusionKernel,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    Sphere,
    compute_signatures,
    knn_graph,
    relative_error,
)
from manifoldrf.geometry import neighbors

dask = pytest.importorskip("dask")
arrays = pytest.importorskip("dask.array")

POINTS = Sphere().sample(600, seed=0)
QUERIES = Sphere().sample(200, seed=1)


def features(t=0.3, **options):
    return ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0, **options)


@pytest.fixture(scope="module")
def fitted():
    return features().fit(POINTS)


def test_small_collections_are_fitted_like_arrays(fitted):
    blocks = arrays.from_array(POINTS, chunks=(140, 2))
    assert np.array_equal(features().fit(blocks).transform(QUERIES), fitted.transform(QUERIES))


def test_frames_keep_their_names(fitted):
    pytest.importorskip("pyarrow")
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    table = frames.from_pandas(pandas.DataFrame(POINTS, columns=["x", "y", "z"]), npartitions=4)
    found = features().fit(table)
    assert found.feature_names_in_.tolist() == ["x", "y", "z"]
    assert np.array_equal(found.transform(table), fitted.transform(POINTS))
    rows = table.map_partitions(found.transform, meta=np.zeros((0, found.n_features_out_)))
    assert np.array_equal(rows.compute(), fitted.transform(POINTS))


def test_blocks_have_the_bits_of_the_whole(fitted):
    blocks = arrays.from_array(QUERIES, chunks=(60, 3))
    lazy = blocks.map_blocks(fitted.transform, chunks=(blocks.chunks[0], (fitted.n_features_out_,)), meta=QUERIES)
    assert np.array_equal(lazy.compute(), fitted.transform(QUERIES))


def test_signatures_of_parts_have_the_bits_of_the_whole():
    graph, kernel, options = knn_graph(POINTS[:500]), DiffusionKernel(6.0), {"teacher": Counts(), "seed": 0}
    parts = [
        dask.delayed(compute_signatures)(graph, kernel, part, **options) for part in np.split(np.arange(500), 5)
    ]
    rows = np.vstack([part.rows.toarray() for part in dask.compute(*parts)])
    assert np.array_equal(rows, compute_signatures(graph, kernel, **options).rows.toarray())


def test_a_sample_of_blocks_covers_the_space_and_keeps_a_rare_part():
    """400,000 points of a sphere, of which only 60 are in the southern half."""
    cloud = Sphere().sample(800_000, seed=2)
    north, south = cloud[cloud[:, 2] > 0], cloud[cloud[:, 2] < -0.15][:60]
    rows = np.random.default_rng(0).permutation(np.vstack([north, south]))
    found = neighbors.sample_blocks(arrays.from_array(rows, chunks=(80_000, 3)), "X")
    assert len(found) <= 50_006  # rounded up in each of six blocks
    assert (found[:, 2] < 0).sum() > 50  # of a random sample about 8
    distances = cKDTree(found).query(rows[::500])[0]
    assert distances.max() < 2.5 * np.sqrt(2 * np.pi / len(found))  # the spacing of even points of the half


@pytest.mark.slow
def test_more_than_a_worker_holds_is_fitted():
    """32 blocks of 14 MB, 461 MB in all, by a worker that may hold 400 MB, of which Python takes half."""
    distributed = pytest.importorskip("distributed")

    def block(block_info=None):
        rows = np.random.default_rng(block_info[None]["chunk-location"][0]).normal(size=(200_000, 3))
        return np.pad(rows / np.linalg.norm(rows, axis=1, keepdims=True), ((0, 0), (0, 6)))

    rows = arrays.map_blocks(block, chunks=((200_000,) * 32, (9,)), dtype=np.float64, meta=np.zeros((0, 9)))
    options = {"threads_per_worker": 1, "memory_limit": "400MB", "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(n_workers=1, **options) as cluster, distributed.Client(cluster):
        found = features(0.1).fit(rows)
    exact = Sphere().heat_kernel(QUERIES, QUERIES, 0.1)
    # Clouds of 4000 even points have errors of .003 here; see docs/measured.md.
    assert relative_error(found.kernel_matrix(np.pad(QUERIES, ((0, 0), (0, 6)))), exact) < 0.006


def test_processes_take_a_space_of_blocks():
    blocks = arrays.from_array(POINTS, chunks=(140, 3))
    here, there = (
        ManifoldGaussianProcess(space=space, random_state=0).fit(POINTS[:50], POINTS[:50, 2])
        for space in (POINTS, blocks)
    )
    assert np.array_equal(here.predict(QUERIES), there.predict(QUERIES))


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="`X` must be a dask array or data frame of shape"):
        features().fit(arrays.zeros(10))
