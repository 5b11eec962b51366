"""A Gaussian process of 300 noisy values, and its prediction of 1000 others.

Time and variance are found by each library: GPyTorch takes 100 steps of Adam. Training is preparation. The error is
the root mean squared error of the predicted values over their standard deviation; the noise of .1 is part of it.
"""

import geometric_kernels.torch  # noqa: F401  (makes it work on tensors)
import gpytorch
import numpy as np
import torch
from geometric_kernels.frontends.gpytorch import GPyTorchGeometricKernel
from geometric_kernels.kernels import MaternGeometricKernel
from geometric_kernels.spaces import Hypersphere, Mesh

from benchmarks.peers.measure import OURS, Row, timed
from manifoldrf import ManifoldGaussianProcess, Sphere
from reproduction.mesh_data import builtin_mesh

N_TRAIN, N_NEW, N_STEPS, RATE, NOISE, N_WAVES, NU = 300, 1000, 100, 0.1, 0.1, 12, 2.5


class Problem:
    """A space, places of it, and noisy values there; the first ``N_TRAIN`` are known."""

    def __init__(self, task, space, points, indices=None):
        rng = np.random.default_rng(1)
        self.task, self.space, self.points, self.indices = task, space, points, indices
        self.extent = np.ptp(points, axis=0).max()
        directions = rng.normal(size=(3, N_WAVES))
        waves = 2 * points @ (directions / np.linalg.norm(directions, axis=0)) / self.extent + rng.random(N_WAVES)
        smooth = np.cos(2 * np.pi * waves) @ rng.normal(size=N_WAVES)
        self.values = (smooth - smooth.mean()) / smooth.std() + NOISE * rng.normal(size=len(points))

    def row(self, method, train, predict):
        """A row from functions that train a model, and that return the mean at the new places."""
        preparation, model = timed(train)
        seconds, mean = timed(lambda: predict(model))
        new = self.values[N_TRAIN:]
        return Row(self.task, method, preparation, seconds, np.sqrt(np.mean((mean - new) ** 2)) / new.std())


class Process(gpytorch.models.ExactGP):
    """An exact process with a constant mean."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        """The prior at places."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def in_gpytorch(problem, method, make_kernel, places):
    """A row of GPyTorch with a kernel."""
    places, values = torch.as_tensor(places), torch.as_tensor(problem.values)

    def train():
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        model = Process(places[:N_TRAIN], values[:N_TRAIN], likelihood, make_kernel()).double()
        score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=RATE)
        for _ in range(N_STEPS):
            optimizer.zero_grad()
            loss = -score(model(places[:N_TRAIN]), values[:N_TRAIN])
            loss.backward()
            optimizer.step()
        model.eval()
        return model

    def predict(model):
        model.train(), model.eval()  # forgets what it keeps of an earlier prediction
        with torch.no_grad():
            return model(places[N_TRAIN:]).mean.numpy()

    return problem.row(method, train, predict)


def by_features(problem):
    """The process of this library with its defaults."""

    def train():
        model = ManifoldGaussianProcess(space=problem.space, random_state=0, n_jobs=1)
        return model.fit(problem.points[:N_TRAIN], problem.values[:N_TRAIN])

    return problem.row(OURS, train, lambda model: model.predict(problem.points[N_TRAIN:]))


def by_geometric_kernels(problem, n_pairs=None):
    """GPyTorch with a kernel of GeometricKernels, of its default number of terms or of eigenpairs."""

    def make_kernel():
        space = Hypersphere(2) if problem.indices is None else Mesh(problem.space.vertices, problem.space.faces)
        base = MaternGeometricKernel(space, num=n_pairs)
        return GPyTorchGeometricKernel(base, lengthscale=0.1 * problem.extent, nu=NU, trainable_nu=True)

    places = problem.points if problem.indices is None else problem.indices[:, None]
    pairs = "" if n_pairs is None else f", {n_pairs} pairs"
    return in_gpytorch(problem, f"GPyTorch, GeometricKernels{pairs}", make_kernel, places)


def run(quick):
    """Rows of all methods on the sphere and on a mesh."""
    problem = Problem("process on a sphere", Sphere(), Sphere().sample(N_TRAIN + N_NEW, seed=0))
    yield by_features(problem)
    yield by_geometric_kernels(problem)
    mesh = builtin_mesh("bunny", 1500 if quick else 5000).mesh
    chosen = np.random.default_rng(0).permutation(mesh.n_vertices)[: N_TRAIN + N_NEW]
    problem = Problem(f"process on a mesh of {mesh.n_vertices:,} vertices", mesh, mesh.vertices[chosen], chosen)
    yield by_features(problem)
    yield by_geometric_kernels(problem, 100 if quick else 200)
