"""A trained Gaussian process: GPyTorch with kernels of this library and of GeometricKernels.

``python -m benchmarks.peers.processes`` trains the time or length scale, the smoothness, the variance and the noise
of a process with 300 noisy values by 100 steps of Adam, and predicts 1000 others, on three data sets: waves on the
sphere, waves on the Stanford bunny (5000 vertices), and the mean curvature of the bunny. Rows are

* GPyTorch with ``ManifoldKernel``, a heat or a Matern kernel, from one fit with ``times``;
* GPyTorch with the kernel of GeometricKernels (Matern, 200 to 1000 eigenpairs, its default on meshes is 1000);
* ``ManifoldGaussianProcess`` with its defaults.

CPU seconds on one thread include everything: fit of the features or eigenpairs, training, prediction. NLPD is the
mean negative log density of the held-out noisy values, RMSE their error over the standard deviation.
Needs the environment of ``make bench-peers``; about five minutes.
"""

import argparse
import logging
import time
from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from manifoldrf import ManifoldGaussianProcess, ManifoldRandomFeatures, MaternKernel, Sphere
from manifoldrf.gpytorch import ManifoldKernel
from reproduction.mesh_data import builtin_mesh

N_TRAIN, N_NEW, N_STEPS, RATE, NOISE = 300, 1000, 100, 0.1, 0.1


@dataclass(frozen=True)
class Task:
    """A space, places of it, and noisy values there; the first ``N_TRAIN`` are known."""

    name: str
    space: object
    points: np.ndarray
    indices: np.ndarray | None  # of vertices
    values: np.ndarray
    times: tuple[float, float]  # range of heat times


def waves(points, rng):
    """A smooth function of mean 0 and standard deviation 1."""
    extent = np.ptp(points, axis=0).max()
    directions = rng.normal(size=(points.shape[1], 12))
    directions /= np.linalg.norm(directions, axis=0)
    found = np.cos(2 * np.pi * (2 * points @ directions / extent + rng.random(12))) @ rng.normal(size=12)
    return (found - found.mean()) / found.std()


def mean_curvature(mesh):
    """Mean curvature of the vertices, clipped to its middle 98 % and scaled."""
    import robust_laplacian

    laplacian, mass = robust_laplacian.mesh_laplacian(mesh.vertices, mesh.faces)
    normals = laplacian @ mesh.vertices / mass.diagonal()[:, None]
    found = np.log(np.linalg.norm(normals, axis=1) + 1e-9)
    found = np.clip(found, *np.quantile(found, [0.01, 0.99]))
    return (found - found.mean()) / found.std()


def tasks():
    """The three data sets."""
    rng = np.random.default_rng(0)
    points = Sphere().sample(N_TRAIN + N_NEW, seed=0)
    noisy = waves(points, rng) + NOISE * rng.normal(size=len(points))
    yield Task("sphere, waves", Sphere(), points, None, noisy, (0.02, 1.28))
    mesh = builtin_mesh("bunny", 5000).mesh
    chosen = rng.permutation(mesh.n_vertices)[: N_TRAIN + N_NEW]
    extent = np.ptp(mesh.vertices, axis=0).max()
    times = ((0.04 * extent) ** 2 / 2, (0.32 * extent) ** 2 / 2)
    noisy = waves(mesh.vertices, rng)[chosen] + NOISE * rng.normal(size=len(chosen))
    yield Task("bunny, waves", mesh, mesh.vertices[chosen], chosen, noisy, times)
    values = mean_curvature(mesh)[chosen]
    yield Task("bunny, mean curvature", mesh, mesh.vertices[chosen], chosen, values, times)


class Process(gpytorch.models.ExactGP):
    """An exact process with a constant mean."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        """The prior at places."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def trained(kernel, places, task):
    """Mean and variance of the held-out values, by a process that was trained on the others."""
    y = torch.as_tensor(task.values)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Process(places[:N_TRAIN], y[:N_TRAIN], likelihood, kernel).double()
    score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=RATE)
    model.train(), likelihood.train()
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = -score(model(places[:N_TRAIN]), y[:N_TRAIN])
        loss.backward()
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(places[N_TRAIN:]))
    return found.mean.numpy(), found.variance.numpy()


def by_ours(task, *, matern, seed):
    """GPyTorch with the kernel of this library; a fit with another seed is not taken from the fits before."""
    features = ManifoldRandomFeatures(times=task.times, random_state=seed, n_jobs=1).fit(task.space)
    middle = np.sqrt(task.times[0] * task.times[1])
    start = MaternKernel(2.5, np.sqrt(2 * middle), clock="manifold") if matern else middle
    return trained(ManifoldKernel(features, start), torch.as_tensor(task.points), task)


def by_default(task):
    """The process of this library with its defaults."""
    model = ManifoldGaussianProcess(space=task.space, random_state=0, n_jobs=1).fit(
        task.points[:N_TRAIN], task.values[:N_TRAIN]
    )
    mean, std = model.predict(task.points[N_TRAIN:], return_std=True, include_noise=True)
    return mean, std**2


def by_geometric_kernels(task, levels):
    """GPyTorch with the kernel of GeometricKernels."""
    logging.disable(logging.INFO)  # the package greets on import
    import geometric_kernels.torch  # noqa: F401  (makes it work on tensors)
    from geometric_kernels.frontends.gpytorch import GPyTorchGeometricKernel
    from geometric_kernels.kernels import MaternGeometricKernel
    from geometric_kernels.spaces import Hypersphere, Mesh

    if task.indices is None:
        base = MaternGeometricKernel(Hypersphere(2))
        places = torch.as_tensor(task.points)
    else:
        base = MaternGeometricKernel(Mesh(task.space.vertices, task.space.faces), num=levels)
        places = torch.as_tensor(task.indices[:, None])
    extent = np.sqrt(2 * np.sqrt(task.times[0] * task.times[1]))
    return trained(GPyTorchGeometricKernel(base, lengthscale=extent, nu=2.5, trainable_nu=True), places, task)


def methods(task):
    """Names and functions."""
    yield "GPyTorch + ManifoldKernel, heat", lambda: by_ours(task, matern=False, seed=1)
    yield "GPyTorch + ManifoldKernel, Matern", lambda: by_ours(task, matern=True, seed=2)
    yield "ManifoldGaussianProcess", lambda: by_default(task)
    for levels in (200, 1000) if task.indices is not None else (0,):
        pairs = f", {levels} eigenpairs" if levels else ""
        yield f"GPyTorch + GeometricKernels{pairs}", lambda levels=levels: by_geometric_kernels(task, levels)


def main():
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    print("| data | method | CPU seconds | NLPD | RMSE |\n|---|---|---|---|---|", flush=True)
    with threadpool_limits(1):
        for task in tasks():
            compare(task)


def compare(task):
    """Print a line for each method."""
    by_ours(task, matern=False, seed=0)  # loads what is loaded once
    for name, run in methods(task):
        begin = time.process_time()
        mean, variance = run()
        seconds = time.process_time() - begin
        gap = task.values[N_TRAIN:] - mean
        density = np.mean(gap**2 / variance + np.log(2 * np.pi * variance)) / 2
        rmse = np.sqrt(np.mean(gap**2)) / task.values.std()
        print(f"| {task.name} | {name} | {seconds:.1f} | {density:.3f} | {rmse:.3f} |", flush=True)


if __name__ == "__main__":
    main()
