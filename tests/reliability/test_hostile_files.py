"""Files of strangers: whatever they hold, they are read or refused in one sentence, in bounded time and memory.

Every file is read in a process of its own by :mod:`reliability.fuzz_files`, which says what is allowed there.
"""

import base64
import functools
import io
import json
import os
import re
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import trimesh
from marks import quick_ones
from oracles import sphere_mesh
from PIL import Image
from reliability import loaders
from reliability.fuzz_files import MEMORY_EXTRA, attempt, fuzz, make_case
from reliability.mutations import close_model, open_model

from manifoldrf import DiffusionKernel, ManifoldRandomFeatures, ModelFileError, Sphere, TriangleMesh, load
from manifoldrf._codec import _MAX_HEADER
from manifoldrf.geometry.meshes import is_doubled

QUICK = {"model": 100, "graph": 100}  # cases in the quick tests; 50 of the others


@functools.cache
def loader(name):
    """A loader with its seeds; small graphs stand for models where any model will do."""
    return loaders.LOADERS[name]()


def assert_kept(tally):
    """No promise was broken; else say which, and how to see the case again."""
    assert not tally.failures, [f"case {number}: {reason}" for number, reason, _ in tally.failures[:5]]


def assert_refused(name, *files):
    """All files are refused as documented, within the bounds."""
    tally = attempt(loader(name), *files)
    assert_kept(tally)
    assert (tally.refused, tally.accepted) == (len(files), 0)


def assert_read(name, *files):
    tally = attempt(loader(name), *files)
    assert_kept(tally)
    assert tally.accepted == len(files)


