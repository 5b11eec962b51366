"""
Digits from a few labels
========================

Recognise handwritten digits from one to ten labels per digit, with a linear classifier on features of all images.

The features are fitted to all images and need no labels; the classifier is fitted to the labelled images. The
picture shows the accuracy at images that no method has seen, as mean and standard deviation over draws of the
labels.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from manifoldrf import DiffusionKernel, KnnGraph, ManifoldRandomFeatures

LABELS = (1, 2, 5, 10)  # for each digit
DRAWS = 5
TAUS = (20.0, 60.0)  # steps of the walk along the images


# %%
# The methods. Cross-validation on the labels chooses the time and the penalty of our method and the parameters of
# the support vector machine; label spreading has its defaults.


def pick(tau, n):
    """Take the columns of one of the kernels, all of which stand side by side."""
    place = TAUS.index(tau)
    return FunctionTransformer(lambda rows: rows[:, place * n : (place + 1) * n])


def on_features(n):
    """Rows of length one, then ridge; the labels choose time and penalty."""
    model = make_pipeline(pick(TAUS[0], n), Normalizer(), RidgeClassifier(fit_intercept=False))
    choices = {"functiontransformer": [pick(tau, n) for tau in TAUS], "ridgeclassifier__alpha": [0.01, 1.0]}
    return model, choices


def tuned(model, choices, points, classes, per_class):
    """Cross-validate on the labelled points; with one label per class the defaults are used."""
    if per_class == 1:
        return model.fit(points, classes)
    return GridSearchCV(model, choices, cv=min(per_class, 5)).fit(points, classes)


def spread(images, new, labelled, classes):
    """Label spreading with its defaults on a graph of ten neighbours, not tuned as the others are."""
    partial = np.full(len(images), -1)
    partial[labelled] = classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # images that no label reaches
        return LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100).fit(images, partial).predict(new)


def compare(images, truth, new, new_truth, rows, new_rows):
    """Accuracies at new images, (method, number of labels) -> one for each draw."""
    found = {}
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        order = [rng.permutation(np.flatnonzero(truth == digit)) for digit in range(10)]
        for k in LABELS:
            labelled = np.concatenate([own[:k] for own in order])
            classes = truth[labelled]
            ours = tuned(*on_features(rows.shape[1] // len(TAUS)), rows[labelled], classes, k)
            svm = tuned(SVC(), {"C": [1, 10], "gamma": [5e-4, 2e-3]}, images[labelled], classes, k)
            near = KNeighborsClassifier(1).fit(images[labelled], classes)
            answers = {
                "MRF + ridge": ours.predict(new_rows),
                "LabelSpreading, default": spread(images, new, labelled, classes),
                "SVM": svm.predict(new),
                "1-NN": near.predict(new),
            }
            for method, predicted in answers.items():
                found.setdefault((method, k), []).append(np.mean(predicted == new_truth))
    return found


# %%
# Features of all images, once; then many draws of labels.

points, classes = load_digits(return_X_y=True)
images, new, truth, new_truth = train_test_split(points, classes, test_size=0.25, random_state=0)
maps = [
    ManifoldRandomFeatures(
        DiffusionKernel(tau), normalize=False, n_features=512, field="step", graph=KnnGraph(), random_state=0
    )
    for tau in TAUS
]
rows = np.hstack([features.fit(images).transform(images) for features in maps])
new_rows = np.hstack([features.transform(new) for features in maps])
found = compare(images, truth, new, new_truth, rows, new_rows)
methods = list(dict.fromkeys(method for method, _ in found))
print(f"{len(images)} images with {rows.shape[1]} features, {len(new)} new ones")
print(f"{'labels for each digit':<26}" + "".join(f"{k:>16}" for k in LABELS))
for method in methods:
    cells = [f"{np.mean(found[method, k]):.3f} +- {np.std(found[method, k], ddof=1):.3f}" for k in LABELS]
    print(f"{method:<26}" + "".join(f"{cell:>16}" for cell in cells))

# %%
# With one label per digit nothing can be tuned, and defaults are used.

figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
for method, colour in zip(methods, ("black", "#D55E00", "#0072B2", "#009E73"), strict=True):
    means = [np.mean(found[method, k]) for k in LABELS]
    spreads = [np.std(found[method, k], ddof=1) for k in LABELS]
    axes.errorbar(LABELS, means, spreads, label=method, color=colour, marker="o", capsize=3)
axes.set_xscale("log")
axes.set_xticks(LABELS, [str(k) for k in LABELS])
axes.minorticks_off()
axes.set(xlabel="labels for each digit", ylabel="accuracy at new images")
axes.grid(alpha=0.3)
axes.legend(frameon=False, loc="lower right")
plt.show()

# %%
# The most confident errors with ten labels per digit are hard for people, too.

labelled = np.concatenate([np.flatnonzero(truth == digit)[:10] for digit in range(10)])
model = make_pipeline(Normalizer(), RidgeClassifier(0.01, fit_intercept=False))
half = rows.shape[1] // 2
scores = model.fit(rows[labelled, :half], truth[labelled]).decision_function(new_rows[:, :half])
answers = scores.argmax(axis=1)
lead = scores.max(axis=1) - scores[np.arange(len(new)), new_truth]
worst = np.argsort(-lead)[: np.count_nonzero(answers != new_truth)][:12]
figure, panels = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
for axes in panels.flat:
    axes.axis("off")
for axes, place in zip(panels.flat, worst, strict=False):
    axes.imshow(new[place].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"{new_truth[place]} read as {answers[place]}", fontsize=10)
plt.show()
