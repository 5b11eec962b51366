"""Features of 10,000 new points from 4000 known ones, on spaces whose heat kernel is known in closed form.

The sphere, and a flat sheet rolled into a spiral of three turns, whose heat kernel is that of the sheet: a product
of sums over mirror images. Times are those of a fit and of the features of all new points; the error is that of the
inner products of 512 of them against the heat kernel of the space, relative, in the Frobenius norm, after the best
common factor. Peers have the bandwidth with the least such error, and one of our rows the number of steps, which is
our bandwidth; the search is in nobody's time.
"""

import functools
import warnings

import numpy as np
from pydiffmap.diffusion_map import DiffusionMap
from sklearn.kernel_approximation import Nystroem, RBFSampler

from benchmarks.peers.measure import BY_DEFAULT, Row, once, timed
from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error

JOB = "new points"
N_SCORED = 512
N_SEARCHED = 512  # features with which the best bandwidth is searched for
BANDWIDTHS = np.geomspace(0.4, 2.5, 11)  # over that of the Gaussian of the same time, 1 / (4 t)
STEPS = (None, 8, 16, 32)  # of the heat graph, to choose from; None is what the library chooses
EPSILONS = (0.125, 0.25, 0.5, 1.0)  # over pydiffmap's own choice, larger than the 64 neighbours bear
TURNS, GAP = 3, 0.4  # of the spiral; its layers are a gap apart
LENGTH_OF_TABLE = 4000
IMAGES = 3  # mirror images on each side: others are below 1e-30
SIZES = {
    "full": {"known": 4000, "new": 10_000, "features": (512, 1024), "pairs": (100, 300)},
    "smoke": {"known": 800, "new": 600, "features": (256,), "pairs": (50,)},
}


class RolledSheet:
    """A rectangle rolled into a spiral, with the heat kernel of insulated edges."""

    width = 1.0

    def __init__(self, t):
        self.t = t
        angles = np.linspace(np.pi, np.pi * (1 + 2 * TURNS), LENGTH_OF_TABLE)
        radius = GAP * angles / (2 * np.pi)
        self._angles = angles
        speed = np.hypot(radius, GAP / (2 * np.pi))
        steps = np.diff(angles) * (speed[1:] + speed[:-1]) / 2
        self._lengths = np.concatenate([[0.0], np.cumsum(steps)])
        self.length = float(self._lengths[-1])

    def sample(self, n, seed):
        """Uniform points: their coordinates on the sheet, and in space."""
        rng = np.random.default_rng(seed)
        flat = np.column_stack([rng.uniform(0, self.length, n), rng.uniform(0, self.width, n)])
        angle = np.interp(flat[:, 0], self._lengths, self._angles)
        radius = GAP * angle / (2 * np.pi)
        return flat, np.column_stack([radius * np.cos(angle), radius * np.sin(angle), flat[:, 1]])

    def kernel(self, flat):
        """The exact heat kernel between points of the sheet."""
        return self._on_interval(flat[:, 0], self.length) * self._on_interval(flat[:, 1], self.width)

    def _on_interval(self, x, length):
        shifts = 2 * length * np.arange(-IMAGES, IMAGES + 1)[:, None, None]
        there, mirrored = x[:, None] - x + shifts, x[:, None] + x + shifts
        return (np.exp(-(there**2) / (4 * self.t)) + np.exp(-(mirrored**2) / (4 * self.t))).sum(axis=0)


class RoundSphere:
    """The sphere, in the same words."""

    def __init__(self, t):
        self.t = t

    def sample(self, n, seed):
        """Uniform points, twice."""
        points = Sphere().sample(n, seed=seed)
        return points, points

    def kernel(self, points):
        """The exact heat kernel."""
        return Sphere().heat_kernel(points, points, self.t)


# A narrow and a wide kernel each: the narrow ones are close to Gaussians, and see few points.
SPACES = {
    "sphere, t = 0.05": (RoundSphere, 0.05),
    "sphere, t = 0.1": (RoundSphere, 0.1),
    "rolled sheet, t = 0.02": (RolledSheet, 0.02),
    "rolled sheet, t = 0.08": (RolledSheet, 0.08),
}


class Problem:
    """Known and new points of a space."""

    def __init__(self, name, wanted):
        kind, t = SPACES[name]
        self.name, self.space = name, kind(t)
        self.known = self.space.sample(wanted["known"], 0)[1]
        flat, self.new = self.space.sample(wanted["new"], 1)
        self.exact = self.space.kernel(flat[:N_SCORED])

    def error(self, features):
        """Error of the kernel of some new points."""
        some = features[:N_SCORED]
        product = some @ some.T
        product = product.toarray() if hasattr(product, "toarray") else product
        return relative_error(product, self.exact, alignment="least squares")

    def row(self, method, preparation, seconds, features, note=""):
        """A row from features of all new points."""
        return Row(JOB, self.name, method, preparation, seconds, self.error(features), note)


