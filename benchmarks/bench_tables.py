"""How linear models on default features compare with a tuned RBF kernel on ordinary tables with all labels.

``python benchmarks/bench_tables.py`` takes the tables that come with scikit-learn: digits, breast cancer, diabetes,
wine. Columns are standardised, except for the pixels of digits, which have one unit. Scores are accuracies, R^2 on
diabetes, with the standard error over the folds. The columns of the table:

* *RBF*: a support vector machine or kernel ridge regression with an RBF kernel; penalty and width are tuned;
* *columns*: a linear model of the columns, tuned;
* *features*: ``LogisticRegression()`` or ``Ridge()`` on ``ManifoldRandomFeatures()``; nothing is tuned;
* *both*: the same on the columns and the features together; nothing is tuned;
* *features, tuned* and *both, tuned*: the penalty is tuned.

All tuning is cross-validation in the same three folds of the training part. ``--seeds 2`` splits tables twice,
``--only TEXT`` selects tables.
"""

import argparse
import itertools
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from manifoldrf import ManifoldRandomFeatures

TABLES = {"digits": load_digits, "breast cancer": load_breast_cancer, "diabetes": load_diabetes, "wine": load_wine}
ONE_UNIT, REGRESSION = ("digits",), ("diabetes",)
COLUMNS = ("RBF", "columns", "features", "both", "features, tuned", "both, tuned")
PENALTIES, PENALTIES_OF_COLUMNS = (1.0, 10.0, 100.0), (0.01, 0.1, 1.0, 10.0)  # C and 1 / alpha
WIDTHS = np.geomspace(0.03, 10.0, 6)  # gamma over 1 / (columns * variance), scikit-learn's "scale"


class Splits:
    """The training part of a fold with its three inner splits, and the features of each, computed once.

    A part is a pair of row numbers: to fit, and to score. The last part is the outer fold.
    """

    def __init__(self, table, rows, held_out):
        self.X, self.y = TABLES[table](return_X_y=True)
        self.table, self.regression = table, table in REGRESSION
        inner = folds(self.regression, 3, 0).split(self.X[rows], self.y[rows])
        self.parts = [*((rows[fit], rows[score]) for fit, score in inner), (rows, held_out)]
        self.columns = [self._columns(part) for part in self.parts]
        self.features = [self._of(*columns) for columns in self.columns]

    def _columns(self, part):
        fit, score = (self.X[rows] for rows in part)
        if self.table in ONE_UNIT:
            return fit / fit.std(), score / fit.std()
        scaler = StandardScaler().fit(fit)
        return scaler.transform(fit), scaler.transform(score)

    def _of(self, fit, score):
        model = ManifoldRandomFeatures(random_state=0)
        return model.fit_transform(fit), model.transform(score)

    def score(self, k, model, fit, score):
        """Score of a model on part k."""
        first, second = self.parts[k]
        offset = self.y[first].mean() if self.regression else 0  # kernel ridge regression has none
        return model.fit(fit, self.y[first] - offset).score(score, self.y[second] - offset)

    def tuned(self, candidates, run):
        """The outer score of the candidate with the best mean inner score."""
        last = len(self.parts) - 1
        best = max(candidates, key=lambda candidate: np.mean([run(k, *candidate) for k in range(last)]))
        return run(last, *best)

    def linear(self, penalty):
        """A linear model."""
        if self.regression:
            return Ridge(1 / penalty)
        return LogisticRegression(C=penalty, max_iter=200)

    def rbf(self, k, penalty, width):
        """Score of the RBF kernel on part k."""
        fit, score = self.columns[k]
        gamma = width / (fit.shape[1] * fit.var())
        model = KernelRidge(alpha=1 / penalty, kernel="rbf", gamma=gamma) if self.regression else None
        return self.score(k, model or SVC(C=penalty, gamma=gamma), fit, score)

    def of_columns(self, k, penalty):
        """Score of a linear model of the columns."""
        return self.score(k, self.linear(penalty), *self.columns[k])

    def of_features(self, k, penalty, *, both=False):
        """Score of a linear model of features, also with the columns."""
        rows = self.features[k]
        if both:
            rows = [np.hstack(pair) for pair in zip(rows, self.columns[k], strict=True)]
        return self.score(k, self.linear(penalty), *rows)

    def scores(self):
        """Scores of one fold, in the order of the columns of the table."""
        grid = [(penalty,) for penalty in PENALTIES]
        return (
            self.tuned(itertools.product((*PENALTIES, 1000.0), WIDTHS), self.rbf),
            self.tuned(((penalty,) for penalty in PENALTIES_OF_COLUMNS), self.of_columns),
            *(self.of_features(len(self.parts) - 1, 1.0, both=both) for both in (False, True)),
            self.tuned(grid, self.of_features),
            self.tuned(grid, lambda *args: self.of_features(*args, both=True)),
        )


def folds(regression, n, seed):
    """Random folds, with the same share of every class."""
    return (KFold if regression else StratifiedKFold)(n, shuffle=True, random_state=seed)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="splits of each table")
    parser.add_argument("--only", default="", help="tables whose name contains it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # graphs of so many dimensions are rough, and say so
    print(f"| table | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    for table in TABLES:
        if options.only not in table:
            continue
        X, y = TABLES[table](return_X_y=True)
        found = []
        for seed in range(options.seeds):
            for rows, held_out in folds(table in REGRESSION, 5, seed).split(X, y):
                found.append(Splits(table, rows, held_out).scores())
        errors = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(np.mean(found, axis=0), errors, strict=True))
        print(f"| {table} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
