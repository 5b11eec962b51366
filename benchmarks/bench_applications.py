"""Whether filling in a field is quick, and how its time grows.

Each row of the table says what, the figure seen, the limit, and whether it holds. All are ratios or exponents of
times taken in one run, after a first call that compiles and is not counted; each time is the best of several.

1. ``method="kernel"``'s action, exp(-20 L) times 3 columns on a mesh of 150,000 vertices, over SciPy's
   ``expm_multiply``: at most 1/5;
2. one more frame by ``method="features"`` (``refit`` and ``predict``) on a mesh of 6000 vertices over one product
   of the dense kernel with the same columns, the kernel being there already: at most 1/10;
3. growth exponents over six meshes from 5000 to 150,000 vertices: of one more frame at most 1.05, of a fit at most
   1.1.

An argument selects the rows whose titles contain it. ``--quick`` takes meshes a tenth as large. Exits with code 1
if a limit is missed, with ``--quick`` never. The machine is to do nothing else meanwhile.
"""

import warnings

import numpy as np
from scipy.sparse import eye_array
from scipy.sparse.linalg import expm_multiply
from table import Row, run_cases, seconds

from manifoldrf import DiffusionKernel, FeatureWarning, FieldInterpolator, mesh_graph
from reproduction.mesh_data import builtin_mesh
from reproduction.smoothers import fit_power

TAU, COLUMNS, REPEATS = 20.0, 3, 5
GROWTH = (5000, 10_000, 20_000, 40_000, 80_000, 150_000)


def torus(n_vertices):
    """A mesh of about so many vertices, evenly spaced: sizes differ, the shape does not."""
    return builtin_mesh("torus", n_vertices).mesh


def frame(mesh, seed=0):
    """Columns to be filled, and where they are known."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((mesh.n_vertices, COLUMNS)), rng.random(mesh.n_vertices) < 0.2


def best(work, repeats=REPEATS):
    """Least of several times: the others had to wait for something."""
    return min(seconds(work) for _ in range(repeats))


def action_against_expm(scale):
    """The exact action over that of SciPy."""
    graph = mesh_graph(torus(150_000 // scale), weights="gaussian")
    block = np.random.default_rng(0).standard_normal((graph.n_nodes, COLUMNS))
    kernel, generator = DiffusionKernel(TAU), TAU * (graph.operator - eye_array(graph.n_nodes, format="csr"))
    kernel.apply(graph, block[:, :1], n_jobs=-1)
    ours = best(lambda: kernel.apply(graph, block, n_jobs=-1))
    theirs = best(lambda: expm_multiply(generator, block), 2)
    apart = np.linalg.norm(kernel.apply(graph, block) - expm_multiply(generator, block)) / np.linalg.norm(block)
    name = f"exp(-20 L) X, {graph.n_nodes} vertices, 3 columns / expm_multiply ({ours:.3f} s; apart {apart:.0e})"
    return [Row(name, ours / theirs, "<=", 0.2)]


def fitted(mesh):
    """Features of the kernel on a mesh, with a first frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)
        return FieldInterpolator("features", tau=TAU, random_state=0).fit(mesh, *frame(mesh))


def frame_against_dense(scale):
    """One more frame over a product of the dense kernel with the mask and the columns."""
    mesh = torus(6000 // scale)
    model, (values, known) = fitted(mesh), frame(mesh, 1)
    dense = DiffusionKernel(TAU).dense(model.graph_)
    stacked = np.column_stack([known, known[:, None] * values])
    ours = best(lambda: model.refit(values, known).predict(), 20)
    theirs = best(lambda: dense @ stacked, 20)
    name = f"a frame by features, {mesh.n_vertices} vertices / dense kernel product ({1e3 * ours:.2f} ms)"
    return [Row(name, ours / theirs, "<=", 0.1)]


def growth(scale):
    """Exponents of the times of a fit and of one more frame."""
    meshes = [torus(n // scale) for n in GROWTH]
    fitted(meshes[0])  # compiles
    fits, frames = [], []
    for mesh in meshes:
        fits.append(best(lambda mesh=mesh: fitted(mesh), 2))
        model, (values, known) = fitted(mesh), frame(mesh, 1)
        frames.append(best(lambda m=model, v=values, k=known: m.refit(v, k).predict(), 20))
        print(f"  {mesh.n_vertices:7d} vertices: fit {fits[-1]:.2f} s, frame {1e3 * frames[-1]:.2f} ms", flush=True)
    sizes = [mesh.n_vertices for mesh in meshes]
    return [
        Row("exponent of a frame by features", fit_power(sizes, frames).exponent, "<=", 1.05),
        Row("exponent of a fit of features", fit_power(sizes, fits).exponent, "<=", 1.1),
    ]


CASES = {"action": action_against_expm, "frame": frame_against_dense, "growth": growth}


if __name__ == "__main__":
    run_cases("Time of filling in fields.", CASES, full=1, quick=10)  # by how much meshes are smaller
