"""Features of 10,000 new points from 4000 known ones, on spaces whose heat kernel is known in closed form.

A fit is preparation. The error is that of inner products of 512 new points against the heat kernel of the space,
relative, in the Frobenius norm, after the best common factor. Peers have the width with the least such error; the
search is in nobody's time.
"""

import warnings

import numpy as np
from pydiffmap.diffusion_map import DiffusionMap
from sklearn.kernel_approximation import Nystroem, RBFSampler

from benchmarks.known_spaces import roll, sphere
from benchmarks.peers.measure import OURS, Row, timed
from manifoldrf import HeatKernel, ManifoldRandomFeatures, relative_error

N_SCORED = 512
BANDWIDTHS = np.geomspace(0.4, 2.5, 11)  # over that of the Gaussian of the same time, 1 / (4 t)
EPSILONS = (0.125, 0.25, 0.5, 1.0)  # over pydiffmap's own choice
N_NEIGHBORS = 64  # of pydiffmap
N_SEARCHED = 50  # eigenpairs with which its epsilon is searched for


class Problem:
    """Known and new points of a space."""

    def __init__(self, space, n_known, n_new):
        self.task, self.t = f"new points, {space.name}, t = {space.t:g}", space.t
        rng = np.random.default_rng(0)
        self.known = space.embed(space.draw(n_known, rng))
        new = space.draw(n_new, rng)
        self.new, self.exact = space.embed(new), space.kernel(new[:N_SCORED], space.t)

    def error(self, rows):
        """Error of the kernel of some new points."""
        some = rows[:N_SCORED]
        return relative_error(some @ some.T, self.exact, alignment="least squares")

    def row(self, method, fit, transform):
        """A row from functions that fit a model, and that return features of all new points."""
        preparation, model = timed(fit)
        seconds, rows = timed(lambda: transform(model, self.new))
        return Row(self.task, method, preparation, seconds, self.error(rows))

    def best(self, candidates, fit, transform):
        """The candidate with the least error."""
        return min(candidates, key=lambda each: self.error(transform(fit(each), self.new[:N_SCORED])))


def features(problem):
    """Features with all options as they are."""
    model = ManifoldRandomFeatures(HeatKernel(problem.t), random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few new points may be far from the known ones
        return problem.row(OURS, lambda: model.fit(problem.known), ManifoldRandomFeatures.transform)


def gaussian(problem, kind, n_features):
    """Features of the Gaussian kernel of the coordinates."""

    def fit(gamma):
        return kind(gamma=gamma, n_components=n_features, random_state=0).fit(problem.known)

    gamma = problem.best(BANDWIDTHS / (4 * problem.t), fit, kind.transform)
    return problem.row(f"scikit-learn `{kind.__name__}`, {n_features} features", lambda: fit(gamma), kind.transform)


def diffusion_maps(problem, n_pairs):
    """Heat features from the eigenpairs of a diffusion map, extended as pydiffmap extends them."""

    def fit(epsilon, n_pairs=n_pairs):
        model = DiffusionMap.from_sklearn(alpha=1.0, k=N_NEIGHBORS, epsilon=epsilon, n_evecs=n_pairs)
        return model.fit(problem.known)

    def transform(model, points):
        # pydiffmap returns P (psi / sqrt(-lambda)): divided by the eigenvalue of P, it is psi at new points.
        vectors = model.transform(points) * np.sqrt(-model.evals) / (1 + model.epsilon_fitted * model.evals)
        constant = np.full((len(points), 1), len(problem.known) ** -0.5)  # it leaves out the first eigenvector
        return np.hstack([constant, vectors * np.exp(model.evals * problem.t / 2)])

    own = fit("bgh", 1).epsilon_fitted
    epsilon = problem.best([factor * own for factor in EPSILONS], lambda each: fit(each, N_SEARCHED), transform)
    return problem.row(f"pydiffmap, {n_pairs} pairs", lambda: fit(epsilon), transform)


def run(quick):
    """Rows of all methods on all spaces."""
    for space in (sphere(2, 0.05), roll(0.5, 0.03)):
        problem = Problem(space, *((800, 600) if quick else (4000, 10_000)))
        yield features(problem)
        yield gaussian(problem, Nystroem, 512)
        yield gaussian(problem, RBFSampler, 512)
        yield diffusion_maps(problem, 50 if quick else 300)