# -------------------------------------------------------------------------------------------------------- by chance
@pytest.mark.parametrize("name", loaders.LOADERS)
def test_damaged_files_are_read_or_refused_within_bounds(name):
    assert_kept(fuzz(loader(name), QUICK.get(name, 50), seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("name", loaders.LOADERS)
def test_as_many_damaged_files_as_promised_are_read_or_refused_within_bounds(name):
    assert_kept(fuzz(loader(name), loader(name).cases, seed=0))


def test_a_hundred_thousand_damaged_files_are_tried_in_all():
    assert sum(loader(name).cases for name in loaders.LOADERS) >= 100_000


def test_a_case_follows_from_its_seed_and_number():
    ply = loader("ply")
    cases = [make_case(ply, 0, number) for number in range(50)]
    assert cases == [make_case(ply, 0, number) for number in range(50)]
    assert len(set(cases)) > 40
    assert cases != [make_case(ply, 1, number) for number in range(50)]


def crash(path):
    os.kill(os.getpid(), 9)


def hang(path):
    while True:
        pass


def swell(path):
    return np.ones(MEMORY_EXTRA // 6).sum()


def pry(path):
    return Path("/etc/hostname").read_bytes() and None


def stumble(path):
    return {}[path]


def mumble(path):
    raise ValueError("something is wrong")


def grumble(path):
    warnings.warn("a file like this", UserWarning, stacklevel=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load_badly", "words"),
    [
        (crash, "died"),
        (hang, "more than 0.3 s"),
        (swell, "MB for a file"),
        (pry, "events: open"),
        (stumble, "KeyError"),
        (mumble, "does not name the file"),
        (grumble, "a warning"),
    ],
)
def test_what_breaks_a_promise_is_reported(load_badly, words):
    """A test of the tests."""
    bad = loaders.Loader("bad", "", [], (), load_badly, seconds=0.3)
    ((_, reason, data),) = attempt(bad, b"bytes").failures
    assert words in reason
    assert data == b"bytes"


# ---------------------------------------------------------------------------------------------- declared-size bombs
def ply(header, body=b""):
    return f"ply\nformat {header}\nend_header\n".encode() + body


LONG = "property list uint int i\n"
BELOW = "property list int int i\n"
XYZ = "property float x\nproperty float y\nproperty float z\n"
LIST = "property list uchar int vertex_indices\n"
LITTLE = "binary_little_endian 1.0\n"
PLY_BOMBS = {
    "vertices of a text": ply(f"ascii 1.0\nelement vertex {10**18}\n{XYZ}element face 1\n{LIST}", b"0 0 0\n"),
    "vertices of bytes": ply(f"{LITTLE}element vertex {2**31 - 1}\n{XYZ}element face 1\n{LIST}", bytes(100)),
    "a number beyond 64 bits": ply(f"{LITTLE}element vertex {2**64}\n{XYZ}", bytes(100)),
    "a number of 5000 digits": ply(f"{LITTLE}element vertex {'9' * 5000}\n{XYZ}", bytes(100)),
    "a list": ply(f"{LITTLE}element vertex 1\n{XYZ}element face 1\n{LONG}", bytes(12) + b"\xff" * 40),
    "a list below zero": ply(f"{LITTLE}element vertex 1\n{XYZ}element face 1\n{BELOW}", bytes(12) + b"\xff" * 40),
    "a face of a text": ply(
        f"ascii 1.0\nelement vertex 1\n{XYZ}element face 1\n{LIST}", b"0 0 0\n999999999 0 0 0\n"
    ),
    "an element of nothing": ply(f"{LITTLE}element void {10**18}\nelement vertex 1\n{XYZ}", bytes(12)),
    "properties": ply(f"{LITTLE}element vertex 1\n{XYZ}" + "property list uchar int a\n" * 20_000, bytes(100_000)),
    "blank lines": ply(f"ascii 1.0\nelement vertex 3\n{XYZ}element face 1\n{LIST}", b"\n" * 2_000_000),
    "short lines": ply(f"ascii 1.0\nelement vertex 3000000\n{XYZ}element face 1\n{LIST}", b"0 0 0\n" * 500_000),
}


# Files of millions of lines take longest; the quick tests have one of them.
MILLIONS = {"short lines", "blank lines", "a line without end"}


@pytest.mark.parametrize("bomb", quick_ones(PLY_BOMBS, *(PLY_BOMBS.keys() - MILLIONS)))
def test_a_ply_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("ply", PLY_BOMBS[bomb])


OBJ_BOMBS = {
    "blank lines": b"\n" * 2_000_000,
    "a line without end": b"f " + b"1 " * 2_000_000,
    "a line that always goes on": b"v 0 0 0\nf 1 " + b"\\\n" * 2_000_000,
    "an index beyond 64 bits": b"v 0 0 0\nf 1 1 99999999999999999999\n",
    "an index of 5000 digits": b"v 0 0 0\nf 1 1 " + b"9" * 5000,
    "a distant index": b"v 0 0 0\nf 1 1 9000000000000000000\n",
    "a distant index from the end": b"v 0 0 0\nf 1 1 -9000000000000000000\n",
}


@pytest.mark.parametrize("bomb", quick_ones(OBJ_BOMBS, *(OBJ_BOMBS.keys() - MILLIONS)))
def test_an_obj_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("obj", OBJ_BOMBS[bomb])


OFF_BOMBS = {
    "vertices": f"OFF {10**18} 1 0\n0 0 0\n".encode(),
    "faces": f"OFF 3 {10**18} 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n".encode(),
    "below zero": b"OFF -3 1 0\n0 0 0\n",
    "a face": b"OFF 3 1 0\n0 0 0\n1 0 0\n0 1 0\n999999999 0 1 2\n",
    "blank lines": b"OFF 3 1 0\n" + b"\n" * 2_000_000,
}


@pytest.mark.parametrize("bomb", quick_ones(OFF_BOMBS, *(OFF_BOMBS.keys() - MILLIONS)))
def test_an_off_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("off", OFF_BOMBS[bomb])


def test_an_stl_file_takes_no_more_than_it_has_bytes_for():
    count = struct.pack("<I", 2**32 - 1)
    assert_refused(
        "stl", bytes(80) + count, bytes(80) + count + bytes(500), b"solid" + bytes(75) + count + bytes(50)
    )


def test_an_stl_text_of_many_solids_is_read_in_no_time():
    solid = b"solid\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendsolid\n"
    assert_read("stl", solid * 20_000)


def glb(tree, body=b"", length=None):
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    chunk = struct.pack("<I4s", len(body), b"BIN\0") + body
    size = len(text) if length is None else length
    return struct.pack("<4sIIII", b"glTF", 2, 20 + len(text) + len(chunk), size, 0x4E4F534A) + text + chunk


TRIANGLE = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], "<f4").tobytes()


def scene(**changes):
    """A glb tree of one triangle, with other parts where they are given."""
    tree = {
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}],
        "buffers": [{"byteLength": 36}],
    }
    return {**tree, **changes}


def accessor(**changes):
    return scene(accessors=[{**scene()["accessors"][0], **changes}])


def view(**changes):
    return scene(bufferViews=[{**scene()["bufferViews"][0], **changes}])


