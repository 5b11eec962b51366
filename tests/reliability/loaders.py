"""All that reads files of others: how it is called, small whole files to damage, what must hold of the result."""

import base64
import io
import json
import struct
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from nibabel import gifti
from oracles import sphere_mesh
from PIL import Image
from reliability import mutations as m
from scipy import sparse

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FarQueryWarning,
    FieldInterpolator,
    FlatTorus,
    Graph,
    GraphOptions,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    ModelFileError,
    Sphere,
    grid_graph,
    heat_graph,
    knn_graph,
    load,
    mesh_graph,
)
from manifoldrf._arrays import read_points, read_values
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.geometry.meshes import TriangleMesh
from reproduction.record import Record
from reproduction.sequences import read_npz
from reproduction.texture_data import read_plates


def _nothing(value):
    """For loaders whose result has nothing more to hold."""


@dataclass
class Loader:
    """One reader of files."""

    name: str
    suffix: str
    seeds: list[bytes]
    mutations: tuple  # the last one takes any bytes
    load: Callable[[Path], Any]
    use: Callable[[Any], None] = _nothing
    errors: tuple = (ValueError, TypeError)
    cases: int = 5000
    beside: tuple[str, ...] = ()  # names of further files that may be opened
    prepare: Callable[[Path], None] = _nothing
    seconds: float = 5.0  # of work that a case may take


def saved(thing, suffix=""):
    """The bytes that a thing saves."""
    with tempfile.TemporaryDirectory() as folder:
        return thing.save(Path(folder) / f"file{suffix}").read_bytes()


# ---------------------------------------------------------------------------------------- models
NODES = Sphere().grid(60)
STEPS = DiffusionKernel(8.0)
_NETWORK = {"field": "mlp", "field_options": {"epochs": 1, "hidden": 4}, "n_starts": 30, "device": "cpu"}


def _features(kernel=None, **settings):
    return ManifoldRandomFeatures(kernel or HeatKernel(0.4), **{"random_state": 0, "n_features": 12, **settings})


