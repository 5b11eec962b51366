"""How linear models on default features compare with a tuned RBF kernel on ordinary tables with all labels.

The tables come with scikit-learn: digits, breast cancer, diabetes, wine. Columns are standardised, except for the
pixels of digits, which have one unit. Scores are accuracies, R^2 on diabetes, over five folds of two splits, with
the standard error. The columns of the table:

* *RBF*: a support vector machine or regression with an RBF kernel; penalty and width are tuned;
* *columns*: a linear model of the columns; the penalty is tuned;
* *features*: ``LogisticRegression()`` or ``Ridge()`` on ``ManifoldRandomFeatures()``; nothing is tuned;
* *both*: the same on the columns and the features together; *tuned* has a tuned penalty.

All tuning is cross-validation in three folds of the training part. An argument selects tables.
"""

import sys
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, RepeatedKFold, RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, SVR

from manifoldrf import ManifoldRandomFeatures

TABLES = {"digits": load_digits, "breast cancer": load_breast_cancer, "diabetes": load_diabetes, "wine": load_wine}
COLUMNS = ("RBF", "columns", "features", "both", "both, tuned")


def models(table):
    """A model for each column."""
    regression = table == "diabetes"
    linear = Ridge() if regression else LogisticRegression(max_iter=200)
    rbf = SVR() if regression else SVC()
    name = type(linear).__name__.lower()
    penalties = {f"{name}__alpha": [0.1, 1, 10, 100]} if regression else {f"{name}__C": [0.01, 0.1, 1, 10]}
    widths = np.geomspace(0.03, 10.0, 6) / TABLES[table](return_X_y=True)[0].shape[1]
    kernel = {"svr__C" if regression else "svc__C": [1, 10, 100, 1000]}
    kernel |= {"svr__gamma" if regression else "svc__gamma": widths}

    def scaled(*steps):
        scale = FunctionTransformer(lambda X: X / 6) if table == "digits" else StandardScaler()
        return make_pipeline(scale, *steps)

    features = ManifoldRandomFeatures(random_state=0, n_jobs=1)
    both = scaled(make_union(FunctionTransformer(), features), linear)
    yield GridSearchCV(scaled(rbf), kernel, cv=3)
    yield GridSearchCV(scaled(linear), penalties, cv=3)
    yield scaled(features, linear)
    yield both
    yield GridSearchCV(both, penalties, cv=3)


def main():
    """Measure and print."""
    warnings.simplefilter("ignore")  # graphs of so many dimensions are rough, and say so
    print(f"| table | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    for table, load in TABLES.items():
        if "".join(sys.argv[1:2]) in table:
            kind = RepeatedKFold if table == "diabetes" else RepeatedStratifiedKFold
            folds = kind(n_splits=5, n_repeats=2, random_state=0)
            found = [cross_val_score(model, *load(return_X_y=True), cv=folds) for model in models(table)]
            cells = (f"{np.mean(s):.3f} ± {np.std(s, ddof=1) / np.sqrt(len(s)):.3f}" for s in found)
            print(f"| {table} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
