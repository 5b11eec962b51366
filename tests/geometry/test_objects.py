"""Objects of other libraries give the bits of our own; stand-ins have the attributes of missing libraries."""

import importlib
import re
from collections import namedtuple
from types import SimpleNamespace as Like

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import trimesh
from oracles import sphere_mesh
from scipy import sparse

from manifoldrf import (
    DiffusionKernel,
    FieldInterpolator,
    Graph,
    HeatKernel,
    ManifoldRandomFeatures,
    ManifoldRidge,
    ManifoldWarning,
    Sphere,
    TriangleMesh,
    explore,
    heat_graph,
    heat_signature,
    knn_graph,
    mesh_graph,
)
from manifoldrf._validation import column_names, look_like_degrees

MESH = sphere_mesh(200)
HEIGHTS = np.where(np.arange(200) % 4 == 0, MESH.vertices[:, 2], np.nan)
CellBlock = namedtuple("CellBlock", ["type", "data"])


def flat(faces):
    """Faces as pyvista stores them: each with its number of corners first."""
    return np.hstack([[len(face), *face] for face in faces])


def blocks(*named):
    return [CellBlock(kind, np.array(data)) for kind, data in named]


MESHES = {
    "trimesh": trimesh.Trimesh(MESH.vertices, MESH.faces, process=False),
    "pyvista": Like(points=MESH.vertices, faces=flat(MESH.faces), n_strips=0, lines=np.array([])),
    "meshio": Like(
        points=MESH.vertices,
        cells=blocks(
            ("vertex", [[0]]), ("line", [[0, 1]]), ("triangle", MESH.faces[:9]), ("triangle", MESH.faces[9:])
        ),
    ),
    "nilearn": Like(coordinates=MESH.vertices, faces=MESH.faces),
    "open3d": Like(vertices=MESH.vertices, triangles=MESH.faces, has_vertices=lambda: True),
    "tuple": (MESH.vertices, MESH.faces),
    "meshio 3": Like(points=MESH.vertices, cells={"triangle": MESH.faces}),
    "torch_geometric": Like(
        pos=torch.tensor(MESH.vertices), face=torch.tensor(MESH.faces.T.copy()), edge_index=None, num_nodes=200
    ),
}


def features(**options):
    return ManifoldRandomFeatures(HeatKernel(0.6), n_features=80, random_state=0, n_jobs=1, **options)


@pytest.mark.parametrize("kind", MESHES)
def test_a_mesh_of_another_library_is_the_same_mesh(kind):
    found = TriangleMesh.of(MESHES[kind])
    assert np.array_equal(found.vertices, MESH.vertices)
    assert np.array_equal(found.faces, MESH.faces)
    assert TriangleMesh.of(found) is found


REAL_MESHES = {
    "pyvista": lambda pv: pv.PolyData.from_regular_faces(MESH.vertices, MESH.faces),
    "meshio": lambda meshio: meshio.Mesh(MESH.vertices, [("line", [[0, 1]]), ("triangle", MESH.faces)]),
    "nilearn.surface": lambda surface: surface.InMemoryMesh(MESH.vertices, MESH.faces),
    "open3d": lambda o3d: o3d.geometry.TriangleMesh(
        o3d.utility.Vector3dVector(MESH.vertices.copy()), o3d.utility.Vector3iVector(MESH.faces.copy())
    ),
    "torch_geometric.data": lambda data: data.Data(
        pos=torch.tensor(MESH.vertices), face=torch.tensor(MESH.faces.T.copy())
    ),
}
REAL_POINTS = {
    "xarray": lambda xr: xr.DataArray(MESH.vertices, dims=("point", "axis")),
    "pyarrow": lambda pa: pa.table({axis: MESH.vertices[:, k] for k, axis in enumerate("xyz")}),
    "anndata": lambda ad: ad.AnnData(np.ones((200, 2)), obsm={"X_pca": MESH.vertices}).obsm["X_pca"],
    "jax.numpy": lambda jnp: jnp.asarray(MESH.vertices, dtype=np.float32),  # half the digits by default
}


