"""The file that the explorer is: what is in it, how exact, how large, and what it says."""

import html
import json
import re
import zlib
from base64 import b64decode

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from manifoldrf import Counts, DiffusionKernel, FarQueryWarning, HeatKernel, Sphere, knn_graph
from manifoldrf.explorer.page import explore, normals_and_radii, oriented, quantised


def decoded_columns(arrays, name, shape, *, signed=False):
    """Sparse columns of a page, read number by number as its script does: dense of the given shape."""
    result = np.zeros(shape)
    numbers, steps = (
        sum(arrays[f"{name}{part}{k}"].astype(int) << 8 * k for k in range(3) if f"{name}{part}{k}" in arrays)
        for part in ("Numbers", "Steps")
    )
    if signed:
        numbers = np.where(numbers % 2, -(numbers + 1) // 2, numbers // 2)
    ends = np.cumsum(arrays[f"{name}Counts"])
    for column, (count, end) in enumerate(zip(arrays[f"{name}Counts"], ends, strict=True)):
        own = slice(end - count, end)
        result[np.cumsum(steps[own]) - 1, column] = numbers[own] * arrays[f"{name}Scales"][column]
    assert ends[-1:].sum() == len(numbers)
    return result


class Contents:
    """A page read back: its text, numbers, and fields."""

    def __init__(self, page):
        self.text = page.html if hasattr(page, "html") else page.read_text("utf-8")
        self.meta = json.loads(re.search(r'id="meta">(.*?)</script>', self.text, re.DOTALL)[1])
        block = zlib.decompress(b64decode(re.search(r'id="data">(.*?)</script>', self.text, re.DOTALL)[1]))
        self.arrays = {
            part["name"]: np.frombuffer(block, np.dtype(part["type"]), part["length"], part["offset"])
            for part in self.meta["arrays"]
        }
        self.ids = self.arrays["ids"]
        self.faces = self.arrays["faces"].reshape(-1, 3)
        self.positions = self.arrays["positions"].reshape(-1, 3)
        self.anchors = self.arrays["anchorIds"]
        self.weights = self.arrays["weights"]
        self.values = decoded_columns(self.arrays, "field", (len(self.ids), len(self.weights)))

    @property
    def difference(self):
        shape = (len(self.ids), self.meta["nExact"])
        return decoded_columns(self.arrays, "difference", shape, signed=True)

    @property
    def kernel(self):
        return self.meta["share"] * (self.values * self.weights) @ self.values.T


@pytest.fixture(scope="module")
def sphere(fitted):
    """Sixty features on 400 points of the sphere, with signatures that are not exact."""
    return fitted(Sphere().sample(400, seed=0), DiffusionKernel(30.0), n_features=60, teacher=Counts(300))


@pytest.fixture(scope="module")
def torus(fitted, torus_mesh):
    return fitted(torus_mesh(), HeatKernel(0.3), n_features=80)


@pytest.fixture(scope="module")
def sphere_page(sphere, tmp_path_factory):
    page = explore(sphere, tmp_path_factory.mktemp("page") / "sphere.html", title="Sphere")
    return page, Contents(page.path)


@pytest.fixture(scope="module")
def smooth(fitted):
    """More features than its kernel needs."""
    return fitted(Sphere().sample(300, seed=0), HeatKernel(0.6), n_features=80)


class TestShapes:
    @pytest.mark.parametrize(("bits", "signed"), [(8, False), (16, True)])
    def test_no_entry_moves_by_more_than_half_the_scale_of_its_column(self, bits, signed):
        rng = np.random.default_rng(0)
        values = rng.exponential(size=(70, 9)) * 10.0 ** rng.integers(-5, 5, 9)
        values *= rng.random((70, 9)) < 0.6
        values *= rng.choice([-1, 1], values.shape) if signed else 1
        values[:, 3] = 0.0
        numbers, scales = quantised(values, bits, signed=signed)
        assert (np.abs(numbers.toarray() * scales - values) <= scales / 2 * (1 + 1e-9)).all()
        levels = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        assert_allclose(scales, np.abs(values).max(axis=0) / levels)

    def test_spheres_have_normals_and_space_and_curves_have_none(self):
        points = Sphere().grid(2000)
        assert np.median(np.abs((normals_and_radii(points)[0] * points).sum(axis=1))) > 0.999
        places = np.random.default_rng(0).random((2000, 3))
        for cloud in (places, places * [1, 0, 0], np.repeat(places[:30], 2, axis=0), places[:1]):
            normals, radii, _ = normals_and_radii(cloud)
            assert not normals.any()
            assert (radii > 0).all()

    def test_neighbours_face_the_same_side(self, torus_mesh):
        """Faces in a random direction come back as those of one side, in every part of a mesh."""
        mesh = torus_mesh()
        rng = np.random.default_rng(0)
        faces = np.concatenate([mesh.faces, mesh.faces + mesh.n_vertices])
        mixed = np.where(rng.random(len(faces))[:, None] < 0.5, faces[:, ::-1], faces)
        found = oriented(mixed)
        assert_array_equal(np.sort(found, axis=1), np.sort(faces, axis=1))
        sides = found[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
        assert len(np.unique(sides, axis=0)) == len(sides)  # each edge once in each direction
        strip = np.array([[k % 5, (k + 1) % 5, (k + 2) % 5] for k in range(5)])  # a Moebius strip
        assert_array_equal(np.sort(oriented(strip), axis=1), np.sort(strip, axis=1))
        assert oriented(strip[:0]).shape == (0, 3)


class TestContents:
    def test_the_kernel_of_the_page_is_that_of_the_model_within_the_stated_error(self, sphere, sphere_page):
        page, contents = sphere_page
        exact = sphere.kernel_matrix(sphere.graph_.positions[contents.ids])
        error = np.abs(contents.kernel - exact).max() / exact.max()
        assert 0 < page.error < 1e-4
        assert page.error == pytest.approx(error, rel=1e-6)  # all pairs were compared
        assert "between any two points of this page" in page.path.read_text("utf-8")

    def test_units_are_those_of_the_kernel(self, fitted, sphere_page, torus, tmp_path):
        def unit(model):
            return Contents(explore(model, tmp_path / "page.html").path).meta["unit"]

        assert sphere_page[1].meta["unit"] == "of the graph"
        assert unit(torus) == "per unit of volume"
        cloud = Sphere().grid(200)
        assert unit(fitted(cloud, 3 * HeatKernel(0.6), n_features=80)) == ""
        assert unit(fitted(cloud, HeatKernel(0.6), n_features=80, normalize=True)) == ""

    def test_fields_are_features_without_the_roots_of_the_weights(self, sphere, sphere_page):
        _, contents = sphere_page
        order = [sphere.anchors_.tolist().index(anchor) for anchor in contents.anchors]
        assert_array_equal(contents.weights, sphere.weights_[order])
        features = sphere.transform(sphere.graph_.positions[contents.ids])[:, order]
        # Half a step of 65535 in each column, and entries below 1e-7 of its largest.
        assert_allclose(contents.values * np.sqrt(contents.weights), features, atol=1e-5 * features.max())

    def test_exact_signatures_are_rows_of_the_root_of_the_kernel(self, sphere, sphere_page):
        """In the graph clock: the root over the root of the anchor's own measure."""
        _, contents = sphere_page
        graph, setting = sphere.graph_, sphere.map_.kernel
        root = setting.resolved.root().dense(graph)[np.ix_(contents.ids, contents.anchors)]
        exact = root / np.sqrt(setting.measure[contents.anchors])
        found = contents.values - contents.difference
        assert np.abs(contents.difference).max() > 0.01 * exact.max()  # there is something to show
        assert_allclose(found, exact, atol=1e-3 * exact.max())

    def test_exact_signatures_in_the_manifold_clock_are_per_volume(self, smooth):
        contents = Contents(explore(smooth))
        graph, setting = smooth.graph_, smooth.map_.kernel
        volumes = setting.measure * setting.unit
        root = setting.resolved.root().dense(graph)[np.ix_(contents.ids, contents.anchors)]
        exact = root / np.sqrt(volumes[contents.ids])[:, None] / np.sqrt(volumes[contents.anchors])
        assert_allclose(contents.values - contents.difference, exact, atol=1e-3 * exact.max())

    def test_a_mesh_keeps_its_triangles(self, torus, tmp_path):
        contents = Contents(explore(torus, tmp_path / "torus.html").path)
        mesh = torus.graph_.whole_mesh
        there = {tuple(sorted(face)) for face in contents.ids[contents.faces].tolist()}
        assert there == {tuple(sorted(face)) for face in mesh.faces.tolist()}
        assert_allclose(contents.positions + contents.meta["origin"], mesh.vertices[contents.ids], atol=1e-6)

    def test_fields_are_drawn_on_another_surface(self, torus_mesh, torus, tmp_path):
        """Its vertices are no nodes: there are no exact values, and the page says so by leaving the layers out."""
        finer = torus_mesh(36, 12)
        page = explore(torus, tmp_path / "page.html", surface=finer)
        contents = Contents(page.path)
        assert (page.n_points, page.n_exact) == (finer.n_vertices, 0)
        assert len(contents.faces) == finer.n_faces
        exact = torus.kernel_matrix(finer.vertices[contents.ids])
        assert_allclose(contents.kernel, exact, atol=2 * page.error * exact.max())
        assert "differenceCounts" not in contents.arrays
        cloud = explore(torus, tmp_path / "cloud.html", surface=finer.vertices[:50])
        assert cloud.n_points == 50
        assert len(Contents(cloud.path).faces) == 0

    def test_points_away_from_the_space_are_warned_of(self, torus_mesh, torus, tmp_path):
        with pytest.warns(FarQueryWarning, match="1 of 289 points are away from the space"):
            explore(torus, tmp_path / "page.html", surface=np.concatenate([torus_mesh().vertices, [[0, 0, 5.0]]]))


class TestSize:
    @pytest.mark.parametrize("share", [0.5, 0.9])
    def test_no_page_is_larger_than_allowed_and_each_says_what_it_lacks(self, smooth, tmp_path, share):
        full = explore(smooth)
        assert full.left_out == ()
        fixed = explore(Sphere().grid(2), fields={"x": [0.0, 1.0]}).n_bytes  # scripts, mostly
        limit = int(fixed + share * (full.n_bytes - fixed))
        page = explore(smooth, tmp_path / "small.html", max_bytes=limit)
        assert page.n_bytes == page.path.stat().st_size <= limit
        contents = Contents(page.path)
        assert page.left_out
        assert all(sentence in contents.text and sentence in str(page) for sentence in page.left_out)
        assert (len(contents.weights), len(contents.ids)) == (page.n_features, page.n_points)
        assert set(contents.meta["decades"].values()) == {4 if page.bits == 16 else 2}
        assert contents.meta["share"] * contents.weights.sum() == pytest.approx(smooth.weights_.sum())
        exact = smooth.kernel_matrix(smooth.graph_.positions[contents.ids])
        assert np.abs(contents.kernel - exact).max() / exact.max() == pytest.approx(page.error, rel=1e-6)

    def test_a_thinned_mesh_is_joined_again(self, torus, tmp_path):
        page = explore(torus, tmp_path / "page.html", n_points=150)
        contents = Contents(page.path)
        assert page.left_out == ("150 of 288 vertices are drawn, joined by coarser triangles.",)
        assert page.left_out[0] in contents.text
        assert 150 < len(contents.faces) < 400
        vertices = torus.graph_.whole_mesh.vertices[contents.ids]
        assert_allclose(contents.positions + contents.meta["origin"], vertices, atol=1e-6)


class TestPage:
    def test_nothing_is_fetched(self, sphere_page):
        text = sphere_page[1].text
        assert "default-src 'none'" in text
        assert not re.search(r"https?://|@import|url\(", text)


class TestOwnFields:
    def test_they_are_stored_to_the_last_bit_with_the_range_of_all_values(self, torus_mesh):
        mesh = torus_mesh()
        exact = np.random.default_rng(0).standard_normal(mesh.n_vertices)
        single = exact.astype(np.float32).astype(float)
        page = Contents(explore(mesh, fields={"a": exact, "b": single}, n_points=200))
        assert page.meta["fields"] == [
            {"name": name, "low": values.min(), "high": values.max()}
            for name, values in (("a", exact), ("b", single))
        ]
        assert_array_equal(page.arrays["own0"], exact[page.ids])
        assert_array_equal(page.arrays["own1"], single[page.ids])
        assert page.arrays["own1"].dtype == np.float32  # which loses nothing
        assert len(page.ids) == 200
        assert len(page.weights) == 0

    def test_a_model_keeps_its_layers(self, sphere, sphere_page):
        heights = sphere.graph_.positions[:, 2]
        page = Contents(explore(sphere, fields={"height": heights}, title="Sphere"))
        assert_array_equal(page.arrays["own0"], heights[page.ids])
        for name, array in sphere_page[1].arrays.items():
            assert_array_equal(page.arrays[name], array)

    def test_clouds_graphs_and_frames_are_taken(self):
        points = Sphere().sample(150, seed=0)
        frame = pd.DataFrame({"height": points[:, 2], "half": np.where(points[:, 0] > 0, 1, np.nan)})
        page = Contents(explore(points, fields=frame))
        assert [field["name"] for field in page.meta["fields"]] == ["height", "half"]
        assert np.isnan(page.arrays["own1"]).any()
        assert "no value at" in page.text
        again = Contents(explore(knn_graph(points), fields=dict(frame)))
        assert_array_equal(again.arrays["own0"], page.arrays["own0"])

    def test_without_a_path_nothing_is_written(self, torus_mesh, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        mesh = torus_mesh()
        page = explore(mesh, fields={"x": mesh.vertices[:, 0]})
        assert page.path is None
        assert list(tmp_path.iterdir()) == []
        written = explore(mesh, tmp_path / "page.html", fields={"x": mesh.vertices[:, 0]})
        assert written.path.read_text("utf-8") == page.html == written.html
        frame = re.fullmatch(r'<iframe sandbox="(.*?)" style=".*?" srcdoc="([^"]*)"></iframe>', page._repr_html_())
        assert frame[1] == "allow-scripts allow-downloads"
        assert html.unescape(frame[2]) == page.html

    def test_wrong_fields_are_refused_by_name(self, torus_mesh):
        for fields, argument in [
            ({3: np.zeros(288)}, "`fields`"),
            ({}, "`fields`"),
            ({"a": np.zeros(287)}, r"`fields\['a'\]`"),
            ({"a": np.full(288, np.nan)}, r"`fields\['a'\]`"),
        ]:
            with pytest.raises((TypeError, ValueError), match=f"{argument} must be"):
                explore(torus_mesh(), fields=fields)
