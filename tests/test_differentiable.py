"""Gradients by the parameters of a kernel and by positions, in torch and in GPyTorch."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import linalg
from torch.autograd import gradcheck
from torch.func import functional_call

from manifoldrf import (
    FlatTorus,
    HeatGraph,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldWarning,
    MaternKernel,
    Rotations,
    Sphere,
    load,
)
from manifoldrf.gpytorch import ManifoldKernel
from manifoldrf.torch import DifferentiableFeatures, ManifoldAttention

MATERN = MaternKernel(2.5, 1.2, clock="manifold")


@pytest.fixture(scope="module")
def family():
    return ManifoldRandomFeatures(times=(0.1, 2.4), random_state=0, n_jobs=1).fit(Sphere())


@pytest.fixture(scope="module")
def points():
    return torch.as_tensor(Sphere().sample(6, seed=1))


@pytest.mark.parametrize("kernel", [0.13, HeatKernel(0.3), MATERN])
def test_features_are_those_of_the_fit(family, points, kernel):
    module = DifferentiableFeatures(family, kernel, variance=2.0).double()
    exact = 2 * family.at(kernel).kernel_matrix(points.numpy())
    found = module(points)
    assert found.shape == (6, sum(len(level.anchors) for level in family.times_.levels))
    assert_allclose((found @ found.T).detach(), exact, atol=1e-5)
    assert_allclose(module.kernel(points).detach(), exact, atol=1e-5)
    assert_allclose(module.kernel(points.reshape(2, 3, 3)).detach()[1], exact[3:, 3:], atol=1e-5)


def test_no_points_have_no_rows(family):
    none = torch.ones(0, 3)
    for rows in (
        DifferentiableFeatures(family)(none),
        ManifoldAttention(family, 4)(none, torch.ones(0, 4)),
        ManifoldKernel(family)(none, none).to_dense(),
    ):
        assert len(rows) == 0


# .2 begins an octave, .21 is blended with the one before, .3 is not.
@pytest.mark.parametrize("t", [0.15, 0.2, 0.21, 0.3])
def test_gradients_by_the_time_are_exact(family, points, t):
    module = DifferentiableFeatures(family, t).double()

    def kernel(raw_t, log_variance):
        rows = functional_call(module, {"raw_t": raw_t, "log_variance": log_variance}, (points,))
        return rows @ rows.T

    assert gradcheck(kernel, (module.raw_t, module.log_variance))


def test_gradients_by_smoothness_and_length_are_exact(family, points):
    module = DifferentiableFeatures(family, MATERN).double()

    def kernel(log_nu, log_lengthscale):
        changed = {"log_nu": log_nu, "log_lengthscale": log_lengthscale}
        rows = functional_call(module, changed, (points,))
        return rows @ rows.T

    assert gradcheck(kernel, (module.log_nu, module.log_lengthscale))


def test_gradients_by_positions_are_exact(family, points):
    module = DifferentiableFeatures(family, 0.23).double()
    moved = points.clone().requires_grad_()
    assert gradcheck(lambda places: module.kernel(places, points[:2]), (moved,), atol=1e-5)
    fixed = DifferentiableFeatures(family.at(0.23)).double()
    assert gradcheck(lambda places: fixed.kernel(places, points[:2]), (moved,), atol=1e-5)


def test_gradients_stay_on_the_manifold_of_a_metric():
    graph = HeatGraph(n_nodes=300, n_steps=2)
    features = ManifoldRandomFeatures(HeatKernel(1.0), 80, graph=graph, random_state=0, n_jobs=1).fit(Rotations())
    module = DifferentiableFeatures(features).double()
    points = torch.tensor(Rotations().sample(1, seed=1), requires_grad=True)
    module(points).sum().backward()
    turn = np.kron(np.eye(3), [[0.0, -1, 0], [1, 0, 0], [0, 0, 0]])  # a tangent: turns each row
    along, step = points.detach().numpy() @ turn, 1e-4
    ends = [points.detach().numpy() @ linalg.expm(sign * step * turn) for sign in (1, -1)]
    slope = (features.transform(ends[0]) - features.transform(ends[1])).sum() / (2 * step)
    assert float((points.grad.numpy() * along).sum()) == pytest.approx(slope, rel=1e-4)


def test_modules_of_half_precision_keep_times_at_the_ends(family, points):
    for t in (0.1, 2.4):
        assert DifferentiableFeatures(family, t).bfloat16()(points).isfinite().all()
    with pytest.raises(TypeError, match="clock='manifold'"):
        DifferentiableFeatures(family, MaternKernel(1.5, 0.7))


@pytest.mark.parametrize("options", [{"kernel": HeatKernel(0.01)}, {"times": (0.01, 0.04)}])
def test_a_period_further_features_and_gradients_are_the_same(options):
    module = DifferentiableFeatures(
        ManifoldRandomFeatures(**options, random_state=0).fit(FlatTorus(dim=1))
    ).double()
    found = []
    for place in (0.3, 2.3):
        points = torch.tensor([[place]], dtype=torch.float64, requires_grad=True)
        rows = module(points)
        rows.sum().backward()
        found.append(np.append(rows.detach().numpy(), points.grad.numpy()))
    assert found[0].any()
    assert_allclose(found[1], found[0], atol=1e-6)


def test_the_kernel_and_its_slope_are_continuous_between_octaves(family, points):
    border = math.log(0.4)
    values, slopes = [], []
    for log_t in (border - 1e-4, border + 1e-4):
        module = DifferentiableFeatures(family, math.exp(log_t)).double()
        value = module.kernel(points)[0, 1]
        value.backward()
        values.append(value.item())
        slopes.append(module.raw_t.grad.item())
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-2)


def test_parameters_survive_their_state_and_features_their_file(family, points, tmp_path):
    module = DifferentiableFeatures(family, 0.3)
    other = DifferentiableFeatures(load(family.save(tmp_path / "model")), 0.7)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(points), module(points))


def test_exported_attention_has_the_values_of_the_module(family):
    places = torch.as_tensor(Sphere().sample(40, seed=2)).float()
    tokens = torch.as_tensor(np.random.default_rng(0).normal(size=(2, 40, 8))).float()
    module = ManifoldAttention(family, 8, n_heads=2, trainable_times=True, content_features=2)
    frozen = module.frozen(places)
    exported = torch.export.export(frozen, (tokens,)).module()
    torch.testing.assert_close(exported(tokens), module(places, tokens))


def test_heads_learn_their_times(family):
    places = torch.as_tensor(Sphere().sample(150, seed=3)).float()
    tokens = torch.as_tensor(np.random.default_rng(1).normal(size=(8, 150, 2))).float()
    true = (0.15, 1.2)
    teacher = ManifoldAttention([family.at(t) for t in true], 2, projections=False)
    target = teacher(places, tokens).detach()
    module = ManifoldAttention(family, 2, n_heads=2, trainable_times=True, projections=False)
    optimizer = torch.optim.Adam([each for each in module.parameters() if each.requires_grad], lr=0.2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((module(places, tokens) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
    # Features of both are accurate to 1 %, so the times can be found to a few per cent.
    assert [head.t.item() for head in module.head_times] == pytest.approx(true, rel=0.05)


def test_matern_kernels_that_leave_the_range_are_reported_once(family, points):
    module = DifferentiableFeatures(family, MATERN)
    with torch.no_grad():
        module.log_lengthscale.fill_(-3.0)
    with pytest.warns(ManifoldWarning, match="is not the Matern kernel"):
        module(points)
    module(points).sum().backward()  # in single precision, where the shares of long times underflow
    assert torch.isfinite(module.log_nu.grad)
    assert torch.isfinite(module.log_lengthscale.grad)


class Process(gpytorch.models.ExactGP):
    """An exact process with a fixed mean."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.mean_module.constant.data.fill_(float(y.mean()))
        self.mean_module.constant.requires_grad_(requires_grad=False)
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.fixture(scope="module")
def data():
    x = Sphere().sample(60, seed=4)
    noise = 0.05 * np.random.default_rng(5).normal(size=60)
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + noise


