"""How often 90 % prediction intervals of a Gaussian process hold new values, for 10 to 1000 noisy values.

``python benchmarks/bench_coverage.py`` draws smooth fields on five spaces, measures them at n random points with
noise of a tenth of their standard deviation, and predicts 400 other noisy values: ``mean +- 1.645 std`` with
``include_noise=True``. The fields are, in turn, a linear function, waves of three lengths and a sum of bumps. The
spaces are a sphere, a torus as a random cloud, a line in R^3 as a noisy cloud, a square, and a cloud that fills
R^3. The last lines of the table are the thickness of a human cortex (from the nilearn wheel), whose noise is its
own. A line has

* *held*: share of the new values inside the intervals, for `ManifoldGaussianProcess` with the space, for the same
  with the measurements only (*no space*), and for scikit-learn's
  `GaussianProcessRegressor` with an RBF and a white kernel, standardised values and its default optimiser;
* *error*: root mean squared error over the standard deviation of the field.

``--seeds 40`` is the number of fields of a line up to 100 values; lines of 300 and 1000 values, which take longer,
have a half and a quarter of them, and the cortex an eighth. ``--sizes 10,20`` selects sizes and ``--only
sphere,torus`` spaces. ``--data DIR`` takes the cortex from `fsaverage5_left.npz` in a folder instead. The exit code
is 1 if a share of `ManifoldGaussianProcess` is not within .85 and .95. About 25 minutes of CPU time.
"""

import argparse
import importlib.util
import pathlib
import sys
import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from manifoldrf import HeatKernel, ManifoldGaussianProcess, Sphere, Torus, TriangleMesh, heat_graph

SIZES = (10, 20, 50, 100, 300, 1000)
QUANTILE, NOISE, N_NEW = 1.645, 0.1, 400
LEAST, MOST = 0.85, 0.95
THINNEST = 1.0  # mm: thinner vertices are not cortex
N_FIELDS = 5


def draw_field(points, number, rng):
    """A smooth function at points, of mean 0 and standard deviation 1; ``number`` selects its kind."""
    extent = np.ptp(points, axis=0).max()
    if number == 0:
        field = points @ rng.normal(size=points.shape[1])
    elif number <= 3:  # waves as long as the space, half and a quarter
        directions = rng.normal(size=(points.shape[1], 12))
        directions /= np.linalg.norm(directions, axis=0)
        phases = 2 * np.pi * (points @ directions * 2 ** (number - 1) / extent + rng.random(12))
        field = np.cos(phases) @ rng.normal(size=12)
    else:
        centres = points[rng.choice(len(points), 6, replace=False)]
        distances = np.linalg.norm(points[:, None] - centres, axis=2)
        field = np.exp(-((distances / (0.2 * extent)) ** 2)) @ rng.normal(size=6)
    return (field - field.mean()) / field.std()


def sphere():
    """Even nodes of a sphere, and random points of it."""
    return heat_graph(Sphere().grid(1000), 0.05), 0.05, Sphere().sample(2000, seed=1), None


def torus():
    """Random points of a torus; times of 0.05 take only two steps, too few for the shortest waves."""
    return heat_graph(Torus().sample(1500, seed=0), 0.025), 0.025, Torus().sample(2000, seed=1), None


def line():
    """Noisy points of a line that winds through space."""
    rng = np.random.default_rng(0)
    angles = 3 * np.pi * rng.random(3000)
    points = np.column_stack([np.cos(angles), np.sin(angles), angles / 3]) + 0.02 * rng.normal(size=(3000, 3))
    return heat_graph(points[:1000], 0.02), 0.02, points[1000:], None


def square():
    """A square in the plane: its edges are the hardest places."""
    points = np.random.default_rng(0).random((3000, 2))
    return heat_graph(points[:1000], 0.005), 0.005, points[1000:], None


def solid():
    """A cloud that fills three dimensions."""
    points = np.random.default_rng(0).normal(size=(3500, 3))
    return heat_graph(points[:1500], 0.3), 0.3, points[1500:], None


