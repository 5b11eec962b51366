"""Damaged and hostile mesh and array files are read, or refused in one sentence that names them, within bounds."""

import base64
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import trimesh

from manifoldrf import TriangleMesh
from manifoldrf._arrays import read_points

ROOT = Path(__file__).parents[1]
# Reads all files of a folder under a limit of time and memory, and prints what became of each.
READER = """
import json, signal, sys
from pathlib import Path
from manifoldrf import TriangleMesh
from manifoldrf._arrays import ARRAY_SUFFIXES, read_points
import meshio, nibabel, trimesh
from memory import peak_memory, start_memory
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
opened, found = [], {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    signal.alarm(20)
    before = start_memory()
    del opened[:]
    try:
        (read_points if path.suffix in ARRAY_SUFFIXES else TriangleMesh.load)(path)
        text = "read"
    except (ValueError, TypeError) as error:
        text = str(error)
    if "/etc/passwd" in opened:
        text = "it opened another file"
    found[path.name] = text, peak_memory() - before, path.stat().st_size
print(json.dumps(found))
"""

TRIANGLE = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], "<f4").tobytes()
SPHERE = trimesh.creation.icosphere(1)
HUGE = 10**12


def ply(n_vertices=3, n_faces=1, corners=b"\3\0\0\0\0\1\0\0\0\2\0\0\0", form="binary_little_endian"):
    head = f"ply\nformat {form} 1.0\nelement vertex {n_vertices}\nproperty float x\nproperty float y\n"
    tail = f"property float z\nelement face {n_faces}\nproperty list uchar int vertex_indices\nend_header\n"
    return (head + tail).encode() + TRIANGLE + corners