CHAIN = [{"children": [k + 1], "mesh": 0} for k in range(20_000)] + [{"mesh": 0}]
LARGE = np.zeros((20_000, 3), "<f4").tobytes()
GLB_BOMBS = {
    "a count": glb(accessor(count=10**15), TRIANGLE),
    "numbers without bytes": glb(
        scene(accessors=[{"componentType": 5126, "count": 10**9, "type": "VEC3"}]), TRIANGLE
    ),
    "sparse numbers": glb(accessor(sparse={"count": 10**9}), TRIANGLE),
    "a count below zero": glb(accessor(count=-3), TRIANGLE),
    "a place below zero": glb(accessor(byteOffset=-12), TRIANGLE),
    "a place beyond the end": glb(accessor(byteOffset=10**12), TRIANGLE),
    "a view beyond the end": glb(view(byteLength=10**12), TRIANGLE),
    "a stride below zero": glb(view(byteStride=-12), TRIANGLE),
    "overlapping rows": glb(
        scene(
            accessors=[{**scene()["accessors"][0], "count": 24}],
            bufferViews=[{"buffer": 0, "byteLength": 36, "byteStride": 1}],
        ),
        TRIANGLE,
    ),
    "many copies of a part": glb(
        scene(
            scenes=[{"nodes": list(range(5000))}],
            nodes=[{"mesh": 0}] * 5000,
            accessors=[{**scene()["accessors"][0], "count": 19_998}],
            bufferViews=[{"buffer": 0, "byteLength": len(LARGE)}],
            buffers=[{"byteLength": len(LARGE)}],
        ),
        LARGE,
    ),
    "many parts of one view": glb(
        scene(
            meshes=[{"primitives": [{"attributes": {"POSITION": 0}}] * 5000}],
            accessors=[{**scene()["accessors"][0], "count": 19_998}],
            bufferViews=[{"buffer": 0, "byteLength": len(LARGE)}],
            buffers=[{"byteLength": len(LARGE)}],
        ),
        LARGE,
    ),
    "many nodes": glb(scene(scenes=[{"nodes": list(range(600_000))}], nodes=[{}] * 600_000), TRIANGLE),
    "many buffers": glb(scene(buffers=[{"byteLength": 36}, *[{}] * 1_900_000]), TRIANGLE),
    "a buffer without bytes": glb(scene()),
    "a node inside itself": glb(scene(nodes=[{"mesh": 0, "children": [0]}]), TRIANGLE),
    "a node at two places": glb(scene(scenes=[{"nodes": [0, 0]}]), TRIANGLE),
    "a long text": glb(scene(), TRIANGLE, length=2**32 - 1),
    "a deep text": glb(b'{"a":' * 100_000 + b"0" + b"}" * 100_000, TRIANGLE),
    "numbers that are none": glb(scene(nodes=[{"mesh": 0, "matrix": [1e308] * 16}]), TRIANGLE),
}


@pytest.mark.parametrize("bomb", GLB_BOMBS)
def test_a_glb_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("glb", GLB_BOMBS[bomb])


def test_a_glb_file_of_a_long_chain_of_nodes_is_read_in_no_time():
    assert_read("glb", glb(scene(), TRIANGLE), glb(scene(nodes=CHAIN), TRIANGLE))


VTK = b"# vtk DataFile Version 4.2\ntitle\n%s\nDATASET POLYDATA\n"
VTK_BOMBS = {
    "points": VTK % b"BINARY" + b"POINTS 1000000000000000000 double\n" + bytes(96),
    "points as text": VTK % b"ASCII" + b"POINTS 1000000000000000000 double\n0 0 0\n",
    "faces": VTK % b"BINARY" + b"POINTS 1 float\n" + bytes(12) + b"\nPOLYGONS 9 999999999999\n" + bytes(99),
    "a face": VTK % b"ASCII" + b"POINTS 1 float\n0 0 0\nPOLYGONS 1 4\n999999999 0 0 0\n",
    "a face below zero": VTK % b"ASCII" + b"POINTS 1 float\n0 0 0\nPOLYGONS 1 4\n-9 0 0 0\n",
    "offsets": VTK % b"ASCII" + b"POINTS 1 int\n0 0 0\nPOLYGONS 2 3\nOFFSETS int\n0 99\nCONNECTIVITY int\n0 0 0\n",
    "blank lines": VTK % b"ASCII" + b"\n" * 2_000_000,
    "a line without end": VTK % b"ASCII" + b"POINTS 9 float\n" + b"1 " * 2_000_000,
}


@pytest.mark.parametrize("bomb", quick_ones(VTK_BOMBS, *(VTK_BOMBS.keys() - MILLIONS)))
def test_a_vtk_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("vtk", VTK_BOMBS[bomb])


def vtp(body, options=b"", begin=b'<?xml version="1.0"?>'):
    array = b'<DataArray type="Float64" Name="%s" format="binary">%s</DataArray>'
    return (
        begin
        + b'<VTKFile type="PolyData" %s><PolyData><Piece><Points>%s</Points><Polys>%s%s</Polys>'
        % (options, array % (b"p", body), array % (b"offsets", body), array % (b"connectivity", body))
        + b"</Piece></PolyData></VTKFile>"
    )


def packed_block(n_blocks, size, data):
    """A block of an array that a vtp file holds packed."""
    head = np.array([n_blocks, size, size, *[len(data)] * min(n_blocks, 9)], "<u4").tobytes()
    return base64.b64encode(head) + base64.b64encode(data)