def process(x, y, kernel, variance, noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    model = Process(
        torch.as_tensor(x), torch.as_tensor(y), likelihood, gpytorch.kernels.ScaleKernel(kernel)
    ).double()
    model.covar_module.outputscale = variance
    return model, likelihood


def test_predictions_agree_with_the_process_of_the_library(data):
    x, y = data
    own = ManifoldGaussianProcess(
        HeatKernel(0.3), space=Sphere(), optimize=False, variance=1.5, noise_variance=0.01, random_state=0
    ).fit(x, y)
    model, likelihood = process(x, y, ManifoldKernel(own.features_), 1.5, 0.01)
    model.eval(), likelihood.eval()
    new = Sphere().sample(50, seed=6)
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        found = model(torch.as_tensor(new))
        mean, std = own.predict(new, return_std=True)
        assert_allclose(found.mean, mean, atol=1e-6)
        assert_allclose(found.variance.sqrt(), std, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The sum over the octaves")  # steps of the training may leave the range
@pytest.mark.parametrize("start", [0.15, MATERN])
def test_a_trained_kernel_is_at_least_as_likely(family, data, start):
    x, y = data
    own = ManifoldGaussianProcess(space=Sphere(), random_state=0).fit(x, y)
    model, likelihood = process(x, y, ManifoldKernel(family, start), 1.0, 0.01)
    likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.LBFGS(
        [each for each in model.parameters() if each.requires_grad], max_iter=40, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        value = -likelihood_of(model(*model.train_inputs), model.train_targets)
        value.backward()
        return value

    model.train(), likelihood.train()
    optimizer.step(loss)
    assert -len(y) * loss().item() > own.log_marginal_likelihood_ - 0.5


@pytest.mark.slow
def test_sparse_variational_processes_train(family, data):
    x, y = (torch.as_tensor(part) for part in data)

    class Variational(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.as_tensor(Sphere().sample(15, seed=7))
            distribution = gpytorch.variational.CholeskyVariationalDistribution(15)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = ManifoldKernel(family, 0.3)

        def forward(self, places):
            covariance = self.covar_module(places)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(places), covariance)

    model, likelihood = Variational().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.1)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = -bound(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
