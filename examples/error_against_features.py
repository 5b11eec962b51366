"""
Error against the number of features
====================================

How many features are enough? The picture shows the error of the kernel at new points, against the exact heat kernel
of the sphere, for three heat times. The error is large if anchors are farther apart than the kernel is wide. With
more anchors, it falls steeply to the error of the graph.

For comparison, random Fourier features approximate the Gaussian kernel with the corresponding width. Their error
falls like one over the root of their number: half the error needs four times as many features.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

from manifoldrf import HeatKernel, ManifoldRandomFeatures, ManifoldWarning, Sphere, relative_error

TIMES = {0.02: "#0072B2", 0.05: "#009E73", 0.2: "#D55E00"}
NUMBERS = 2 * np.round(np.geomspace(8, 512, 7)).astype(int)

# %%
# One fit for each number. Too few features cause a warning, which is expected here.

sphere = Sphere()
cloud, new = sphere.grid(2500), sphere.sample(400, seed=1)
errors = {}
for t in TIMES:
    exact = sphere.heat_kernel(new, new, t)
    for number in NUMBERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ManifoldWarning)
            features = ManifoldRandomFeatures(
                HeatKernel(t), normalize=False, n_features=int(number), random_state=0
            ).fit(cloud)
        errors.setdefault(t, []).append(relative_error(features.kernel_matrix(new), exact))

# %%
# The Gaussian kernel of the ambient space differs by a few per cent for any number of features. Random Fourier
# features are therefore compared with their own kernel.

fourier = []
for number in NUMBERS:
    rows = RBFSampler(gamma=1 / (4 * 0.05), n_components=int(number), random_state=0).fit(cloud).transform(new)
    fourier.append(relative_error(rows @ rows.T, rbf_kernel(new, gamma=1 / (4 * 0.05))))
slope = np.polyfit(np.log(NUMBERS), np.log(fourier), 1)[0]
print(f"random Fourier features: error ~ number^{slope:.2f}")
for t, found in errors.items():
    needed = NUMBERS[np.argmax(np.array(found) < 0.02)]
    print(f"t = {t}: error below 2 % from {needed} features on, {found[-1]:.4f} with {NUMBERS[-1]}")

# %%
# The triangles mark the number that ``n_features="auto"`` chooses.

figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
axes.loglog(NUMBERS, fourier, "s--", color="0.5", label=f"random Fourier features, slope {slope:.2f}")
for t, colour in TIMES.items():
    axes.loglog(NUMBERS, errors[t], "o-", color=colour, label=f"features of the sphere, t = {t}")
    chosen = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0).fit(cloud).n_features_out_
    axes.plot(
        chosen, np.exp(np.interp(np.log(chosen), np.log(NUMBERS), np.log(errors[t]))), "v", ms=13, color=colour
    )
axes.set(xlabel="number of features", ylabel="relative error of the kernel at new points")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
plt.show()
