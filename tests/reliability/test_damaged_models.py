"""Damaged files of models: always a ModelFileError that says why in one sentence, never another model."""

import itertools
import re
from contextlib import suppress

import numpy as np
import pytest
import trimesh
from reliability.strategies import quietly

from manifoldrf import (
    HeatKernel,
    KnnGraph,
    ManifoldRandomFeatures,
    ModelFileError,
    Sphere,
    TriangleMesh,
    knn_graph,
    load,
)
from manifoldrf._codec import read_container, write_container

BITS = [1 << k for k in range(8)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small file of each kind."""
    place = tmp_path_factory.mktemp("models")
    points = Sphere().grid(60)
    features = ManifoldRandomFeatures(HeatKernel(0.5), n_features=30, random_state=0).fit(points)
    quietly(features.save, place / "features.safetensors")
    knn_graph(points[:12], n_neighbors=3).save(place / "graph.safetensors")
    return place


@pytest.fixture(scope="module", params=["features", "graph"])
def whole(request, models):
    """The bytes of a small file of each kind."""
    return (models / f"{request.param}.safetensors").read_bytes()


def end_of_header(content):
    return 8 + int.from_bytes(content[:8], "little")


def refused(path, content):
    """The reason, in one sentence, why this content is no model."""
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert re.fullmatch(f"{re.escape(str(path))} cannot be loaded: [^\n]*\\.", str(caught.value))
    return str(caught.value).partition("loaded: ")[2]


def check_flips(path, content, flips):
    """No flip of bits is overlooked; the reasons, without what differs from file to file."""
    reasons = set()
    for place, bits in flips:
        altered = bytearray(content)
        altered[place] ^= bits
        reasons.add(re.sub(r"\d+|'[^']*'", "_", refused(path, altered)))
    return reasons


def test_every_byte_of_the_header_matters(tmp_path, whole):
    """Of larger ones every fifth, but in the slow tests."""
    rng = np.random.default_rng(0)
    size = end_of_header(whole)
    places = range(0, size, 1 if size < 2000 else 5)
    reasons = check_flips(tmp_path / "m", whole, ((place, BITS[rng.integers(8)]) for place in places))
    assert len(reasons) > 5  # not all for one and the same reason


@pytest.mark.slow
def test_every_bit_of_the_header_matters(tmp_path, whole):
    check_flips(tmp_path / "m", whole, itertools.product(range(end_of_header(whole)), [*BITS, 0xFF, 0x21]))


def test_flips_in_the_body_are_noticed_by_the_checksum(tmp_path, whole):
    rng = np.random.default_rng(1)
    places = rng.integers(end_of_header(whole), len(whole), 200)
    reasons = check_flips(tmp_path / "m", whole, zip(places, rng.integers(1, 256, 200).tolist(), strict=True))
    assert reasons == {"its checksum differs; it was altered after it was written."}


def test_files_cut_off_or_too_long_are_refused(tmp_path, whole):
    start = end_of_header(whole)
    ends = [*range(0, start, 97), *range(start - 8, start + 9), *range(start, len(whole), 3989), len(whole) - 1]
    for size in ends:
        refused(tmp_path / "m", whole[:size])
        if any(whole[size:]):
            refused(tmp_path / "m", whole[:size] + bytes(len(whole) - size))  # as a power cut may leave it
    for rest in (b"\0", b"{}", bytes(8), whole):
        assert "too long" in refused(tmp_path / "m", whole + rest)


@pytest.mark.parametrize("kind", ["sphere", "square", "mesh", "neighbours"])
def test_altered_arrays_with_a_valid_checksum_are_refused_or_harmless(tmp_path, global_seed, kind):
    """What a forged file can bring to the compiled loops: numbers and indices of any size in any array."""
    rng = np.random.default_rng(global_seed)
    spaces = {
        "sphere": (Sphere().grid(300) + 0.02 * rng.standard_normal((300, 3)), None),
        "square": (rng.uniform(size=(300, 2)), None),
        "mesh": (TriangleMesh.of(trimesh.creation.icosphere(subdivisions=1)), None),
        "neighbours": (Sphere().grid(60), KnnGraph()),
    }
    space, graph = spaces[kind]
    model = ManifoldRandomFeatures(HeatKernel(0.3), n_features=20, graph=graph, random_state=0)
    quietly(model.fit, space)
    quietly(model.save, tmp_path / "m")
    arrays, tree = read_container(tmp_path / "m")
    queries = quietly(lambda: model.graph_.positions[:20])
    for name, array in arrays.items():
        values = (-1.0, 1e300, np.nan) if array.dtype.kind == "f" else (-1, 2 ** (8 * array.itemsize - 1) - 1)
        for value in values if array.size and array.dtype.kind in "fi" else ():
            altered = array.copy()
            altered.flat[rng.integers(array.size)] = value
            write_container(tmp_path / "altered", arrays | {name: altered}, tree)
            with suppress(ModelFileError):
                quietly(quietly(load, tmp_path / "altered").transform, queries)


def test_a_file_where_another_is_wanted_is_named(program, models, tmp_path):
    np.save(tmp_path / "points.npy", Sphere().grid(5))
    graph, features = (models / f"{name}.safetensors" for name in ("graph", "features"))
    done = program.run("transform", graph, "points.npy", "-o", "new.npy", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"`MODEL` must be .*, with a Graph\.\n", done.err)
    done = program.run("fit", features, "-o", "new.safetensors", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("`INPUT` must be ")
    assert [path.name for path in tmp_path.iterdir()] == ["points.npy"]