def models():
    """Small fitted models, one for each kind of field, graph and extension."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are poor; not the claim here
        return [
            _features().fit(NODES),
            _features().fit(sphere_mesh(60)),
            _features(STEPS).fit(sphere_mesh(60)),
            _features(HeatKernel(0.05), graph=GraphOptions(n_nodes=64)).fit(FlatTorus()),
            _features(
                STEPS, graph=GraphOptions(kind="knn", n_neighbors=8, bandwidth="local"), field="interpolated"
            ).fit(NODES),
            _features(STEPS, field="local").fit(NODES),
            _features(STEPS, **_NETWORK).fit(NODES),
            _features(STEPS, **{**_NETWORK, "field_options": {"epochs": 1, "hidden": 4, "network": "paper"}}).fit(
                NODES
            ),
            _features(CosineKernel()).fit(NODES),
            ManifoldRidge(_features(), space=NODES).fit(NODES[:20], NODES[:20]),
            ManifoldGaussianProcess(STEPS, space=NODES, n_features=12).fit(NODES[:20], NODES[:20, 0]),
            FieldInterpolator("kernel", tau=2.0).fit(sphere_mesh(60), NODES, known=np.arange(0, 60, 3)),
            FieldInterpolator("features", tau=2.0, random_state=0).fit(NODES, NODES[:, 0], known=np.arange(30)),
        ]


def use_model(model):
    """A model that was loaded makes features: finite and, unless it has two sides, nonnegative and bounded."""
    assert isinstance(model, ManifoldRandomFeatures | Graph | SavedEstimator)
    if isinstance(model, Graph):
        use_graph(model)
        return
    if isinstance(model, SavedEstimator):
        use_estimator(model)
        return
    queries = np.array(model.graph_.positions[:3])
    if model.graph_.metric is None:
        queries = np.concatenate([queries + 0.01, queries, [queries[0] + 1e3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarQueryWarning)
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        for side in ("left", "right"):
            values = model.transform(queries, side=side)
            if sparse.issparse(values):
                values = values.toarray()
            assert np.isfinite(values).all(), "features that are not finite"
            assert model.asymmetric_ or (values >= 0).all(), "features below zero"
    assert isinstance(model.summary(), str)


def use_estimator(model):
    """A regressor or an interpolator that was loaded predicts."""
    d = model.graph_.positions.shape[1] if isinstance(model, FieldInterpolator) else model.n_features_in_
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # a file may hold huge numbers
        warnings.simplefilter("ignore")
        assert len(model.predict(np.full((2, d), 0.5))) == 2
        if isinstance(model, FieldInterpolator):
            assert len(model.predict()) == model.graph_.n_nodes
        if isinstance(model, ManifoldGaussianProcess):
            assert len(model.predict(np.full((2, d), 0.5), return_std=True)) == 2


def use_graph(graph):
    """A graph that was loaded has a walk, and steps to it from its own nodes."""
    assert np.isfinite(graph.operator.data).all()
    assert isinstance(repr(graph), str)
    if graph.extension is not None:
        rows = graph.extend(np.array(graph.positions[:3]))
        assert np.isfinite(rows.data).all()
        assert (rows.data >= 0).all()


def model_loader():
    """Fitted models."""
    seeds = [saved(model) for model in models()]
    return Loader("model", "", seeds, m.MODELS, load, use_model, (ModelFileError,), 25_000)


def graph_loader():
    """Graphs of every builder."""
    graphs = [
        knn_graph(NODES, n_neighbors=6),
        knn_graph(NODES, n_neighbors=6, metric=Sphere()),
        heat_graph(NODES, 0.4),
        heat_graph(sphere_mesh(60), 0.4),
        mesh_graph(sphere_mesh(60)),
        grid_graph(8, 2),
        Graph.from_affinity(1.0 - np.eye(4)),
    ]
    return Loader(
        "graph", "", [saved(graph) for graph in graphs], m.MODELS, load, use_model, (ModelFileError,), 20_000
    )


# ---------------------------------------------------------------------------------------- meshes
TETRAHEDRON = TriangleMesh(
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.5]], [[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]
)


def use_mesh(mesh):
    """A mesh that was loaded has faces between its vertices, and can be measured."""
    assert np.isfinite(mesh.vertices).all()
    assert mesh.faces.min() >= 0
    assert mesh.faces.max() < mesh.n_vertices
    assert isinstance(str(mesh.report()), str)


def mesh_loader(kind, seeds, mutations, cases):
    """Meshes of one format."""
    return Loader(kind, f".{kind}", seeds, mutations, load_mesh, use_mesh, (ValueError,), cases)


def load_mesh(path):
    """A mesh, of which some faces may be doubled."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the same three vertices")
        return TriangleMesh.load(path)


def ply_text(order="ascii", corners=(3,), extra=""):
    """A pyramid as a ply file in any order of bytes, with triangles, quadrilaterals or both."""
    vertices = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.5, 0.5, 1)]
    faces = {3: [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)], 4: [(0, 3, 2, 1)]}
    chosen = [face for count in corners for face in faces[count]]
    header = (
        f"ply\nformat {order} 1.0\ncomment made here\n{extra}element vertex 5\nproperty float x\nproperty float y\n"
        f"property float z\nproperty uchar red\nelement face {len(chosen)}\n"
        "property list uchar int vertex_indices\nend_header\n"
    )
    if order == "ascii":
        rows = [f"{x} {y} {z} 255" for x, y, z in vertices] + [f"{len(f)} {' '.join(map(str, f))}" for f in chosen]
        return (header + "\n".join(rows) + "\n").encode()
    mark = "<" if "little" in order else ">"
    rows = [struct.pack(f"{mark}fffB", *vertex, 255) for vertex in vertices]
    rows += [struct.pack(f"{mark}B{len(face)}i", len(face), *face) for face in chosen]
    return header.encode() + b"".join(rows)


def ply_loader():
    """Ply files: text and both orders of bytes."""
    little, big = "binary_little_endian", "binary_big_endian"
    seeds = [ply_text(order, corners) for order in ("ascii", little, big) for corners in ((3,), (4,))]
    seeds += [ply_text("ascii", (3, 4)), ply_text(extra="comment TextureFile ../../secret.png\n")]
    seeds.append(saved(TETRAHEDRON, ".ply"))
    return mesh_loader("ply", seeds, m.TEXTS, 10_000)


def obj_loader():
    """Obj files."""
    plain = saved(TETRAHEDRON, ".obj")
    full = (
        b"mtllib ../../secret.mtl\no part\nusemtl a\n" + plain + b"vt 0 0\nvn 0 0 1\nf 1/1/1 2/1/1 -1//1 3 # quad\n"
    )
    return mesh_loader(
        "obj", [plain, full, plain.replace(b"\n", b"\r\n"), b"g a\n" + plain + b"f 1 2 \\\n 3\n"], m.TEXTS, 8000
    )


