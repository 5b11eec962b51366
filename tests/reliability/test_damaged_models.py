"""Damaged, swapped and newer files of models: always a ModelFileError that says why, never another model."""

import hashlib
import itertools
import json
import re

import numpy as np
import pytest

from manifoldrf import HeatKernel, ManifoldRandomFeatures, ModelFileError, Sphere, knn_graph, load
from manifoldrf._codec import _DIGEST, read_container, write_container
from manifoldrf.storage import REGISTRY

BITS = [1 << k for k in range(8)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small file of each kind."""
    place = tmp_path_factory.mktemp("models")
    points = Sphere().grid(60)
    features = ManifoldRandomFeatures(HeatKernel(0.5), n_features=30, random_state=0).fit(points)
    features.save(place / "features.safetensors")
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
    text = str(caught.value)
    assert text.startswith(f"{path} cannot be loaded: ")
    assert text.endswith(".")
    assert "\n" not in text
    return text.partition("loaded: ")[2]


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
    places = range(end_of_header(whole))
    check_flips(tmp_path / "m", whole, itertools.product(places, [*BITS, 0xFF, 0x21]))


@pytest.mark.slow
def test_every_other_value_of_the_first_bytes_is_noticed(tmp_path, whole):
    """All 255 of them, for the length and the first of the metadata."""
    check_flips(tmp_path / "m", whole, itertools.product(range(240), range(1, 256)))


def test_flips_in_the_body_are_noticed_by_the_checksum(tmp_path, whole):
    rng = np.random.default_rng(1)
    places = rng.integers(end_of_header(whole), len(whole), 500)
    reasons = check_flips(tmp_path / "m", whole, zip(places, rng.integers(1, 256, 500).tolist(), strict=True))
    assert reasons == {"its checksum differs; it was altered after it was written."}


def test_several_flips_at_once_are_noticed(tmp_path, whole):
    rng = np.random.default_rng(2)
    for _ in range(200):
        altered = np.frombuffer(whole, np.uint8).copy()
        places = rng.choice(len(whole), rng.integers(2, 50), replace=False)
        altered[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
        refused(tmp_path / "m", altered.tobytes())


def test_files_cut_off_at_any_length_are_refused(tmp_path, whole):
    start = end_of_header(whole)
    for size in [*range(0, start, 7), *range(start - 8, start + 9), *range(start, len(whole), 61), len(whole) - 1]:
        reason = refused(tmp_path / "m", whole[:size])
        expected = "empty" if size == 0 else "not a safetensors file" if size <= 8 else "cut off"
        assert expected in reason


def test_files_whose_end_was_never_written_are_refused(tmp_path, whole):
    """Zeros, as a file system may leave them after a power cut."""
    for size in np.linspace(1, len(whole) - 100, 50).astype(int):
        refused(tmp_path / "m", whole[:size] + bytes(len(whole) - size))


@pytest.mark.parametrize("rest", [b"\0", b"\n", b"{}", bytes(8), b"x" * 4096])
def test_bytes_after_the_end_are_refused(tmp_path, whole, rest):
    assert refused(tmp_path / "m", whole + rest).startswith("it is cut off, altered or too long (")


def test_two_files_in_one_are_refused(tmp_path, whole):
    assert "too long" in refused(tmp_path / "m", whole + whole)


# ------------------------------------------------------------------------------------------------ swapped things
def parts(content):
    """Entries of the header, and the arrays behind it."""
    start = end_of_header(content)
    return json.loads(content[8:start]), content[start:]


def joined(header, body):
    """A file of these, with the checksum that the header has."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + body


def signed(content):
    """The file with its right checksum."""
    found = _DIGEST.search(content)
    blank = content[: found.start(1)] + b"0" * 64 + content[found.end(1) :]
    digest = hashlib.blake2b(blank, digest_size=32).hexdigest().encode()
    return blank[: found.start(1)] + digest + blank[found.end(1) :]


def pairs_of_equal_size(header):
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for first, second in itertools.combinations(entries, 2):
        sizes = [np.diff(entries[name]["data_offsets"]).item() for name in (first, second)]
        if sizes[0] == sizes[1] > 0:
            yield first, second


def test_swapped_arrays_are_noticed(tmp_path, models):
    """The bytes of two arrays in each other's place, or their names: found by the checksum."""
    header, body = parts((models / "features.safetensors").read_bytes())
    tried = 0
    for first, second in pairs_of_equal_size(header):
        spans = [slice(*header[name]["data_offsets"]) for name in (first, second)]
        changed = bytearray(body)
        changed[spans[0]], changed[spans[1]] = body[spans[1]], body[spans[0]]
        named = dict(header) | {first: header[second], second: header[first]}
        for content in (joined(header, bytes(changed)), joined(named, body)):
            if bytes(changed) != body:
                assert "checksum" in refused(tmp_path / "m", content)
                tried += 1
    assert tried > 0


def test_the_body_of_another_file_is_refused(tmp_path, models):
    contents = [path.read_bytes() for path in models.iterdir()]
    for own, other in itertools.permutations(contents, 2):
        refused(tmp_path / "m", own[: end_of_header(own)] + other[end_of_header(other) :])


def test_a_file_where_another_is_wanted_is_named(program, models, tmp_path):
    np.save(tmp_path / "points.npy", Sphere().grid(5))
    graph, features = (models / f"{name}.safetensors" for name in ("graph", "features"))
    done = program.run("transform", graph, "points.npy", "-o", "new.npy", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"`MODEL` must be a file written by `manifoldrf fit`\. Got .*, with a Graph\.\n", done.err)
    done = program.run("fit", features, "-o", "new.safetensors", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("`INPUT` must be ")
    assert [path.name for path in tmp_path.iterdir()] == ["points.npy"]


# --------------------------------------------------------------------------------------------- other versions
@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("2", "it has format 2, and this version of manifoldrf reads up to 1; a newer one made it."),
        ("999999999", "it has format 999999999, and this version"),
        ("0", "it does not say which version of the format it has."),
        ("-1", "it does not say which version"),
        ("1.5", "it does not say which version"),
        ("", "it does not say which version"),
        (2, "it does not say which version"),
        (None, "it does not say which version"),
    ],
)
def test_other_versions_of_the_format_are_named_even_with_the_right_checksum(tmp_path, whole, version, reason):
    header, body = parts(whole)
    header["__metadata__"]["format_version"] = version
    assert refused(tmp_path / "m", signed(joined(header, body))).startswith(reason)