PACKED = b'compressor="vtkZLibDataCompressor"'


@functools.cache
def zeros_packed():
    """400 MB of zeros, packed to 2 MB."""
    packer = zlib.compressobj(1)
    return b"".join([*(packer.compress(bytes(1_000_000)) for _ in range(400)), packer.flush()])


def packed_gii(begin, end=b""):
    """A GIFTI file with these zeros in its first array."""
    return loaders.gii("B64GZ").replace(b"<Data>", begin + base64.b64encode(zeros_packed()) + end, 1)


def many_pieces(n_pieces, n_bytes):
    """A vtp file whose pieces all refer to the same array."""
    array = b'<DataArray type="Int64" Name="%s" format="appended" offset="0"/>'
    part = b"<Piece><Points>%s</Points><Polys>%s%s</Polys></Piece>" % tuple(
        array % name for name in (b"p", b"offsets", b"connectivity")
    )
    block = np.array([n_bytes], "<u4").tobytes() + bytes(n_bytes)
    begin = b"<VTKFile><PolyData>" + part * n_pieces + b"</PolyData>"
    return begin + b'<AppendedData encoding="raw">_' + block + b"</AppendedData></VTKFile>"


XML_BOMBS = {
    "a size": lambda: vtp(base64.b64encode(np.array([2**31, 0], "<u4").tobytes())),
    "many blocks": lambda: vtp(packed_block(2**31, 2**31, b""), PACKED),
    "a block that unpacks to much": lambda: vtp(packed_block(1, 2**30, zeros_packed()), PACKED),
    "a block larger than it says": lambda: vtp(packed_block(1, 0, zeros_packed()), PACKED),
    "one block in many pieces": lambda: many_pieces(20_000, 3_000_000),
    "elements": lambda: b"<VTKFile>" + b"<a/>" * 500_000 + b"</VTKFile>",
    "beginnings of appended data": lambda: b"<VTKFile>" + b"<AppendedData" * 200_000,
    "entities": lambda: vtp(
        b"&b;", b"", b'<!DOCTYPE a [<!ENTITY a "%s"><!ENTITY b "%s">]>' % (b"0" * 9999, b"&a;" * 9999)
    ),
    "another encoding": lambda: vtp(b"", b"", b'<?xml version="1.0" encoding="cp037"?>'),
}


@pytest.mark.parametrize("bomb", quick_ones(XML_BOMBS, "a size", "many blocks", "a block larger than it says"))
def test_a_vtp_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("vtp", XML_BOMBS[bomb]())


GII_BOMBS = {
    "a packed array": lambda: packed_gii(b"<Data>"),
    "in another tag": lambda: packed_gii(b"<Data  >"),
    "after a comment": lambda: packed_gii(b"<Data><!-- -->"),
    "quoted": lambda: packed_gii(b"<Data><![CDATA[", b"]]>"),
    "in another file": lambda: loaders.gii("ASCII").replace(b'"ASCII"', b'"ExternalFileBinary"'),
    "a shape": lambda: re.sub(rb'Dim0="4"', b'Dim0="4000000000"', loaders.gii("B64BIN")),
    "elements": lambda: b"<GIFTI>" + b"<a/>" * 500_000 + b"</GIFTI>",
}


@pytest.mark.parametrize("bomb", quick_ones(GII_BOMBS, "in another tag", "after a comment", "in another file"))
def test_a_gii_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("gii", GII_BOMBS[bomb]())


def test_a_gltf_file_opens_no_other(tmp_path):
    tree = json.loads(loaders.gltf(loaders.TETRAHEDRON))
    tree["buffers"][0]["uri"] = "buffer.bin"
    (tmp_path / "mesh.gltf").write_bytes(json.dumps(tree).encode())
    with pytest.raises(ValueError, match="it refers to another file, which is not opened"):
        TriangleMesh.load(tmp_path / "mesh.gltf")


def npy_file(header, body=b"", version=1):
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + body


