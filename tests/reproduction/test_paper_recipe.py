"""`ManifoldRandomFeatures.paper` is the recipe of the recorded experiment."""

import pytest

from manifoldrf import ManifoldRandomFeatures
from reproduction.surface_graphs import SURFACES
from reproduction.surfaces import SIZES, recipe_of


@pytest.mark.parametrize("name", SURFACES)
def test_the_recipe_of_the_table_is_that_of_the_estimator(name):
    """At the paper's size nothing is set but the neighbours, 24 on the strip."""
    config, n_neighbors = SIZES["paper"], SURFACES[name][1]
    assert n_neighbors == (24 if name == "mobius" else 8)
    recipe = ManifoldRandomFeatures.paper(graph__n_neighbors=n_neighbors)
    assert repr(recipe_of(config, n_neighbors).get_params()) == repr(recipe.get_params())
    found = {part: recipe.get_params()[part] for part in ("kernel", "graph", "teacher", "field")}
    assert found["kernel"].tau == config.tau == 20
    assert (found["graph"].n_neighbors, found["graph"].bandwidth) == (n_neighbors, config.bandwidth)
    assert found["graph"].density_correction == 0
    assert (found["teacher"].n_walks, found["teacher"].p_halt) == (config.n_walks, config.p_halt)
    for setting in ("epochs", "batch", "patience", "n_starts"):
        assert getattr(found["field"], setting) == getattr(config, setting)
    assert (recipe.n_features, recipe.anchors, recipe.quadrature, recipe.normalize) == (
        "all", "all", "uniform", False
    )  # fmt: skip