@pytest.mark.parametrize("package", REAL_MESHES)
def test_meshes_of_packages_that_may_be_missing(package):
    made = REAL_MESHES[package](pytest.importorskip(package))
    assert np.array_equal(TriangleMesh.of(made).vertices, MESH.vertices)
    assert np.array_equal(TriangleMesh.of(made).faces, MESH.faces)


def test_meshes_of_pyvista_with_other_cells_are_refused():
    pyvista = pytest.importorskip("pyvista")
    with pytest.raises(ValueError, match="triangles only"):
        TriangleMesh.of(pyvista.Plane(i_resolution=2, j_resolution=2))
    with pytest.raises(TypeError, match="extract_surface"):
        TriangleMesh.of(pyvista.ImageData(dimensions=(3, 3, 3)).cast_to_unstructured_grid())


@pytest.mark.parametrize("package", REAL_POINTS)
def test_points_of_packages_that_may_be_missing(package):
    made = REAL_POINTS[package](pytest.importorskip(package))
    model = features().fit(made)
    points = np.float32(MESH.vertices) if package == "jax.numpy" else MESH.vertices
    assert np.array_equal(model.transform(made), features().fit(points).transform(points))


def test_graphs_of_packages_that_may_be_missing():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    assert np.array_equal(Graph.from_affinity(graph).affinity.toarray(), SQUARE)
    graph.es["weight"] = [2.0] * 4
    assert np.array_equal(Graph.from_affinity(graph).affinity.toarray(), 2 * SQUARE)


def test_stations_of_geopandas_are_on_the_earth():
    geopandas = pytest.importorskip("geopandas")
    degrees, earth = np.array([[13.4, 52.5], [-58.4, -34.6]]), Sphere(radius=6371.0)
    frame = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(*degrees.T), crs="EPSG:4326")
    assert np.array_equal(earth.from_lonlat(frame), earth.from_lonlat(degrees))
    with pytest.raises(ValueError, match=re.escape("Sphere.from_lonlat(frame) makes them")):
        features().fit(frame)


def test_every_entry_point_takes_meshes_of_others_with_the_same_bits(tmp_path):
    other, points = MESHES["trimesh"], MESH.vertices
    model = features().fit(MESH)
    assert np.array_equal(features().fit(other).transform(points), model.transform(points))
    for build in (mesh_graph, lambda mesh: heat_graph(mesh, 0.6, n_jobs=1)):
        assert (build(other).affinity != build(MESH).affinity).nnz == 0
    assert np.array_equal(heat_signature(other, 0.6, n_jobs=1), heat_signature(MESH, 0.6, n_jobs=1))
    filled = [FieldInterpolator("harmonic").fit(space, HEIGHTS).predict() for space in (other, MESH)]
    assert np.array_equal(*filled)
    rows, values = points[::4], points[::4, 2]
    fits = [ManifoldRidge(features(), space=space, n_jobs=1).fit(rows, values) for space in (other, MESH)]
    assert np.array_equal(*(fit.predict(points) for fit in fits))
    pages = [explore(model, tmp_path / f"{k}.html", surface=space).path for k, space in enumerate((other, MESH))]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def geometric_graph():
    """Nodes that are not numbers, in an order of their own, with positions, weights, a loop and a double edge."""
    graph = nx.MultiGraph(nx.random_geometric_graph(40, 0.5, seed=1))
    graph = nx.relabel_nodes(graph, {k: f"node {(7 * k) % 40}" for k in range(40)})
    for k, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = 1 + k % 3
    graph.add_edge("node 0", "node 0", weight=2.0)
    graph.add_edge(*next(iter(graph.edges)), weight=0.5)
    return graph