def glb(**changes):
    accessor = {
        "bufferView": 0,
        "componentType": 5126,
        "count": 3,
        "type": "VEC3",
        "min": [0, 0, 0],
        "max": [1, 1, 0],
    }
    tree = {"asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}]}
    tree |= {"meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}], "accessors": [accessor]}
    tree |= {"bufferViews": [{"buffer": 0, "byteLength": 36}], "buffers": [{"byteLength": 36}]} | changes
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    body = struct.pack("<2I", 36, 0x004E4942) + TRIANGLE
    return struct.pack("<5I", 0x46546C67, 2, 20 + len(text) + len(body), len(text), 0x4E4F534A) + text + body


def gii(points=None, n_points=3, entity=b""):
    def array(intent, kind, values, n):
        code = base64.b64encode(zlib.compress(values)).decode()
        names = f'Intent="NIFTI_INTENT_{intent}" DataType="NIFTI_TYPE_{kind}" Encoding="GZipBase64Binary"'
        sizes = f'Dimensionality="2" Dim0="{n}" Dim1="3" ArrayIndexingOrder="RowMajorOrder" Endian="LittleEndian"'
        return (
            f'<DataArray {names} {sizes} ExternalFileName="" ExternalFileOffset=""><Data>{code}</Data></DataArray>'
        )

    arrays = array("POINTSET", "FLOAT32", TRIANGLE if points is None else points, n_points)
    arrays += array("TRIANGLE", "INT32", np.arange(3, dtype="<i4").tobytes(), 1)
    head = b'<?xml version="1.0" encoding="UTF-8"?>' + entity
    return head + f'<GIFTI Version="1.0" NumberOfDataArrays="2">{arrays}</GIFTI>'.encode()


def vtk(n_points=3, n_cells=1, size=4, kind=5):
    head = f"# vtk DataFile Version 4.2\nx\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS {n_points} double\n"
    cells = f"CELLS {n_cells} {size}\n3 0 1 2\nCELL_TYPES {n_cells}\n{kind}\n"
    return (head + "0 0 0 1 0 0 0 1 0\n" + cells).encode()


def vtu(n_points=3):
    def array(name, kind, text, n=1):
        return f'<DataArray type="{kind}" Name="{name}" NumberOfComponents="{n}" format="ascii">{text}</DataArray>'

    points = array("Points", "Float64", "0 0 0 1 0 0 0 1 0", 3)
    cells = "".join(
        array(name, "Int64", text) for name, text in (("connectivity", "0 1 2"), ("offsets", "3"), ("types", "5"))
    )
    piece = f'<Piece NumberOfPoints="{n_points}" NumberOfCells="1"><Points>{points}</Points><Cells>{cells}</Cells>'
    return (
        '<VTKFile type="UnstructuredGrid" version="0.1" byte_order="LittleEndian"><UnstructuredGrid>'
        f"{piece}</Piece></UnstructuredGrid></VTKFile>"
    ).encode()


def msh(n_nodes=3):
    nodes = f"$Nodes\n{n_nodes}\n1 0 0 0\n2 1 0 0\n3 0 1 0\n$EndNodes\n"
    return (
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n" + nodes + "$Elements\n1\n1 2 2 0 0 1 2 3\n$EndElements\n"
    ).encode()


def npy(shape, descr="<f8", body=bytes(48)):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + body


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


STL = SPHERE.export(file_type="stl")
OBJ = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
GOOD = {
    "ply": ply(),
    "obj": b"mtllib /etc/passwd\nusemtl a\n" + OBJ,
    "off": b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n",
    "stl": STL,
    "glb": glb(images=[{"uri": "/etc/passwd"}], textures=[{"source": 0}]),
    "gii": gii(),
    "vtk": vtk(),
    "vtu": vtu(),
    "msh": msh(),
    "npy": npy((2, 3)),
    "npz": npz(points=npy((2, 3))),
    "csv": b"x,y\n1,2\n3,4\n",
}
CYCLE = [{"children": [1]}, {"children": [0], "mesh": 0}]
LAUGHS = b'<!DOCTYPE x [<!ENTITY a "ha">' + b"".join(
    b'<!ENTITY %c "%s">' % (c + 1, b"&%c;" % c * 10) for c in range(97, 107)
)
BAD = {
    "ply": [
        *(ply(HUGE), ply(n_faces=HUGE), ply(-1), ply(4), ply(n_faces=2), ply(corners=b"\xff\0\0\0\0")),
        *(
            ply(form="ascii"),
            ply(form="binary_middle_endian"),
            b"ply\n",
            b"ply\nformat ascii 1.0\n" + b"\n" * 10**6,
        ),
        *(ply(corners=b"\2\0\0\0\0\1\0\0\0"), ply(corners=b"\3\0\0\0\0\1\0\0\0\7\0\0\0"), ply()[:-1]),
    ],
    "obj": [
        b"f 1 2 3\n",
        OBJ + b"f 1 2 9\n",
        OBJ + b"f 0 1 2\n",
        OBJ + b"f 1 2 -9\n",
        OBJ + b"v 1 two 3\n",
        OBJ[:-8],
    ],
    "off": [
        *(
            b"OFF\n%d 1 0\n" % HUGE,
            b"OFF\n3 %d 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n" % HUGE,
            b"OFF\n",
            b"OFF\n-3 1 0\n",
        ),
        *(b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n4 0 1 2\n", b"OFF\n3 1 0\n0 0 0\n1 0\n0 1 0\n3 0 1 2\n"),
        b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n%d 0 1 2\n" % HUGE,
    ],
    "stl": [
        STL[:-7],
        STL[:80] + b"\xff\xff\xff\xff" + STL[84:],
        b"solid x\nfacet normal 0 0 1\nouter loop\nvertex 0 0",
    ],
    "glb": [
        glb(accessors=[{"componentType": 5126, "count": HUGE, "type": "VEC3"}]),
        glb(accessors=[{"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3"}]),
        glb(nodes=[{"mesh": 0}] * 300_000, scenes=[{"nodes": list(range(300_000))}]),
        glb(buffers=[{"byteLength": 36, "uri": "/etc/passwd"}], bufferViews=[{"buffer": 0, "byteLength": 36}]),
        *(glb(nodes=CYCLE), glb(nodes=[]), glb()[:-9], glb()[:30], b"glTF" + bytes(16)),
    ],
    "gii": [gii(bytes(10**8)), gii(n_points=HUGE), gii(entity=LAUGHS + b"]>"), gii()[:-30], gii()[:400]],
    "vtk": [vtk(HUGE), vtk(n_cells=HUGE), vtk(size=HUGE), vtk(4), vtk(kind=10), vtk()[:-40]],
    "vtu": [vtu(HUGE), vtu(4), vtu()[:-60], LAUGHS + b"]>" + vtu()],
    "msh": [msh(HUGE), msh(4), msh()[:-60]],
    "npy": [
        npy((HUGE, 3)),
        npy((2, HUGE)),
        npy((3, 3)),
        npy((-1, 3)),
        npy((2, 3), "|O"),
        npy((2, 3), "<c16"),
        npy(()),
    ],
    "npz": [
        *(npz(points=npy((HUGE, 3))), npz(points=npy((3, 3))), npz(), npz(points=b"x"), GOOD["npz"][:-30]),
        npz(points=npy((10**8, 3), body=bytes(24 * 10**7))),
        npz(a=npy((2, 3)), b=npy((2, 3))),
    ],
    "csv": [b"x,y\n", b"1,2\n3\n", b"1,2\n3,four\n", b"1,2\n\xff\xfe,4\n", b"1;2,5\n", b"1,2\n3,\n", b"#\n"],
}
ANYTHING = [b"", b"\0" * 500, b"\xff" * 500, b"GIF89a" + bytes(range(256)) * 4, b"<html>" * 50, b"1 2 3\n" * 50]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for kind, good in GOOD.items():
        (folder / f"good.{kind}").write_bytes(good)
        for k, data in enumerate([*BAD[kind], *(good[: len(good) * k // 4] for k in (1, 2)), *ANYTHING]):
            (folder / f"bad{k:02d}.{kind}").write_bytes(data)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", "-c", READER, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", GOOD)
def test_hostile_files_are_refused_in_one_sentence_and_within_bounds(outcomes, kind):
    texts = {name: text for name, (text, _, _) in outcomes.items() if name.endswith(kind)}
    assert texts.pop(f"good.{kind}") == "read"
    # Any three columns of numbers are points, and half a table is one.
    wrong = {n: t for n, t in texts.items() if t == "read" and kind != "csv"}
    assert wrong == {}
    for name, text in texts.items():
        assert text == "read" or (name in text and "\n" not in text and " must be " in text), (name, text)
    for name, (_, memory, size) in outcomes.items():
        assert memory < 200_000_000 + 10 * size, name


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_code_is_never_run(suffix, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    objects = np.array([[Payload()]], dtype=object)
    (np.save if suffix == ".npy" else np.savez)(tmp_path / f"points{suffix}", objects)
    with pytest.raises((ValueError, TypeError), match="POINTS"):
        read_points(tmp_path / f"points{suffix}")
    assert not (tmp_path / "was here").exists()


def test_a_pipe_and_a_file_that_is_too_large_are_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe.ply")
    with pytest.raises(ValueError, match="not a pipe"):
        TriangleMesh.load(tmp_path / "pipe.ply")
    with (tmp_path / "large.ply").open("wb") as file:
        file.truncate(2**32 + 1)
    with pytest.raises(ValueError, match=r"large\.ply.*4 GB"):
        TriangleMesh.load(tmp_path / "large.ply")