STL_TEXT = (
    b"solid part\n facet normal 0 0 1\n  outer loop\n   vertex 0 0 0\n   vertex 1 0 0\n   vertex 0 1 0\n  endloop\n"
    b" endfacet\n facet normal 0 0 1\n  outer loop\n   vertex 1 0 0\n   vertex 1 1 0\n   vertex 0 1 0\n  endloop\n"
    b" endfacet\nendsolid part\n"
)


def stl_loader():
    """Stl files, text and binary."""
    seeds = [saved(TETRAHEDRON, ".stl"), STL_TEXT, STL_TEXT + STL_TEXT.replace(b"part", b"other")]
    return mesh_loader("stl", seeds, m.TEXTS, 8000)


def off_loader():
    """Off files."""
    plain = saved(TETRAHEDRON, ".off")
    quad = b"OFF # counts\n\n4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n"
    return mesh_loader(
        "off",
        [plain, quad, b"COFF\n3 1 0\n0 0 0 1 1 1 1\n1 0 0 1 1 1 1\n0 1 0 1 1 1 1\n3 0 1 2 9\n"],
        m.TEXTS,
        8000,
    )


def glb_scene():
    """A scene of two parts, one of them twice, turned and moved."""
    scene = trimesh.Scene()
    part = trimesh.Trimesh(TETRAHEDRON.vertices, TETRAHEDRON.faces, process=False)
    turn = trimesh.transformations.rotation_matrix(0.7, [1, 2, 3], [0.5, 0, 0])
    scene.add_geometry(part, node_name="a", geom_name="tetra")
    scene.add_geometry(part, node_name="b", geom_name="tetra", parent_node_name="a", transform=turn)
    scene.add_geometry(trimesh.creation.box(), node_name="c", geom_name="box", parent_node_name="b", transform=turn)
    return scene.export(file_type="glb")


def glb_loader():
    """Glb files."""
    return mesh_loader(
        "glb", [saved(TETRAHEDRON, ".glb"), glb_scene()], (m.glb_tree, m.glb_tree, m.glb_tree, *m.BYTES), 10_000
    )


def gltf(mesh):
    """A gltf file with its numbers inside."""
    files = trimesh.exchange.gltf.export_gltf(
        trimesh.Scene(trimesh.Trimesh(mesh.vertices, mesh.faces, process=False))
    )
    tree = json.loads(files["model.gltf"])
    for entry in tree["buffers"]:
        entry["uri"] = "data:application/octet-stream;base64," + base64.b64encode(files[entry["uri"]]).decode()
    return json.dumps(tree).encode()


def gltf_loader():
    """Gltf files."""
    return mesh_loader("gltf", [gltf(TETRAHEDRON)], (m.json_text, m.json_text, *m.TEXTS), 4000)


VTK = Path(__file__).parents[1] / "data" / "vtk"  # a tetrahedron, written by VTK 9.7 and meshio 5.3


def vtk_loader(kind):
    """Files of VTK: vtk, vtp or vtu."""
    seeds = [path.read_bytes() for path in sorted(VTK.glob(f"*.{kind}"))]
    return mesh_loader(kind, seeds, (*m.TEXTS, *m.TEXTS), 4000)


def gii(encoding):
    """A GIFTI file of the tetrahedron."""
    parts = (TETRAHEDRON.vertices.astype(np.float32), "POINTSET"), (TETRAHEDRON.faces.astype(np.int32), "TRIANGLE")
    arrays = [
        gifti.GiftiDataArray(values, f"NIFTI_INTENT_{intent}", encoding=f"GIFTI_ENCODING_{encoding}")
        for values, intent in parts
    ]
    return gifti.GiftiImage(darrays=arrays).to_bytes()


def gii_loader():
    """GIFTI files."""
    return mesh_loader("gii", [gii(name) for name in ("ASCII", "B64BIN", "B64GZ")], (*m.TEXTS, *m.TEXTS), 4000)


