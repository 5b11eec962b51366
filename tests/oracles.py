"""Exact answers, error measures and test shapes shared by many tests."""

import numpy as np
from scipy import sparse
from scipy.spatial import ConvexHull
from scipy.special import ive

from manifoldrf import FlatTorus, HyperbolicSpace, Sphere, TriangleMesh

# Manifolds whose own distance a graph can follow.
METRICS = [
    Sphere(),
    Sphere(dim=1, radius=3.0),
    Sphere(dim=3, radius=2.0),
    FlatTorus(),
    FlatTorus(dim=3, side=0.5),
    HyperbolicSpace(),
    HyperbolicSpace(dim=2, radius=16.0),  # most points are within 1e-6 of the boundary of the model
]


def relative_error(computed, exact):
    """Frobenius norm of the difference over that of the exact matrix; no alignment of any kind."""
    return np.linalg.norm(computed - exact) / np.linalg.norm(exact)


def columns(n_nodes, nodes, values):
    """Matrix (n_nodes, len(nodes)) with the values at the nodes, one a column."""
    matrix = np.zeros((n_nodes, len(nodes)))
    matrix[nodes, np.arange(len(nodes))] = values
    return matrix


def heat_kernel_at_nodes(graph, nodes):
    """mu^-1/2 W^n mu^-1/2 between the given nodes of a heat graph."""
    half = columns(graph.n_nodes, nodes, graph.weights[nodes] ** -0.5)
    for _ in range(graph.n_steps // 2):
        half = graph.operator @ half
    return half.T @ half


def heat_kernel_at_points(graph, points):
    """The same at points that are not nodes: the first step is that of the extension."""
    rows = graph.extend(points)
    step = sparse.diags_array(1 / np.asarray(rows.sum(axis=1)).ravel()) @ rows
    half = (step @ sparse.diags_array(graph.weights**-0.5)).T.toarray()
    for _ in range(graph.n_steps // 2 - 1):
        half = graph.operator @ half
    return half.T @ half


def diffuse(graph, tau, block):
    """exp(-tau (I - W)) times a block of columns, by Chebyshev polynomials; the terms left out are below 1e-12."""
    n_terms = int(6 * np.sqrt(tau) + 30)
    coefficients = 2 * ive(np.arange(n_terms), tau)
    coefficients[0] /= 2
    before, current = block, graph.operator @ block
    total = coefficients[0] * before + coefficients[1] * current
    for coefficient in coefficients[2:]:
        before, current = current, 2 * (graph.operator @ current) - before
        total += coefficient * current
    return total


def diffusion_kernel_at_nodes(graph, tau, volume, nodes):
    """(N / volume) exp(-tau (I - W)) between the given nodes: the graph clock read as a manifold kernel."""
    block = diffuse(graph, tau, columns(graph.n_nodes, nodes, 1.0))
    return block[nodes] * (graph.n_nodes / volume)


def subdivided(vertices, faces):
    """Midpoint subdivision: four faces for each, the surface unchanged, old vertices first."""
    sides = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    edges, place = np.unique(sides, axis=0, return_inverse=True)
    a, b, c = (place.reshape(-1, 3) + len(vertices)).T
    x, y, z = faces.T
    parts = [np.column_stack(part) for part in ((x, a, c), (a, y, b), (c, b, z), (a, b, c))]
    return np.vstack([vertices, vertices[edges].mean(axis=1)]), np.vstack(parts)


def folded_strip(n_long, n_wide, gap):
    """A strip of length 2 and width .4 folded back on itself in a half circle of diameter ``gap``."""
    bend = np.pi * gap / 2
    s = np.linspace(0, 2 + bend, n_long)
    angle = np.clip((s - 1) / (gap / 2), 0, np.pi)
    x = np.where(s < 1, s, np.where(s > 1 + bend, 2 + bend - s, 1 + gap / 2 * np.sin(angle)))
    z = gap / 2 * (1 - np.cos(angle))
    y = np.linspace(0, 0.4, n_wide)
    points = np.column_stack([np.repeat(x, n_wide), np.tile(y, n_long), np.repeat(z, n_wide)])
    corner = (np.arange(n_long - 1)[:, None] * n_wide + np.arange(n_wide - 1)).ravel()
    lower = np.column_stack([corner, corner + n_wide, corner + 1])
    upper = np.column_stack([corner + 1, corner + n_wide, corner + n_wide + 1])
    return TriangleMesh(points, np.vstack([lower, upper])), np.repeat(s, n_wide)


def philox(counter, key):
    """Philox 4x32-10: four 32-bit words of a counter of four and a key of two."""
    (a, b, c, d), (x, y) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ x, q % 2**32, p >> 32 ^ d ^ y, p % 2**32
        x, y = (x + 0x9E3779B9) % 2**32, (y + 0xBB67AE85) % 2**32
    return a, b, c, d


def random_words(start, lane, key):
    """The 64-bit words of the stream of a start and a lane: xoroshiro128+ with a state from Philox."""
    a, b, c, d = philox((start % 2**32, start >> 32, lane % 2**32, lane >> 32), [int(word) for word in key])
    s, t = a << 32 | b, c << 32 | d | 1
    while True:
        yield (s + t) % 2**64
        t ^= s
        s = ((s << 24 | s >> 40) ^ t ^ t << 16) % 2**64
        t = (t << 37 | t >> 27) % 2**64


def as_unit(word):
    """A double in [0, 1) from the upper 53 bits of a word."""
    return (word >> 11) * 2.0**-53


def cloud(n=60, d=3, seed=0):
    """Gaussian points."""
    return np.random.default_rng(seed).standard_normal((n, d))


def hull_mesh(points):
    """The Delaunay triangulation of points of a sphere: their convex hull."""
    return TriangleMesh(points, ConvexHull(points).simplices)


def sphere_mesh(n):
    """The Delaunay triangulation of n even points of the sphere."""
    return hull_mesh(Sphere().grid(n))
