"""Mesh files keep every vertex, every digit the format holds, and refuse what they cannot hold."""

import struct
import sys
from pathlib import Path

import meshio
import nibabel
import numpy as np
import pytest
import trimesh
from oracles import sphere_mesh

from manifoldrf import TriangleMesh
from manifoldrf.geometry.mesh_files import MESH_FORMATS, write_ply

VERTICES = np.random.default_rng(0).normal(size=(30, 3)) * 10.0 ** np.arange(-150, 150, 10)[:, None]
FACES = np.arange(30).reshape(10, 3)
COLORS = np.random.default_rng(1).integers(0, 256, size=(30, 3)).astype(np.uint8)
TETRAHEDRON = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
ITS_FACES = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]
# A comb with three teeth: no corner sees all of it.
COMB = np.array([(0, 0), (10, 0), (10, 3), (9, 3), (9, 1), (6, 1), (6, 3), (5, 3), (5, 1), (1, 1), (1, 3), (0, 3)])
ARROW = np.array([(0, 0), (2, 0), (0, 2), (0.5, 0.5)])  # a concave quadrilateral


def assert_same(mesh, vertices, faces):
    np.testing.assert_array_equal(mesh.vertices, vertices)
    np.testing.assert_array_equal(mesh.faces, faces)


@pytest.mark.parametrize("kind", ["ply", "obj", "off"])
def test_files_keep_every_bit_at_every_size(tmp_path, kind):
    assert_same(TriangleMesh.load(TriangleMesh(VERTICES, FACES).save(tmp_path / f"mesh.{kind}")), VERTICES, FACES)


@pytest.mark.parametrize("kind", MESH_FORMATS)
def test_an_area_far_from_the_origin_is_kept_or_a_warning_says_that_it_is_not(tmp_path, kind):
    sphere = trimesh.creation.icosphere(3)
    mesh = TriangleMesh(sphere.vertices + 5e6, sphere.faces)
    if kind in ("stl", "glb"):
        with pytest.warns(UserWarning, match="rounds positions to single precision.* .ply file keeps"):
            mesh.save(tmp_path / f"mesh.{kind}")
    else:
        assert TriangleMesh.load(mesh.save(tmp_path / f"mesh.{kind}")).area == mesh.area


def test_stl_says_that_it_splits_vertices_when_it_is_written_and_merges_equal_ones_when_read(tmp_path):
    mesh = TriangleMesh([*TETRAHEDRON, [9, 9, 9]], ITS_FACES)
    with pytest.warns(UserWarning, match="splits vertices"):
        mesh.save(tmp_path / "mesh.stl")
    found = TriangleMesh.load(tmp_path / "mesh.stl")
    np.testing.assert_array_equal(found.vertices, TETRAHEDRON[[0, 2, 1, 3]])  # in the order of the faces
    np.testing.assert_array_equal(found.vertices[found.faces], mesh.vertices[mesh.faces])
    (tmp_path / "text.stl").write_text(trimesh.load(tmp_path / "mesh.stl").export(file_type="stl_ascii"))
    assert TriangleMesh.load(tmp_path / "text.stl").n_vertices == 4


def test_a_coloured_mesh_and_a_coloured_cloud_keep_colours_and_every_bit(tmp_path):
    found = trimesh.load(TriangleMesh(VERTICES, FACES).save(tmp_path / "mesh.PLY", colors=COLORS), process=False)
    assert_same(found, VERTICES, FACES)
    np.testing.assert_array_equal(found.visual.vertex_colors[:, :3], COLORS)
    assert_same(TriangleMesh.load(tmp_path / "mesh.PLY"), VERTICES, FACES)
    write_ply(tmp_path / "cloud.ply", VERTICES, COLORS)
    cloud = trimesh.load(tmp_path / "cloud.ply", process=False)
    np.testing.assert_array_equal(cloud.vertices, VERTICES)
    np.testing.assert_array_equal(cloud.colors[:, :3], COLORS)


@pytest.mark.parametrize("name", ["field.vtk", "field.vtu", "field.gii", "field.surf.gii"])
def test_fields_are_written_as_numbers_for_viewers(tmp_path, name):
    mesh = sphere_mesh(60)
    field = np.where(np.arange(60) == 3, np.nan, mesh.vertices[:, 2] ** 3)
    path = mesh.save(tmp_path / name, field=field)
    again, tolerance = TriangleMesh.load(path), 1e-7 if name.endswith("gii") else 0.0
    np.testing.assert_allclose(again.vertices, mesh.vertices, atol=tolerance)
    assert np.array_equal(again.faces, mesh.faces)
    found = nibabel.load(path).agg_data("shape") if name.endswith("gii") else meshio.read(path).point_data["field"]
    np.testing.assert_allclose(np.ravel(found), field, atol=tolerance)