def cortex(folder=None):
    """The surface of a cortex, its vertices, and its thickness there."""
    if folder is not None:
        stored = np.load(folder / "fsaverage5_left.npz")
        inner, outer = (stored[f"verts_{name}"].astype(np.float64) for name in ("white", "pial"))
        faces, thickness = stored["faces"].astype(np.int64), stored["thick"].astype(np.float64)
    else:
        import nibabel

        data = pathlib.Path(importlib.util.find_spec("nilearn").submodule_search_locations[0]) / "datasets/data"
        read = {name: nibabel.load(data / f"fsaverage5/{name}_left.gii.gz") for name in ("white", "pial", "thick")}
        inner, outer = (read[name].agg_data("pointset").astype(np.float64) for name in ("white", "pial"))
        faces, thickness = read["pial"].agg_data("triangle").astype(np.int64), read["thick"].agg_data()
    mesh = TriangleMesh((inner + outer) / 2, faces)
    kept = np.flatnonzero(thickness >= THINNEST)
    values = thickness[kept].astype(np.float64)
    return heat_graph(mesh, 66.0, n_steps=12), 66.0, mesh.vertices[kept], (values - values.mean()) / values.std()


def draw_case(space, n, seed):
    """Points and values: n to learn from, and others to predict."""
    _, _, points, values = space
    rng = np.random.default_rng([n, seed])
    noisy = values
    if values is None:
        noisy = draw_field(points, seed % N_FIELDS, rng) + NOISE * rng.normal(size=len(points))
    order = rng.permutation(len(points))
    known, new = order[:n], order[n : n + N_NEW]
    return points[known], noisy[known], points[new], noisy[new]


def along_space(space, X, y, Z):
    """Mean and standard deviation of new values by a process on the space."""
    model = ManifoldGaussianProcess(HeatKernel(space[1]), space=space[0], random_state=0).fit(X, y)
    return model.predict(Z, return_std=True, include_noise=True)


def without_space(space, X, y, Z):
    """The same by a process that knows the measurements only."""
    model = ManifoldGaussianProcess(random_state=0).fit(X, y)
    return model.predict(Z, return_std=True, include_noise=True)


def around_space(space, X, y, Z):
    """The same by scikit-learn's process, in the coordinates of the points."""
    extent = np.ptp(space[2], axis=0).max()
    kernel = ConstantKernel(1.0) * RBF(extent / 4, (extent / 1000, 1000 * extent)) + WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y).predict(Z, return_std=True)


def fields_of(space, n, seeds):
    """Number of fields of a line: fewer where a fit takes longer."""
    share = 8 if space[3] is not None else 1 if n <= 100 else 2 if n <= 300 else 4
    return max(1, seeds // share)


def measure(space, n, seeds, predict):
    """Share of new values inside the intervals, its standard error over the seeds, and the error."""
    held, errors = [], []
    for seed in range(seeds):
        X, y, Z, truth = draw_case(space, n, seed)
        mean, std = predict(space, X, y, Z)
        held.append(np.mean(np.abs(truth - mean) < QUANTILE * std))
        errors.append(np.mean((truth - mean) ** 2))
    return np.mean(held), np.std(held) / np.sqrt(seeds), np.sqrt(np.mean(errors))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default="")
    parser.add_argument("--data", type=pathlib.Path)
    options = parser.parse_args()
    spaces = {
        "sphere": sphere,
        "torus": torus,
        "noisy line": line,
        "square": square,
        "solid": solid,
        "cortex": lambda: cortex(options.data),
    }
    warnings.simplefilter("ignore")
    missed = 0
    columns = (
        "space",
        "values",
        "fields",
        "held",
        "error",
        "no space: held",
        "error",
        "scikit-learn held",
        "error",
    )
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name, make in spaces.items():
        if not any(text in name for text in options.only.split(",")):
            continue
        space = make()
        for n in map(int, options.sizes.split(",")):
            seeds = fields_of(space, n, options.seeds)
            cells = []
            for predict in (along_space, without_space, around_space):
                held, scatter, error = measure(space, n, seeds, predict)
                missed += predict is not around_space and not LEAST <= held <= MOST
                cells += [f"{100 * held:.0f} ± {100 * scatter:.0f} %", f"{error:.3f}"]
            print(f"| {name} | {n} | {seeds} | {' | '.join(cells)} |", flush=True)
    sys.exit(int(missed > 0))


if __name__ == "__main__":
    main()