def described(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


NPY_BOMBS = {
    "a shape": npy_file(described((10**18, 3)), bytes(240)),
    "a shape that overflows": npy_file(described((2**62, 2**62)), bytes(240)),
    "a shape that memory could hold": npy_file(described((2**28, 3)), bytes(240)),
    "a shape below zero": npy_file(described((-4, 3)), bytes(240)),
    "no rows of endless length": npy_file(described((0, 10**18)), bytes(240)),
    "items without size": npy_file(described((10**18, 3), "'<U0'"), bytes(240)),
    "axes": npy_file(described((1,) * 100), bytes(240)),
    "a long header": npy_file(described((4, 3)) + " " * 3_000_000, bytes(96), version=2),
    "a deep header": npy_file("(" * 5000 + ")" * 5000, bytes(96)),
    "objects": npy_file(described((4, 3), "'|O'"), bytes(96)),
    "records of objects": npy_file(described((4, 3), "[('a', '|O')]"), bytes(96)),
}


@pytest.mark.parametrize("bomb", NPY_BOMBS)
def test_an_npy_file_takes_no_more_than_it_has_bytes_for(bomb):
    assert_refused("npy", NPY_BOMBS[bomb])


def zipped(**members):
    """An archive of members, whose bytes may be given in pieces."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                for piece in [content] if isinstance(content, bytes) else content:
                    member.write(piece)
    return file.getvalue()


def zeros(n_rows):
    """Pieces of an array of zeros, (n_rows, 3) numbers."""
    yield npy_file(described((n_rows, 3)))
    piece = bytes(24_000_000)
    for _ in range(n_rows // 1_000_000):
        yield piece


@functools.cache
def zip_bomb():
    """Two million times three zeros, twelve times: 288 MB in less than two."""
    data = zipped(pos=zeros(12_000_000), faces=npy_file(described((1, 3), "'<i8'"), bytes(24)))
    assert len(data) < 2_000_000
    return data


def lying(data, size=10**12):
    """An archive whose table of contents and extra fields declare another size of the first member."""
    whole = struct.pack("<Q", 12_000_000 * 24 + len(npy_file(described((12_000_000, 3)))))
    return data.replace(whole, struct.pack("<Q", size))


@pytest.mark.parametrize("name", ["npz", "record_npz", "sequence"])
def test_an_archive_that_unpacks_to_any_memory_is_refused_unpacked(name):
    bombs = [zip_bomb(), lying(zip_bomb()), zipped(pos=npy_file(described((10**18, 3))), faces=b"")]
    if name == "npz":
        one = zipped(points=zeros(12_000_000))
        bombs += [one, lying(one)]
    assert_refused(name, *bombs)


@pytest.mark.parametrize("name", ["npz", "record_npz", "sequence"])
def test_names_inside_an_archive_lead_nowhere(name, tmp_path):
    """Members are read by name from the archive; nothing is ever unpacked to where they point."""
    names = ["../../pos", "/tmp/pos", "C:\\pos", "pos/../../x"]
    archive = zipped(**dict.fromkeys(names, npy_file(described((2, 3)), bytes(48))))
    tally = attempt(loader(name), archive)
    assert_kept(tally)  # no file but the archive was opened
    assert list(tmp_path.iterdir()) == []


def test_a_csv_file_takes_no_more_than_it_has_bytes_for():
    assert_refused("csv", b"\n" * 2_000_000, b"1," * 500_000, b'"' * 1_000_000, b"0,1\n" * 200_000)


def safetensors(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def picture(width, height):
    """A png file of so many grey pixels, all black."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


def test_a_picture_takes_no_more_than_pictures_of_textures_have():
    sizes = [(5000, 5000), (9000, 10_000), (10_000, 14_000), (30_000, 30_000), (2**31 - 1, 2**31 - 1)]
    assert_refused("picture", *(picture(*size) for size in sizes))


def test_a_picture_that_would_start_a_program_is_refused_unread():
    """Pillow hands files that begin like this to Ghostscript, whatever their name."""
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n%%EOF\n"
    file = io.BytesIO()
    Image.new("L", (9, 9)).save(file, "tiff")
    assert_refused("picture", drawing, file.getvalue())


# ----------------------------------------------------------------------------------------- code and files of others
class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["npy", "npz", "record_npz", "sequence"])
def test_pickled_code_is_never_run(name, tmp_path):
    mark = tmp_path / "was here"
    objects = np.array([[Payload(mark)]], dtype=object)
    file = io.BytesIO()
    np.save(file, objects, allow_pickle=True)
    with_code = file.getvalue()
    parts = {
        "pos": with_code,
        "faces": with_code,
        "points": with_code,
        "format": with_code,
        "shape": with_code,
        "data": with_code,
    }
    only = {key: parts[key] for key in ("pos", "faces")}
    assert_refused(
        name, *([with_code] if name == "npy" else [zipped(**only), zipped(**parts), zipped(points=with_code)])
    )
    assert not mark.exists()
    np.load(io.BytesIO(with_code), allow_pickle=True)
    assert mark.exists()  # the payload works where it is let loose


OUTSIDE = [
    "secret.bin",
    "../../secret.bin",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:9/x",
    "data:,x",
    "",
]


def test_a_glb_file_opens_no_other():
    assert_refused("glb", *(glb(scene(buffers=[{"byteLength": 36, "uri": uri}]), TRIANGLE) for uri in OUTSIDE))
    pictures = [{"images": [{"uri": uri}], "materials": [{}], "textures": [{"source": 0}]} for uri in OUTSIDE]
    assert_read("glb", *(glb(scene(**more), TRIANGLE) for more in pictures))


