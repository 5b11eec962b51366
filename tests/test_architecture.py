"""The house rules that a machine can check: imports go one way, public names are complete, imports are quick."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import manifoldrf

PACKAGE = Path(manifoldrf.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# A module imports only from lower layers; within a layer (a folder), only as listed in ORDER.
LAYERS = [
    ("_compiling",),
    ("_validation", "_optional", "_philox", "_threads", "_notices"),
    ("_random", "_files", "metrics", "_colours", "_plain_text", "_field_kinds"),
    ("_container", "_arrays"),
    ("_codec",),
    ("geometry",),
    ("kernels",),
    ("signatures",),
    ("fields",),
    ("features",),
    ("baselines", "applications"),
    ("storage",),
    ("explorer",),
    ("distributed",),
    ("experiments",),
    ("report",),
    ("cli",),
]
# Inside a folder: each module imports only from those before it.
ORDER = {
    "_arrays": ["csv_text", "stored", "writing", "reading"],
    "geometry": [
        "_cells",
        "_compiled",
        "_sparse_loops",
        "_sparse",
        "_heat_series",
        "_normals",
        "_point_sets",
        "spd",
        "_steps",
        "abstract_manifold",
        "abstract_ball",
        "model_spaces",
        "surfaces",
        "manifolds",
        "_triangles",
        "_mesh_text",
        "_ply",
        "_glb",
        "_mesh_files",
        "meshes",
        "sampling",
        "neighbors",
        "_gaussian",
        "grading",
        "dimension",
        "density",
        "extension",
        "graphs",
        "adjacency",
        "builders",
        "node_weights",
        "heat",
    ],
    "kernels": [
        "_compiled",
        "_action",
        "_params",
        "_roots",
        "_series",
        "_spectra",
        "abstract_kernel",
        "graph_kernels",
        "manifold_kernels",
        "series",
        "shifted",
    ],
    "signatures": [
        "_streams",
        "walks",
        "counts",
        "frontier",
        "options",
        "_laws",
        "_engines",
        "_auto",
        "record",
        "teachers",
    ],
    "fields": [
        "_layers",
        "_products",
        "_step_rows",
        "_selection",
        "_tangent",
        "_local",
        "abstract_field",
        "_devices",
        "data",
        "anchors",
        "quadrature",
        "step",
        "tangent",
        "interpolated",
        "local",
        "geodesics",
        "_network",
        "_pairs",
        "mlp_options",
        "_training",
        "mlp",
    ],
    "features": [
        "_graph_integrity",
        "_integrity",
        "_kernel_access",
        "_params",
        "_points",
        "_products",
        "graph_features",
        "graph_options",
        "plans",
        "proximity",
        "sources",
        "spaces",
        "feature_map",
        "_reading",
        "errors",
        "_state",
        "fitting",
        "manifold_features",
    ],
    "baselines": [
        "_frequencies",
        "_base",
        "fourier",
        "positive",
        "gaussian",
        "nystrom",
        "_eigen",
        "spectral",
        "tuning",
    ],
    "applications": [
        "smoothing",
        "_known",
        "_solves",
        "_filling",
        "_choosing",
        "_places",
        "interpolation",
        "_labelled",
        "_lowrank",
        "_modes",
        "regression",
        "_linear",
        "_positions",
        "attention",
        "textures",
        "exhaustion",
    ],
    "explorer": ["_columns", "_views", "_fields", "_contents", "page"],
    "distributed": ["_connection", "_tasks", "_flow", "cluster"],
    "experiments": [
        "record",
        "_rounds",
        "surface_graphs",
        "teachers",
        "surfaces",
        "ambient",
        "_rings",
        "gaussian_grid",
        "_growth",
        "mesh_data",
        "texture_data",
        "texture_views",
        "_smoothers",
        "_normal_methods",
        "_normal_times",
        "normals",
        "_cloth",
        "_tfrecords",
        "sequences",
        "token_surfaces",
        "_token_anchors",
        "_token_methods",
        "attention",
        "_velocity_methods",
        "velocity",
        "_texture_rules",
        "_texture_methods",
        "brodatz",
        "_few_label_clouds",
        "_few_label_rules",
        "_few_label_methods",
        "few_labels",
        "_hyperbolic_recipes",
        "hyperbolic",
    ],
    "report": [
        "_palette",
        "_style",
        "_drawing",
        "_tables",
        "_blocks",
        "figures",
        "surfaces",
        "ambient",
        "grids",
        "interpolation",
        "attention",
        "brodatz",
        "few_labels",
        "hyperbolic",
        "catalogue",
        "_comparison",
        "_sections",
        "_markdown",
        "_html_style",
        "_html",
        "pages",
        "html_page",
    ],
    "cli": [
        "_signals",
        "_settings",
        "_groups",
        "_options",
        "_console",
        "_inputs",
        "facts",
        "fields",
        "models",
        "stages",
        "experiments",
        "program",
    ],
}
INTERNAL = {
    "neighbors",
    "extension",
    "node_weights",
    "walks",
    "counts",
    "frontier",
    "options",
    "density",
    "shifted",
    "data",
    "anchors",
    "quadrature",
    "step",
    "tangent",
    "interpolated",
    "local",
    "geodesics",
    "mlp",
    "mlp_options",
    "feature_map",
    "plans",
    "sources",
    "spaces",
    "smoothing",
    "abstract_ball",
}  # stages inside a stage: no names for users
LAZY = {"torch", "numba"}  # may be imported inside functions, because they load slowly


def stage(module):
    return module.removeprefix("manifoldrf.").split(".")[0]


def layer(module):
    return next(level for level, names in enumerate(LAYERS) if stage(module) in names)


def imported(tree):
    """(module name, line, is inside a function) of every import statement."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in inner
        elif isinstance(node, ast.ImportFrom):
            yield node.module, node.lineno, id(node) in inner