def test_a_file_for_workbench_holds_the_field_alone(tmp_path):
    mesh = sphere_mesh(60)
    image = nibabel.load(mesh.save(tmp_path / "height.shape.gii", field=mesh.vertices[:, 2]))
    assert len(image.darrays) == 1
    assert np.array_equal(image.darrays[0].data, mesh.vertices[:, 2].astype("f4"))
    with pytest.raises(ValueError, match="`field` must be given"):
        mesh.save(tmp_path / "height.shape.gii")


# -------------------------------------------------------------------------------------------------------- polygons
def polygon_file(kind, corners):
    """One polygon in the plane."""
    n, points = len(corners), [f"{x} {y} 0" for x, y in corners]
    head = f"ply\nformat ascii 1.0\nelement vertex {n}\nproperty float x\nproperty float y\nproperty float z\n"
    head += "element face 1\nproperty list uchar int vertex_index\nend_header"
    rest = [*points, " ".join(map(str, [n, *range(n)]))]
    texts = {"ply": [head, *rest], "off": ["OFF # a polygon", f"{n} 1 0", *rest]}
    texts["obj"] = [*(f"v {point}" for point in points), "f " + " ".join(f"{k + 1}/7" for k in range(n))]
    return "\n".join(texts[kind]) + "\n"


@pytest.mark.parametrize("corners", [COMB, COMB[::-1], ARROW, ARROW[[1, 2, 3, 0]], COMB[:5]])
@pytest.mark.parametrize("kind", ["obj", "off", "ply"])
def test_polygons_are_cut_into_triangles_that_cover_them(tmp_path, kind, corners):
    (tmp_path / f"mesh.{kind}").write_text(polygon_file(kind, corners))
    mesh = TriangleMesh.load(tmp_path / f"mesh.{kind}")
    x, y = corners.T
    area = (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2  # the shoelace formula
    np.testing.assert_array_equal(mesh.vertices[:, :2], corners)
    assert mesh.n_faces == len(corners) - 2
    assert mesh.face_areas() @ mesh.face_normals()[:, 2] == pytest.approx(area, rel=1e-12)
    assert mesh.area == pytest.approx(abs(area), rel=1e-12)


def test_a_polygon_whose_sides_cross_is_refused(tmp_path):
    (tmp_path / "mesh.obj").write_text(polygon_file("obj", COMB[[0, 2, 1, 5, 3, 4, 7, 6]]))
    with pytest.raises(ValueError, match=r"mesh\.obj: a polygon whose sides cross"):
        TriangleMesh.load(tmp_path / "mesh.obj")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("extra", [b"", b"\7"])
def test_a_binary_ply_of_triangles_and_quadrilaterals_is_read(tmp_path, order, extra):
    points = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]], order + "f8")
    form = "binary_little_endian" if order == "<" else "binary_big_endian"
    head = ["ply", f"format {form} 1.0", "comment made by hand", "element vertex 5"]
    head += [f"property double {axis}" for axis in "xyz"]
    head += [
        "element face 3",
        "property list uchar uint vertex_indices",
        *(["property uchar red"] if extra else []),
    ]
    faces = [(4, 0, 1, 2, 3), (3, 0, 1, 4), (3, 1, 2, 4)]
    rows = [struct.pack(f"{order}B{len(face) - 1}I", *face) + extra for face in faces]
    data = "\n".join([*head, "end_header\n"]).encode() + points.tobytes() + b"".join(rows)
    (tmp_path / "mesh.ply").write_bytes(data)
    assert_same(TriangleMesh.load(tmp_path / "mesh.ply"), points, [[0, 1, 2], [0, 2, 3], [0, 1, 4], [1, 2, 4]])


def test_an_obj_file_keeps_its_vertices_across_seams_and_relative_indices(tmp_path):
    points = "v 0 0 0 1 0 0\nv 1 0 0\nv 0 1 0\n"
    text = f"mtllib a.mtl\no one\n{points}vt 0 0\nvt 1 1\nvn 0 0 1\nusemtl a\nf 1/1/1 2/2/1 3/1/1 # a seam\n"
    text += "g two\nv 0 0 1\nf -4/2 -3/1 \\\n  -1/1\nv 9 9 9\ns off\nf 1//1 3//1 4//1\n"
    (tmp_path / "mesh.obj").write_text(text)
    wanted = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [9, 9, 9]]
    assert_same(TriangleMesh.load(tmp_path / "mesh.obj"), wanted, [[0, 1, 2], [0, 1, 3], [0, 2, 3]])