@pytest.mark.filterwarnings("ignore::manifoldrf.ManifoldWarning")  # few nodes, not the claim here
def test_a_networkx_graph_has_the_matrix_that_networkx_makes_of_it():
    graph = geometric_graph()
    found = Graph.from_affinity(graph)
    assert np.array_equal(found.affinity.toarray(), nx.to_scipy_sparse_array(graph).toarray())
    assert np.array_equal(found.points, [graph.nodes[node]["pos"] for node in graph])
    own = Graph.from_affinity(nx.to_scipy_sparse_array(graph), found.points)
    kernel = DiffusionKernel(3.0)
    fits = [
        ManifoldRandomFeatures(kernel, n_features="all", random_state=0, n_jobs=1).fit(space)
        for space in (graph, own)
    ]
    assert np.array_equal(*(fit.transform(own.points) for fit in fits))


RING = np.array([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])  # every edge of a square in both directions
SQUARE = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])


@pytest.mark.parametrize(
    "edges",
    [RING, torch.tensor(RING), Like(edge_index=torch.tensor(RING)), RING.tolist(), Like(edge_index=RING, pos=None)],
)
def test_an_edge_index_is_its_matrix(edges):
    assert np.array_equal(Graph.from_affinity(edges).affinity.toarray(), SQUARE)


class EdgeSeq(dict):
    """Columns of the edges, as igraph has them."""

    def attributes(self):
        return list(self)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0]])
def test_an_igraph_graph_has_the_matrix_of_its_edges(weights):
    edges = [(0, 1), (1, 2), (3, 2), (2, 2)]
    columns = {} if weights is None else {"weight": weights}
    graph = Like(is_directed=lambda: False, vcount=lambda: 4, get_edgelist=lambda: edges, es=EdgeSeq(columns))
    wanted = nx.Graph()
    wanted.add_nodes_from(range(4))
    wanted.add_weighted_edges_from(
        [(*edge, 1.0 if weights is None else weights[k]) for k, edge in enumerate(edges)]
    )
    assert np.array_equal(Graph.from_affinity(graph).affinity.toarray(), nx.to_numpy_array(wanted))


def geo(points, *, degrees):
    """What is read of a GeoDataFrame."""
    return Like(geometry=Like(x=points[:, 0], y=points[:, 1]), crs=Like(is_geographic=degrees))


def test_points_of_geopandas_are_plane_or_on_the_earth():
    plane, earth = np.random.default_rng(0).uniform(size=(300, 2)), Sphere(radius=6371.0)
    fits = [features().fit(space).transform(plane[:20]) for space in (plane, geo(plane, degrees=False))]
    assert np.array_equal(*fits)
    assert np.array_equal(earth.from_lonlat(geo(plane, degrees=True)), earth.from_lonlat(plane))
    with pytest.raises(ValueError, match=re.escape("Sphere.from_lonlat(frame) makes them")):
        features().fit(geo(plane, degrees=True))
    with pytest.raises(ValueError, match=re.escape("`lonlat` must be in degrees")):
        earth.from_lonlat(geo(plane, degrees=False))


def test_columns_that_look_like_degrees_are_warned_of():
    degrees = Sphere().to_lonlat(Sphere().sample(300, seed=0))
    with pytest.warns(UserWarning, match="look like degrees"):
        ManifoldRandomFeatures(random_state=0).fit(degrees)
    named = pd.DataFrame(degrees / 10, columns=["Longitude", "lat"])
    for table, wanted in (
        (degrees[:, ::-1], True),
        (named, True),
        (named.set_axis(["late", "x"], axis=1), False),
        (3 * degrees, False),
        (np.abs(degrees), False),
    ):
        assert look_like_degrees(np.asarray(table), column_names(table)) == wanted