def test_obj_and_ply_files_open_no_other():
    triangle = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
    assert_read("obj", *(f"mtllib {uri}\nusemtl a\n".encode() + triangle for uri in OUTSIDE))
    assert_read("ply", *(loaders.ply_text(extra=f"comment TextureFile {uri}\n") for uri in OUTSIDE))


def test_a_mesh_or_a_picture_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    for kind in ("ply", "obj", "stl", "off", "glb"):
        os.mkfifo(tmp_path / f"mesh.{kind}")
        with pytest.raises(
            ValueError, match=r"`path` must be an ordinary file, not a pipe or a device\. Got .*mesh"
        ):
            TriangleMesh.load(tmp_path / f"mesh.{kind}")


# ----------------------------------------------------------------------------------------------------------- models
@functools.cache
def graph_bytes(number):
    return loader("graph").seeds[number]


def changed(data, change):
    """A model or graph file with other contents and the right checksum."""
    header, model, body = open_model(data)
    arrays = {}
    for name, entry in header.items():
        kind = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I8": "i1"}[entry["dtype"]]
        arrays[name] = np.frombuffer(body[slice(*entry["data_offsets"])], kind).reshape(entry["shape"]).copy()
    change(arrays, model["state"]["dict"])
    entries, parts, at = {}, [], 0
    names = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32", "|i1": "I8"}
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).tobytes()
        offsets = [at, at + len(content)]
        entries[name] = {"dtype": names[array.dtype.str], "shape": list(array.shape), "data_offsets": offsets}
        parts.append(content)
        at += len(content)
    return close_model(entries, model, b"".join(parts))


KNN, HEAT, MESH, GRID = 0, 2, 4, 5  # among the seeds


def extension(fields):
    return fields["graph"]["fields"]["extension"]["fields"]


def set_array(where, name, value, place=0):
    def change(arrays, fields):
        part = extension(fields) if where == "extension" else fields["graph"]["fields"]
        entry = part[name]
        key = entry["array"] if "array" in entry else entry["csr"]["data"]
        arrays[key].flat[place] = value

    return change


def set_field(name, value):
    return lambda arrays, fields: extension(fields).update({name: value})


def set_search(name, value):
    return lambda arrays, fields: extension(fields)["search"]["fields"].update({name: value})


def set_csr(name, value, place=0):
    def change(arrays, fields):
        arrays[fields["graph"]["fields"]["affinity"]["csr"][name]][place] = value

    return change


def sphere_entry(dim, radius):
    return {"class": "Sphere", "fields": {"dim": dim, "radius": radius}}


def as_single(arrays, fields):
    key = fields["graph"]["fields"]["affinity"]["csr"]["data"]
    arrays[key] = arrays[key].astype("<f4")


def fewer_weights(arrays, fields):
    key = extension(fields)["weights"]["array"]
    arrays[key] = arrays[key][:-1]


GRAPHS = {
    "a column out of range": (KNN, set_csr("indices", 10**6)),
    "a column below zero": (KNN, set_csr("indices", -1)),
    "an end out of range": (KNN, set_csr("indptr", 10**6, 3)),
    "falling ends": (KNN, set_csr("indptr", -7, 3)),
    "affinities below zero": (KNN, set_array("graph", "affinity", -1.0)),
    "affinities that are no numbers": (KNN, set_array("graph", "affinity", np.nan)),
    "infinite affinities": (KNN, set_array("graph", "affinity", np.inf)),
    "affinities in single precision": (KNN, as_single),
    "points that are no numbers": (KNN, set_array("graph", "points", np.nan)),
    "points too far to square": (KNN, set_array("graph", "points", 1e300)),
    "more neighbours than nodes": (KNN, set_field("n_neighbors", 61)),
    "no neighbours": (KNN, set_field("n_neighbors", 0)),
    "a bandwidth of zero": (KNN, set_field("bandwidth", 0.0)),
    "a bandwidth below zero": (HEAT, set_field("bandwidth", -1.0)),
    "a bandwidth of any length": (HEAT, set_field("bandwidth", {"int": hex(10**30)})),
    "a bandwidth in words": (HEAT, set_field("bandwidth", "wide")),
    "a radius that is no number": (HEAT, set_field("radius", {"float": "7ff8000000000000"})),
    "factors below zero": (HEAT, set_array("extension", "factors", -1.0)),
    "weights that are no numbers": (HEAT, set_array("extension", "weights", np.nan)),
    "a weight too few": (HEAT, fewer_weights),
    "threads of words": (HEAT, set_search("n_jobs", "many")),
    "a metric that the points are not on": (HEAT, set_search("metric", sphere_entry(2, 9.0))),
    "a metric of other dimension": (HEAT, set_search("metric", sphere_entry(10**9, 1.0))),
    "a side whose power takes hours": (GRID, set_field("side", 2**62)),
    "an extension that is a kernel": (
        KNN,
        lambda _, fields: fields["graph"]["fields"].update(
            extension={"class": "DiffusionKernel", "fields": {"tau": 1.0}}
        ),
    ),
    "a class that is not known": (
        KNN,
        lambda _, fields: fields.update(graph={"class": "Popen", "fields": {"args": "true"}}),
    ),
    "a node that is all": (KNN, lambda _, fields: fields.update(graph={"same": 0})),
}