def own_model(problem, n_features, n_steps=None):
    """Features of this library, sparse, before the fit."""
    graph = None if n_steps is None else HeatGraph(n_steps=n_steps)
    return ManifoldRandomFeatures(
        HeatKernel(problem.space.t),
        normalize=False,
        n_features=n_features,
        graph=graph,
        random_state=0,
        sparse_output=True,
    )


def best_steps(problem):
    """The number of heat steps with the least error: our bandwidth."""

    def error(n_steps):
        return problem.error(
            own_model(problem, "auto", n_steps).fit(problem.known).transform(problem.new[:N_SCORED])
        )

    return min(STEPS, key=error)


def ours(problem, n_features, n_steps=None):
    """A row of this library, with the number of steps that it chooses itself, or another."""
    model = own_model(problem, n_features, n_steps)
    preparation = timed(lambda: model.fit(problem.known))[0]
    seconds, features = timed(lambda: model.transform(problem.new))
    method = f"manifoldrf, {model.n_features_out_} features{' (auto)' if n_features == 'auto' else ''}"
    if n_steps is None:
        return problem.row(method, preparation, seconds, features, BY_DEFAULT if n_features == "auto" else "")
    return problem.row(f"{method}, {n_steps} steps", preparation, seconds, features, "steps with the least error")


@functools.cache
def best_gamma(problem, kind):
    """The bandwidth with the least error, searched for with few features."""

    def error(gamma):
        model = kind(gamma=gamma, n_components=N_SEARCHED, random_state=0).fit(problem.known)
        return problem.error(model.transform(problem.new[:N_SCORED]))

    return min(BANDWIDTHS / (4 * problem.space.t), key=error)


def ambient(problem, kind, n_features):
    """Features of the Gaussian kernel of the space around, of the best bandwidth."""
    best = kind(gamma=best_gamma(problem, kind), n_components=n_features, random_state=0)
    preparation = timed(lambda: best.fit(problem.known))[0]
    seconds, features = timed(lambda: best.transform(problem.new))
    method = f"scikit-learn {kind.__name__}, {n_features} features"
    return problem.row(method, preparation, seconds, features, "the Gaussian kernel of the space around")


def heat_features(model, found, problem):
    """Heat features from what a diffusion map says of new points."""
    # pydiffmap returns P (psi / sqrt(-lambda)): divided by the eigenvalue of P, it is psi at new points.
    vectors = found * np.sqrt(-model.evals) / (1 + model.epsilon_fitted * model.evals)
    constant = np.full((len(found), 1), len(problem.known) ** -0.5)  # it leaves out the first eigenvector
    return np.hstack([constant, vectors * np.exp(model.evals * problem.space.t / 2)])


def diffusion_map(problem, epsilon, n_pairs):
    """A fitted diffusion map that corrects for the density."""
    return DiffusionMap.from_sklearn(alpha=1.0, k=64, epsilon=epsilon, n_evecs=n_pairs).fit(problem.known)


@functools.cache
def best_epsilon(problem, n_pairs):
    """The bandwidth with the least error, near the one that pydiffmap chooses itself."""

    def error(epsilon):
        model = diffusion_map(problem, epsilon, n_pairs)
        return problem.error(heat_features(model, model.transform(problem.new[:N_SCORED]), problem))

    own = diffusion_map(problem, "bgh", 1).epsilon_fitted
    return min((factor * own for factor in EPSILONS), key=error)


def diffusion_features(problem, n_pairs, n_searched):
    """Heat features from the eigenpairs of a diffusion map, extended as pydiffmap extends them."""
    epsilon = best_epsilon(problem, n_searched)
    preparation, model = once(lambda: diffusion_map(problem, epsilon, n_pairs))
    seconds, found = timed(lambda: heat_features(model, model.transform(problem.new), problem))
    return problem.row(f"pydiffmap, {n_pairs} eigenpairs", preparation, seconds, found)


def run(size):
    """Rows of all methods on all spaces."""
    wanted = SIZES[size]
    for name in SPACES:
        problem = Problem(name, wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few new points may be far from the known ones
            for n_features in (*wanted["features"], "auto"):
                yield ours(problem, n_features)
            if (n_steps := best_steps(problem)) is not None:
                yield ours(problem, "auto", n_steps)
        for kind in (Nystroem, RBFSampler):
            for n_features in wanted["features"]:
                yield ambient(problem, kind, n_features)
        for n_pairs in wanted["pairs"]:
            yield diffusion_features(problem, n_pairs, wanted["pairs"][0])