def test_a_newer_file_is_one_sentence_on_the_command_line(program, models, tmp_path):
    header, body = parts((models / "features.safetensors").read_bytes())
    header["__metadata__"]["format_version"] = "2"
    (tmp_path / "new.safetensors").write_bytes(signed(joined(header, body)))
    np.save(tmp_path / "points.npy", Sphere().grid(5))
    done = program.run("transform", "new.safetensors", "points.npy", "-o", "f.npy", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    reason = "it has format 2, and this version of manifoldrf reads up to 1; a newer one made it."
    assert done.err == f"new.safetensors cannot be loaded: {reason}\n"


def classes(tree):
    """All places of a description that name a class."""
    if isinstance(tree, dict):
        if set(tree) == {"class", "fields"}:
            yield tree
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else []:
        yield from classes(part)


def with_class(path, number, name):
    """The file with another name of a class, and the right checksum."""
    arrays, meta = read_container(path)
    list(classes(meta))[number]["class"] = name
    return write_container(path.with_name("changed"), arrays, meta).read_bytes()


@pytest.mark.parametrize("name", ["Klein", "object", "os.system", "", "Graph "])
def test_every_class_of_a_file_may_be_unknown(tmp_path, whole, name):
    path = tmp_path / "m"
    path.write_bytes(whole)
    for number in range(len(list(classes(read_container(path)[1])))):
        reason = refused(tmp_path / "n", with_class(path, number, name))
        assert reason == f"it holds a {name!r}, a class that this version does not know."


@pytest.mark.parametrize("name", ["graph", pytest.param("features", marks=pytest.mark.slow)])
def test_classes_that_take_the_place_of_others_give_a_model_or_the_one_error(tmp_path, models, name):
    """With the right checksum, as only a program that means it writes it: one kernel for another is a model."""
    path = tmp_path / "m"
    path.write_bytes((models / f"{name}.safetensors").read_bytes())
    n_classes, n_refused = len(list(classes(read_container(path)[1]))), 0
    for number, other in itertools.product(range(n_classes), sorted(REGISTRY)):
        with_class(path, number, other)
        try:
            load(tmp_path / "changed")
        except ModelFileError:
            n_refused += 1
    assert n_refused > 0.8 * n_classes * len(REGISTRY)