def test_the_graphs_that_the_bad_ones_are_made_of_are_good():
    assert_read(
        "graph", *(changed(graph_bytes(number), lambda arrays, fields: None) for number in (KNN, HEAT, GRID))
    )


def test_faces_that_a_file_holds_twice_are_read_without_a_word():
    """As files of older versions do; the user of a model cannot change its mesh."""

    def double(arrays, fields):
        faces = arrays[extension(fields)["mesh"]["fields"]["faces"]["array"]]
        faces[-1] = faces[0]

    assert_read("graph", changed(graph_bytes(MESH), double))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_with_the_right_checksum_and_wrong_parts_is_refused(name):
    number, change = GRAPHS[name]
    assert_refused("graph", changed(graph_bytes(number), change))


def other_header(change):
    header, model, body = open_model(graph_bytes(KNN))
    change(header)
    return close_model(header, model, body)


def repeated_key():
    data = close_model({}, '{"kind":"Graph","kind":"Graph","state":{"dict":{}}}', b"")
    first, second = b'"format":"manifoldrf"', b'"format":"manifoldrf","format":"manifoldrf"'
    return data, data.replace(first, second)


def test_headers_of_models_that_lie_are_refused():
    names = sorted(open_model(graph_bytes(KNN))[0])
    one, two = names[:2]
    assert_refused(
        "graph",
        *(length.to_bytes(8, "little") + graph_bytes(KNN)[8:] for length in (2**63, 2**64 - 1, 10**12, 0, 1)),
        other_header(lambda header: header[one].update(data_offsets=header[two]["data_offsets"])),
        other_header(lambda header: header[one].update(data_offsets=[-8, 0])),
        other_header(lambda header: header[one].update(data_offsets=[0, 2**63])),
        other_header(lambda header: header[one].update(shape=[10**18])),
        other_header(lambda header: header[one].update(shape=[2**32, 2**32])),
        other_header(lambda header: header.pop(one)),
        *repeated_key(),
        close_model({}, '{"kind":"Graph","state":' + "[" * 100_000 + "]" * 100_000 + "}", b""),
        close_model({}, '{"kind":"Graph","state":{"dict":' + '{"tuple":[' * 60 + "]}" * 60 + "}}", b""),
        close_model({}, '{"kind":"Graph","state":1e999}', b""),
        close_model({}, '{"kind":"Graph","state":{"int":"' + "f" * 1_000_000 + '"}}', b""),
        close_model({}, '{"kind":"Graph","state":{"decimal":"1e999999999"}}', b""),
        close_model({}, '{"kind":"Graph","state":{"fraction":["' + "7" * 60_000 + '","3"]}}', b""),
    )


PIECES = ["{}", "[]", '{"tuple":[]}', '{"dict":{}}', "null", '{"bytes":""}']