# ---------------------------------------------------------------------------------------- arrays
def npy(array):
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays):
    """The bytes of an .npz file."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


_POINTS = np.arange(12.0).reshape(4, 3)


def use_array(array):
    """An array has two axes."""
    assert array.ndim == 2
    with np.errstate(all="ignore"):
        assert abs(array).sum() is not None  # every number is read: a map of a file may lead nowhere


def npy_loader():
    """Points from .npy files."""
    arrays = (_POINTS, _POINTS.astype(">f4"), np.asfortranarray(_POINTS), _POINTS.astype(np.int16))
    return Loader(
        "npy", ".npy", [npy(array) for array in arrays], (*m.BYTES, m.numbers, m.numbers), read_points, use_array
    )


def npz_loader():
    """Points from .npz files."""
    seeds = [npz(points=_POINTS), npz(points=_POINTS, other=np.arange(3)), npz(a=_POINTS.T)]
    mutations = (m.zip_members, m.zip_members, m.zip_members, *m.BYTES)
    return Loader("npz", ".npz", seeds, mutations, read_points, use_array)


def csv_loader():
    """Values of vertices from .csv files."""
    seeds = [b"vertex,a,b\n0,1,2\n3,1e-3,-4\n", b"0;1\n1;2 # note\n", b'1 2\n\n"2" 3\n', b"\xef\xbb\xbf0\t1\n"]
    return Loader("csv", ".csv", seeds, m.TEXTS, partial(read_values, n_rows=5))


# ----------------------------------------------------------------------------------------------- records, others
def _record():
    tables = {"errors": [{"name": "a", "error": 0.5}, {"name": "b", "error": None}]}
    return Record("case", {"seed": 0}, tables, 1.5, {"python": "3"}, {"curve": np.arange(6.0).reshape(2, 3)})


def _record_files():
    with tempfile.TemporaryDirectory() as folder:
        path = _record().save(folder)
        return path.read_bytes(), path.with_suffix(".npz").read_bytes()


def use_record(record):
    """A record has arrays of numbers."""
    assert all(np.asarray(array).dtype.kind in "biufcSUM?" for array in record.arrays.values())


def record_loader():
    """The JSON files of records."""
    text, arrays = _record_files()
    beside = "case.npz"
    return Loader(
        "record",
        ".json",
        [text],
        (m.json_text, *m.TEXTS),
        Record.load,
        use_record,
        beside=(beside,),
        cases=4000,
        prepare=lambda folder: (folder / beside).write_bytes(arrays),
    )


def record_arrays_loader():
    """The archives beside records."""
    text, arrays = _record_files()
    beside = "case.json"
    return Loader(
        "record_npz",
        ".npz",
        [arrays],
        (m.zip_members, *m.BYTES),
        lambda path: Record.load(path.with_suffix(".json")),
        use_record,
        beside=(beside,),
        cases=4000,
        prepare=lambda folder: (folder / beside).write_bytes(text),
    )


def sequence_loader():
    """Sequences in .npz files."""
    positions = np.arange(24.0).reshape(2, 4, 3)
    seeds = [
        npz(pos=positions, faces=[[0, 1, 2], [1, 2, 3]], dt=0.5, source="here"),
        npz(pos=positions, faces=[[0, 1, 2]]),
    ]
    return Loader("sequence", ".npz", seeds, (m.zip_members, m.zip_members, *m.BYTES), read_npz, cases=4000)


def _picture(form, mode="L"):
    file = io.BytesIO()
    Image.fromarray(np.arange(30, dtype=np.uint8).reshape(5, 6)).convert(mode).save(file, form)
    return file.getvalue()


def picture_loader():
    """Plates of textures in a folder."""
    seeds = [_picture("png"), _picture("png", "P"), _picture("png", "I;16"), _picture("gif")]

    def read(path):
        plate = path.with_name("D1.png")
        path.replace(plate)
        return read_plates(path.parent)

    return Loader("picture", ".png", seeds, m.BYTES, read, beside=("D1.png",), cases=4000)


LOADERS = {
    "model": model_loader,
    "graph": graph_loader,
    "ply": ply_loader,
    "obj": obj_loader,
    "stl": stl_loader,
    "off": off_loader,
    "glb": glb_loader,
    "gltf": gltf_loader,
    **{kind: partial(vtk_loader, kind) for kind in ("vtk", "vtp", "vtu")},
    "gii": gii_loader,
    "npy": npy_loader,
    "npz": npz_loader,
    "csv": csv_loader,
    "record": record_loader,
    "record_npz": record_arrays_loader,
    "sequence": sequence_loader,
    "picture": picture_loader,
}
