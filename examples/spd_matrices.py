"""
Covariance matrices as points of a curved space
===============================================

Recognise the part of a photograph that a window comes from, by the covariance of its colours and slopes.

Covariances are points of a curved space, the symmetric positive definite matrices. Their logarithms are vectors
whose distance is the log-Euclidean distance; features then follow the cloud of windows in that space.
The table compares the logarithm with the plain entries, for five labels of each of 24 parts of two photographs.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_images
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from manifoldrf import DiffusionKernel, KnnGraph, ManifoldRandomFeatures

WINDOW, STRIDE = 32, 10  # pixels
ROWS, COLUMNS = 3, 4  # parts of a photograph
LABELS, DRAWS = 5, 5


# %%
# Windows become 5 x 5 covariance matrices: of red, green, blue and both slopes.


def window_covariances(photograph):
    """Covariances of red, green, blue and both slopes in all windows, (n, 5, 5), and their middles, (n, 2)."""
    smooth = gaussian_filter(photograph / 255, (1, 1, 0))
    slopes = np.abs(np.stack(np.gradient(smooth.mean(axis=2)), axis=2))
    channels = np.concatenate([smooth, slopes], axis=2)
    windows = np.lib.stride_tricks.sliding_window_view(channels, (WINDOW, WINDOW), axis=(0, 1))[::STRIDE, ::STRIDE]
    places = np.stack(np.indices(windows.shape[:2]), axis=2).reshape(-1, 2) * STRIDE + WINDOW // 2
    values = windows.reshape(len(places), channels.shape[2], -1)
    values = values - values.mean(axis=2, keepdims=True)
    return values @ values.swapaxes(1, 2) / WINDOW**2, places


def read_windows():
    """Covariances, places, and the part of a photograph that the middle of each window is in."""
    matrices, places, parts = [], [], []
    for number, photograph in enumerate(load_sample_images().images):
        found, where = window_covariances(photograph)
        cells = where * (ROWS, COLUMNS) // photograph.shape[:2]
        matrices.append(found)
        places.append(where)
        parts.append(number * ROWS * COLUMNS + cells[:, 0] * COLUMNS + cells[:, 1])
    return np.concatenate(matrices), np.concatenate(places), np.concatenate(parts)


# %%
# Two ways to write the matrices as vectors: their plain entries, and those of their logarithms.


def plain_entries(matrices):
    """The matrices themselves as vectors, with the Frobenius distance."""
    rows, columns = np.triu_indices(matrices.shape[1])
    return matrices[:, rows, columns] * np.where(rows == columns, 1, np.sqrt(2))


def log_entries(matrices, ridge=1e-6):
    """The logarithms of the matrices as vectors; the ridge keeps those of singular ones finite."""
    values, vectors = np.linalg.eigh(matrices)
    return plain_entries((vectors * np.log(values + ridge)[:, None, :]) @ vectors.swapaxes(1, 2))


def judge(model, rows, parts):
    """Accuracies at unlabelled windows, one for each draw; and the last answers."""
    shares = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        chosen = [rng.choice(np.flatnonzero(parts == part), LABELS, replace=False) for part in np.unique(parts)]
        labelled = np.concatenate(chosen)
        answers = model.fit(rows[labelled], parts[labelled]).predict(rows)
        shares.append(np.delete(answers == parts, labelled).mean())
    return shares, answers


# %%
# Both metrics, with the nearest labelled window and with features of the cloud of all windows.

matrices, places, parts = read_windows()
print(f"{len(matrices)} windows in {parts.max() + 1} parts, {LABELS} labels each, {DRAWS} draws")
print(f"{'metric':<16}{'1-NN':>18}{'MRF + ridge':>18}")
found = {}
for metric, vectors in {"plain entries": plain_entries(matrices), "log-Euclidean": log_entries(matrices)}.items():
    # Plain entries are a thousand times denser in some regions than in others, so each edge has its own width.
    options = KnnGraph(bandwidth="local")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # windows of sky have few neighbours
        features = ManifoldRandomFeatures(
            DiffusionKernel(20.0), normalize=False, n_features=512, field="step", graph=options, random_state=0
        )
        rows = features.fit(vectors).transform(vectors)
    near, _ = judge(KNeighborsClassifier(1), vectors, parts)
    ours, answers = judge(make_pipeline(Normalizer(), RidgeClassifier(1.0, fit_intercept=False)), rows, parts)
    cells = [f"{np.mean(share):.3f} +- {np.std(share, ddof=1):.3f}" for share in (near, ours)]
    print(f"{metric:<16}{cells[0]:>18}{cells[1]:>18}")
    found[metric] = answers

# %%
# The photographs, the parts, and the parts predicted with either metric.

photographs = load_sample_images().images
figure, panels = plt.subplots(2, 4, figsize=(12, 4.6), layout="constrained")
half = len(places) // 2
for number, (line, photograph) in enumerate(zip(panels, photographs, strict=True)):
    own = slice(number * half, (number + 1) * half)
    height = len(np.unique(places[own, 0]))
    images = {"photograph": photograph, "parts": parts[own].reshape(height, -1)}
    images |= {f"found, {metric}": answers[own].reshape(height, -1) for metric, answers in found.items()}
    for axes, (title, image) in zip(line, images.items(), strict=True):
        axes.imshow(image, cmap="turbo", vmin=0, vmax=23, aspect="auto", interpolation="nearest")
        axes.set_title(title if number == 0 else "", fontsize=10)
        axes.axis("off")
plt.show()
