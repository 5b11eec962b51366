"""Fixtures shared by the tests of the explorer."""

import warnings

import numpy as np
import pytest

from manifoldrf import ManifoldRandomFeatures, ManifoldWarning, TriangleMesh


@pytest.fixture(scope="session")
def fitted():
    """Make features on few nodes: rough ones will do, since a page is compared with them and not with the truth."""

    def make(space, kernel, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ManifoldWarning)
            made = ManifoldRandomFeatures(kernel, **{"random_state": 0, "normalize": False} | options).fit(space)
            _ = made.error_  # which warns too, when it is first asked for
        return made

    return make


@pytest.fixture(scope="session")
def torus_mesh():
    """Make tori of triangles."""

    def make(around=24, across=12):
        """A torus of triangles, (288, 3) vertices by default."""
        u, v = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
        a, b = 2 * np.pi * u / around, 2 * np.pi * v / across
        vertices = np.stack(
            [(1 + 0.4 * np.cos(b)) * np.cos(a), (1 + 0.4 * np.cos(b)) * np.sin(a), 0.4 * np.sin(b)], -1
        )

        def at(i, j):
            return (i % around * across + j % across).ravel()

        lower = np.stack([at(u, v), at(u + 1, v), at(u, v + 1)], axis=1)
        upper = np.stack([at(u + 1, v), at(u + 1, v + 1), at(u, v + 1)], axis=1)
        return TriangleMesh(vertices.reshape(-1, 3), np.concatenate([lower, upper]))

    return make