@pytest.mark.parametrize("piece", ["[0]", *(pytest.param(piece, marks=pytest.mark.slow) for piece in PIECES)])
def test_a_description_as_long_as_allowed_takes_bounded_memory(piece):
    room = _MAX_HEADER - 2000
    pieces = ",".join([piece] * (room // (len(json.dumps(piece)) - 1)))  # quotes are written as two signs
    text = f'{{"kind":"Graph","state":{{"dict":{{"graph":[{pieces}]}}}}}}'
    assert_refused("graph", close_model({}, text, b""))


def fitted(**settings):
    nodes = Sphere().grid(60)
    return ManifoldRandomFeatures(DiffusionKernel(8.0), random_state=0, n_features=12, **settings).fit(nodes)


@pytest.fixture(scope="module")
def interpolated():
    with pytest.warns():  # it is poor; not the claim here
        return loaders.saved(fitted(field="interpolated"))


def parts(fields):
    return fields["map"]["fields"]


def field_of(fields):
    return parts(fields)["field"]["fields"]


def rule_of(fields):
    return field_of(fields)["interpolation"]["fields"]


def setting_of(fields):
    return parts(fields)["space"]["fields"]["setting"]["fields"]


MODELS = {
    "more neighbours than known nodes": lambda arrays, f: rule_of(f).update(n_neighbors=61),
    "more axes than coordinates": lambda arrays, f: rule_of(f).update(n_axes=4),
    "another way to combine": lambda arrays, f: field_of(f).update(combine="eval"),
    "values of both signs": lambda arrays, f: field_of(f).update(signed=True),
    "an unknown clock": lambda arrays, f: parts(f)["space"]["fields"].update(clock="wall"),
    "a unit of zero": lambda arrays, f: parts(f)["space"]["fields"].update(unit=0.0),
    "a width below zero": lambda arrays, f: setting_of(f).update(width=-1.0),
    "a dimension beyond the space": lambda arrays, f: setting_of(f).update(dim=10**9),
    "a measure of nothing": lambda arrays, f: arrays[setting_of(f)["measure"]["array"]].fill(0),
    "a table that is no number": lambda arrays, f: arrays[field_of(f)["table"]["csr"]["data"]].fill(np.nan),
    "bounds without end": lambda arrays, f: arrays[field_of(f)["largest"]["array"]].fill(np.inf),
    "threads of words": lambda arrays, f: f["params"]["dict"].update(n_jobs="many"),
    "a device that is none": lambda arrays, f: f["params"]["dict"].update(device="/dev/mem"),
    "names for other columns": lambda arrays, f: f.update(feature_names_in=["a", "b"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_the_right_checksum_and_wrong_parts_is_refused(name, interpolated, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(changed(interpolated, lambda arrays, fields: None))
    loaders.use_model(load(path))
    path.write_bytes(changed(interpolated, MODELS[name]))
    refused = "model cannot be loaded: its (ManifoldRandomFeatures|FeatureMap|Space) is not valid: "
    with pytest.raises(ModelFileError, match=refused):
        load(path)


def test_a_model_that_takes_weighted_means_is_loaded(interpolated, tmp_path):
    """In high dimensions there are too few nodes for tangent planes, and no axes: such models are valid."""

    def no_axes(arrays, fields):
        rule_of(fields).update(n_axes=0)

    path = tmp_path / "model"
    path.write_bytes(changed(interpolated, no_axes))
    loaders.use_model(load(path))


def fill(name, value):
    """Set all entries of an array of the field of a model, or of all its weights."""

    def change(arrays, fields):
        found = field_of(fields)[name]
        for entry in found.get("tuple", [found]):
            arrays[entry["array"]].fill(value)

    return change


LOCAL, NETWORK = 5, 6  # among the seeds


def test_numbers_that_are_allowed_and_absurd_give_features_that_are_finite():
    """Polynomials and networks overflow, weights vanish when squared, nothing is within a bandwidth."""
    seeds = loader("model").seeds
    assert_read(
        "model",
        changed(seeds[LOCAL], fill("coefficients", 1e300)),
        changed(seeds[LOCAL], fill("frames", -1e300)),
        changed(seeds[NETWORK], fill("weights", 3e38)),
        changed(seeds[NETWORK], fill("anchors", -3e38)),
    )
    assert_read(
        "graph",
        changed(graph_bytes(HEAT), lambda arrays, f: arrays[extension(f)["factors"]["array"]].fill(1e-200)),
        changed(graph_bytes(HEAT), set_field("bandwidth", 1e-300)),
        changed(graph_bytes(KNN), set_field("bandwidth", 1e-300)),
    )


def test_a_mesh_is_read_as_other_programs_read_it(tmp_path):
    """The readers of the library against those of trimesh, on whole files that the damaged ones are made of."""
    options = {"process": False, "maintain_order": True, "skip_materials": True, "fix_texture": False}
    mirror, mirrored = np.diag([-1.0, 2.0, 3.0, 1.0]), trimesh.Scene()
    mirrored.add_geometry(trimesh.creation.box(), node_name="a", transform=mirror)
    mirrored.add_geometry(trimesh.creation.icosphere(1), node_name="b", parent_node_name="a", transform=mirror)
    whole = {name: list(loader(name).seeds) for name in ("ply", "off", "glb", "obj")}
    whole["glb"].append(mirrored.export(file_type="glb"))
    whole["ply"].append(loaders.saved(sphere_mesh(30), ".ply"))
    del whole["obj"][1]  # trimesh cannot read a comment behind a face
    for kind, files in whole.items():
        for data in files:
            wanted = trimesh.load_mesh(io.BytesIO(data), file_type=kind, **options)
            path = tmp_path / f"mesh.{kind}"
            path.write_bytes(data)
            mesh = loaders.load_mesh(path)
            np.testing.assert_array_equal(mesh.vertices, wanted.vertices)
            np.testing.assert_array_equal(mesh.faces, wanted.faces[~is_doubled(wanted.faces)])