def own_imports(module):
    tree = ast.parse(MODULES[module].read_text())
    for name, line, _ in imported(tree):
        if name.split(".")[0] == "manifoldrf" and (stage(module), name) != ("cli", "manifoldrf"):
            yield name, line


CODE_MODULES = [name for name in MODULES if name != "manifoldrf" and MODULES[name].name != "__init__.py"]


@pytest.mark.parametrize("module", CODE_MODULES)
def test_imports_point_one_way(module):
    for name, line in own_imports(module):
        where = f"{module} line {line} imports {name}"
        assert name != "manifoldrf", f"{where}: the lazy names hide which layer they come from"
        if stage(name) != stage(module):
            assert layer(name) < layer(module), f"{where}, which is not a lower layer"
        else:
            order = ORDER[stage(module)]
            assert order.index(name.split(".")[-1]) < order.index(module.split(".")[-1]), f"{where}: a later module"


@pytest.mark.parametrize("module", CODE_MODULES)
def test_imports_stand_at_the_top(module):
    if stage(module) == "cli":
        pytest.skip("the command line imports what a command needs when it runs")
    tree = ast.parse(MODULES[module].read_text())
    inside = [(name, line) for name, line, inner in imported(tree) if inner and name.split(".")[0] not in LAZY]
    assert not inside


@pytest.mark.parametrize("module", CODE_MODULES)
def test_package_code_has_no_asserts(module):
    tree = ast.parse(MODULES[module].read_text())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("module", CODE_MODULES)
def test_files_are_short(module):
    assert len(MODULES[module].read_text().splitlines()) <= 450


def test_public_names_are_sorted_and_resolve():
    assert manifoldrf.__all__ == sorted(manifoldrf.__all__)
    assert set(manifoldrf.__all__) == set(manifoldrf._HOMES)
    for name in manifoldrf.__all__:
        value = getattr(manifoldrf, name)
        assert value.__name__ == name
        assert value.__module__ == f"manifoldrf.{manifoldrf._HOMES[name]}"
    assert set(manifoldrf.__all__) < set(dir(manifoldrf))


def test_public_names_are_complete():
    """Whatever a stage lists in its own ``__all__`` is importable from manifoldrf itself."""
    not_on_top = {"baselines", "experiments", "report", "cli"}
    for module in CODE_MODULES:
        short = module.split(".")[-1]
        if stage(module) in not_on_top or module.split(".")[1].startswith("_") or short.startswith("_"):
            continue
        if short in INTERNAL:
            continue
        names = importlib.import_module(module).__all__
        assert list(names) == sorted(names), module
        if module != "manifoldrf.applications.attention":
            assert set(names) <= set(manifoldrf.__all__), module


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {alias.name for node in block.body for alias in node.names}
    assert seen == set(manifoldrf.__all__)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'manifoldrf' has no attribute 'Spere'"):
        _ = manifoldrf.Spere


def test_public_names_have_docstrings_with_examples():
    for name in manifoldrf.__all__:
        if name != "GraphWarning":  # a warning category has nothing to call
            assert ">>> " in getattr(manifoldrf, name).__doc__, name


IMPORT_PROBE = """
import json, sys, time
start = time.process_time()  # not of the clock: a busy machine is not the package's fault
import manifoldrf
seconds = time.process_time() - start
print(json.dumps([seconds, [m for m in ("torch", "numba", "sklearn", "scipy") if m in sys.modules]]))
"""


def test_importing_the_package_is_quick_and_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", IMPORT_PROBE], capture_output=True, text=True, check=True)
    seconds, heavy = json.loads(done.stdout)
    assert seconds < 0.5
    assert heavy == []


def test_geometry_loads_neither_torch_nor_scikit_learn():
    code = "import sys, manifoldrf; manifoldrf.Sphere; print([m for m in ('torch', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
