"""ManifoldRandomFeatures as a scikit-learn transformer."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from manifoldrf import ManifoldRandomFeatures


@parametrize_with_checks([ManifoldRandomFeatures()])
@pytest.mark.filterwarnings("ignore")  # the data of the checks are blobs of a few points in many dimensions
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