def test_an_edge_index_with_positions_weights_and_lonely_nodes():
    places = torch.arange(10.0).reshape(5, 2)
    data = Like(edge_index=torch.tensor(RING), pos=places, edge_weight=torch.full((8,), 0.5), num_nodes=5)
    for make in (lambda: Graph.from_affinity(data), lambda: Graph.from_affinity(RING, places)):
        with pytest.warns(ManifoldWarning, match="1 nodes are isolated"):
            found = make()
        assert found.n_nodes == 5
        assert np.array_equal(found.points, places)
    assert Graph.from_affinity(Like(edge_index=RING, edge_weight=[0.5] * 8)).affinity.max() == 0.5


def test_a_sparse_matrix_carries_a_field():
    graph = mesh_graph(MESH, weights="unit")
    filled = [FieldInterpolator("harmonic").fit(space, HEIGHTS).predict() for space in (graph.affinity, graph)]
    assert np.array_equal(*filled)


def test_clouds_tensors_and_frames_are_points():
    cloud = MESH.vertices
    wanted = features().fit(cloud).transform(cloud)
    others = [
        Like(points=cloud, faces=np.zeros(0, int), n_strips=0),
        Like(points=cloud, cells=blocks(("vertex", np.arange(200)[:, None]))),
        Like(pos=torch.tensor(cloud), face=None, edge_index=None),
        torch.tensor(cloud),
        pd.DataFrame(cloud, columns=["vertices", "faces", "pos"]),  # columns are attributes of a frame
        pl.DataFrame(cloud, schema=["points", "cells", "edge_index"]),
    ]
    for other in others:
        model = features().fit(other)
        model.__dict__.pop("feature_names_in_", None)
        assert np.array_equal(model.transform(cloud), wanted)
        assert knn_graph(other).n_nodes == 200


def test_objects_that_do_not_fit_are_refused():
    some = nx.path_graph(3)
    some.nodes[0]["pos"] = (0.0, 0.0)
    cases = [
        (lambda: TriangleMesh.of(MESH.vertices), "`mesh` must be a TriangleMesh, or a mesh of trimesh"),
        (lambda: TriangleMesh.of("scan.ply"), "TriangleMesh.load reads a file. Got str"),
        (lambda: Graph.from_affinity(MESHES["trimesh"]), "`affinity` must be a matrix or a graph. Got Trimesh"),
        (
            lambda: Graph.from_affinity(some),
            "`affinity` must be a graph with `pos` at all nodes, or at none. Got 1 of 3",
        ),
        (lambda: Graph.from_affinity(torch.tensor([[0, 2], [2, 0]])), "a matrix or an edge index, not both"),
        (lambda: Graph.from_affinity(nx.Graph()), "a square matrix of at least one row"),
        (lambda: mesh_graph(nx.path_graph(3)), "`mesh` must be a TriangleMesh"),
        (
            lambda: DiffusionKernel(1.0).dense(nx.path_graph(3)),
            "from a matrix or from a graph of another library. Got Graph.",
        ),
        (
            lambda: Graph.from_affinity(nx.Graph([(0, 1, {"weight": "far"})])),
            "`affinity edge weights` must be an array",
        ),
    ]
    cases += [
        (lambda: features().fit(Like(obsm={}, var_names=[])), "one array of the cells, such as adata.obsm"),
        (lambda: features().fit(sparse.random_array((50, 3), density=0.5)), "Sparse data was passed"),
        (lambda: TriangleMesh.of(Like(parts={}, n_vertices=3)), "one mesh; mesh.parts has one"),
    ]
    for call, words in cases:
        with pytest.raises((ValueError, TypeError), match=re.escape(words)):
            call()
    small = Graph.from_affinity(torch.tensor([[0, 1], [1, 0]]))  # the same graph as a matrix and as an edge index
    assert small.affinity.toarray().tolist() == [[0, 1], [1, 0]]


def test_recognising_imports_nothing():
    code = importlib.import_module("manifoldrf.geometry.objects").__dict__
    assert not {"trimesh", "networkx", "torch", "pandas", "meshio", "pyvista"} & set(code)