def test_the_parts_of_a_glb_scene_are_placed_and_joined(tmp_path):
    scene, move = trimesh.Scene(), trimesh.transformations.translation_matrix([5, 0, 0])
    for place in (np.eye(4), move):
        scene.add_geometry(trimesh.Trimesh(TETRAHEDRON, ITS_FACES, process=False), transform=place)
    (tmp_path / "two.glb").write_bytes(scene.export(file_type="glb"))
    mesh = TriangleMesh.load(tmp_path / "two.glb")
    whole = TriangleMesh(TETRAHEDRON, ITS_FACES)
    assert (mesh.n_vertices, mesh.report().components) == (8, 2)
    np.testing.assert_allclose(mesh.face_areas(), np.tile(whole.face_areas(), 2), rtol=1e-6)
    np.testing.assert_array_equal(np.ptp(mesh.vertices, axis=0), [6, 1, 1])


# ---------------------------------------------------------------------------------------------- meshio and nibabel
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.vtk", "vtk"),
        ("b.vtk", "vtk42"),
        ("c.vtu", "vtu"),
        ("d.msh", "gmsh"),
        ("e.msh", "gmsh22"),
        ("f.mesh", "medit"),
    ],
)
def test_meshio_reads_triangles_and_quadrilaterals_beside_lines(tmp_path, name, form):
    points = np.array([*TETRAHEDRON, [5, 0, 0], [6, 0, 0], [6, 1, 0], [5, 1, 0]])
    others = [] if form == "gmsh" else [("line", [[0, 1]]), ("quad", [[4, 5, 6, 7]])]  # it writes one type only
    meshio.write(tmp_path / name, meshio.Mesh(points, [("triangle", ITS_FACES), *others]), file_format=form)
    halves = [[4, 5, 6], [4, 6, 7]] if others else []
    assert_same(TriangleMesh.load(tmp_path / name), points, [*ITS_FACES, *halves])
    meshio.write(tmp_path / name, meshio.Mesh(TETRAHEDRON, [("tetra", [[0, 1, 2, 3]])]), file_format=form)
    with pytest.raises(ValueError, match=rf"{name}: it has cells of type tetra"):
        TriangleMesh.load(tmp_path / name)


def test_files_that_vtk_wrote_are_read_or_refused_with_a_remedy():
    folder = Path(__file__).parents[1] / "data" / "vtk"  # a tetrahedron, written by VTK 9.7
    assert_same(TriangleMesh.load(folder / "grid_binary.vtk"), TETRAHEDRON, ITS_FACES)
    for name in ("version_5_text.vtk", "surface.vtp"):
        with pytest.raises(ValueError, match=r"pyvista\.read"):
            TriangleMesh.load(folder / name)


@pytest.mark.parametrize("encoding", ["ASCII", "B64BIN", "B64GZ"])
def test_gii_files_are_read(tmp_path, encoding):
    parts = (("POINTSET", TETRAHEDRON.astype("f4")), ("TRIANGLE", np.array(ITS_FACES, "i4")))
    arrays = [
        nibabel.gifti.GiftiDataArray(
            values, f"NIFTI_INTENT_{intent}", datatype=values.dtype, encoding=f"GIFTI_ENCODING_{encoding}"
        )
        for intent, values in parts
    ]
    nibabel.save(nibabel.gifti.GiftiImage(darrays=arrays), tmp_path / "mesh.gii")
    assert_same(TriangleMesh.load(tmp_path / "mesh.gii"), TETRAHEDRON, ITS_FACES)
    nibabel.save(nibabel.gifti.GiftiImage(darrays=arrays[:1]), tmp_path / "points.gii")
    with pytest.raises(ValueError, match=r"points\.gii: .* one set of points and one of triangles"):
        TriangleMesh.load(tmp_path / "points.gii")


@pytest.mark.parametrize(
    ("kind", "package"), [("gii", "nibabel"), ("msh", "meshio.gmsh"), ("obj", "mapbox_earcut")]
)
def test_formats_of_the_extra_name_it_if_it_is_missing(tmp_path, monkeypatch, kind, package):
    (tmp_path / f"mesh.{kind}").write_text(polygon_file("obj", COMB))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"package '{package.split('.')[0]}'.*pip install 'manifoldrf\[mesh\]'"
    ):
        TriangleMesh.load(tmp_path / f"mesh.{kind}")
