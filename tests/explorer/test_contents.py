"""The file that the explorer is: what is in it, how exact, how large, and what it says."""

import dataclasses
import html
import json
import re
import zlib
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from marks import quick_ones
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FarQueryWarning,
    FieldInterpolator,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    knn_graph,
    load,
)
from manifoldrf.explorer.contents import QuantisedColumns, View, chained, normals_of, oriented, radii_of, spacing_of
from manifoldrf.explorer.page import explore
from manifoldrf.geometry.neighbors import coarse_faces, nearest_along


def decoded_columns(arrays, name, shape, *, signed=False):
    """Sparse columns of a page, read number by number as its script does: dense of the given shape."""
    result = np.zeros(shape)
    steps, low = iter(arrays[f"{name}Steps"].tolist()), arrays[f"{name}Low"].astype(int)
    numbers = low + 256 * arrays.get(f"{name}High", np.zeros_like(low)).astype(int)
    if signed:
        numbers = np.where(numbers % 2, -(numbers + 1) // 2, numbers // 2)
    entry = 0
    for column, count in enumerate(arrays[f"{name}Counts"]):
        row = -1
        for _ in range(count):
            step = shift = 0
            while (byte := next(steps)) > 127:
                step, shift = step + ((byte - 128) << shift), shift + 7
            row += step + (byte << shift)
            result[row, column] = numbers[entry] * arrays[f"{name}Scales"][column]
            entry += 1
    assert entry == len(numbers)
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
    """Sixty features on 400 points of the sphere, with a field that is not exact."""
    return fitted(Sphere().sample(400, seed=0), DiffusionKernel(30.0), n_features=60, field="local")


@pytest.fixture(scope="module")
def torus(fitted, torus_mesh):
    return fitted(torus_mesh(), HeatKernel(0.1), n_features=80)


@pytest.fixture(scope="module")
def sphere_page(sphere, tmp_path_factory):
    page = explore(sphere, tmp_path_factory.mktemp("page") / "sphere.html", title="Sphere")
    return page, Contents(page.path)


@pytest.fixture(scope="module")
def least(sphere, tmp_path_factory):
    """Bytes of a page with next to nothing in it."""
    rule = r"`max_bytes` must be at least \d+ for this model, .* an error above 0\.2 of its largest value\. Got 1\."
    with pytest.raises(ValueError, match=rule) as caught:
        explore(sphere, tmp_path_factory.mktemp("page") / "none.html", max_bytes=1)
    return int(re.search(r"\d+", str(caught.value))[0])


@pytest.fixture(scope="module")
def smooth(fitted):
    """More features than its kernel needs."""
    return fitted(Sphere().sample(300, seed=0), HeatKernel(0.6), n_features=80)


class TestColumns:
    @pytest.mark.parametrize("bits", [8, 16])
    @pytest.mark.parametrize("signed", [False, True])
    def test_no_entry_moves_by_more_than_half_the_scale_of_its_column(self, bits, signed):
        rng = np.random.default_rng(0)
        values = rng.exponential(size=(70, 9)) * 10.0 ** rng.integers(-5, 5, 9)
        values *= rng.random((70, 9)) < 0.6
        values *= rng.choice([-1, 1], values.shape) if signed else 1
        packed = QuantisedColumns.of(sparse.csc_array(values), bits, signed=signed)
        levels = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        bound = np.abs(values).max(axis=0) / levels / 2
        assert (np.abs(packed.matrix().toarray() - values) <= bound * (1 + 1e-9)).all()
        read = decoded_columns({f"x{k}": v for k, v in packed.arrays().items()}, "x", values.shape, signed=signed)
        assert_array_equal(read, packed.matrix().toarray())

    def test_columns_may_be_empty(self):
        packed = QuantisedColumns.of(sparse.csc_array(np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])), 16)
        assert_array_equal(packed.matrix().toarray(), [[0, 2, 0], [0, 0, 0]])
        assert packed.arrays()["Counts"].tolist() == [0, 1, 0]
        assert chained(np.zeros(0, dtype=np.int64)).tolist() == []


class TestViews:
    def test_up_to_three_coordinates_are_drawn_as_they_are(self):
        points = np.random.default_rng(0).random((20, 2))
        view = View.of(points)
        assert_allclose(view.shown(points) + view.origin, np.pad(points, ((0, 0), (0, 1))), atol=1e-15)
        assert not view.projects

    def test_more_are_drawn_along_principal_axes(self):
        rng = np.random.default_rng(0)
        points = rng.standard_normal((500, 5)) * [1, 5, 0.1, 3, 2]
        view = View.of(points)
        spread = view.shown(points).var(axis=0)
        assert_allclose(spread, np.sort(np.linalg.eigvalsh(np.cov(points.T, ddof=0)))[::-1][:3])
        assert view.share == pytest.approx(spread.sum() / points.var(axis=0).sum())
        assert view.projects

    def test_normals_of_a_sphere_point_outwards_or_inwards(self):
        points = Sphere().grid(2000)
        assert np.median(np.abs((normals_of(points) * points).sum(axis=1))) > 0.999

    @pytest.mark.parametrize("curve", [0.0, 1.0])
    def test_discs_of_random_points_leave_no_gap(self, curve):
        """Every place of a torus, or of a flat ring away from its rims, lies on the disc of some point."""
        rng = np.random.default_rng(0)

        def places(n, margin=0.0):
            a, b = 2 * np.pi * rng.random((2, n))
            if curve:
                return np.stack(
                    [(1 + 0.4 * np.cos(b)) * np.cos(a), (1 + 0.4 * np.cos(b)) * np.sin(a), 0.4 * np.sin(b)], 1
                )
            radius = np.sqrt(rng.uniform((0.5 + margin) ** 2, (1.5 - margin) ** 2, n))
            return np.stack([radius * np.cos(a), radius * np.sin(a), np.zeros(n)], 1)

        points = places(1500)
        normals = normals_of(points)
        radii = radii_of(points, normals)
        steps = places(4000, margin=0.1)[:, None] - points
        heights = np.einsum("qni,ni->qn", steps, normals)
        across = np.sqrt(np.maximum((steps**2).sum(axis=2) - heights**2, 0))
        covered = ((across <= radii) & (np.abs(heights) < 0.1)).any(axis=1)
        assert covered.all()
        # None is much wider than the gaps: at the rim, and beside dense corners.
        assert radii.max() < 3 * spacing_of(points)

    def test_balls_of_a_loose_cloud_and_doubled_points_have_radii(self):
        places = np.random.default_rng(0).random((300, 3))
        radii = radii_of(places, np.zeros((300, 3)))
        assert radii.std() > 0.1 * radii.mean()  # each by its own neighbours
        doubled = np.repeat(places[:30] * [1, 1, 0], 2, axis=0)
        for normals in (np.zeros((60, 3)), np.tile([0.0, 0.0, 1.0], (60, 1))):
            assert (radii_of(doubled, normals) > 0.01).all()
        assert radii_of(places[:1], np.zeros((1, 3))).tolist() == [1]

    def test_clouds_that_fill_space_and_curves_have_no_normals(self):
        places = np.random.default_rng(0).random((2000, 3))
        assert not normals_of(places).any()
        assert not normals_of(places * [1, 0, 0]).any()

    def test_nearest_along_a_mesh_does_not_jump_across_space(self):
        """Two sheets .01 apart: targets on one sheet only serve the other where no edge leads to any."""
        grid = np.stack([*np.meshgrid(np.arange(4.0), np.arange(4.0), indexing="ij")], -1).reshape(-1, 2)
        squares = [4 * i + j for i in range(3) for j in range(3)]
        sheet = np.array([[s, s + 1, s + 4] for s in squares] + [[s + 1, s + 5, s + 4] for s in squares])
        heights = np.repeat([0.0, 0.01], 16)
        vertices = np.column_stack([np.concatenate([grid, grid]), heights])
        mesh = TriangleMesh(vertices, np.concatenate([sheet, sheet + 16]))
        found = nearest_along(mesh, np.array([0, 31]))
        assert found.tolist() == [0] * 16 + [1] * 16
        assert nearest_along(mesh, np.array([0])).tolist() == [0] * 32

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

    def test_a_coarse_mesh_stays_closed_in_one_piece(self, torus_mesh):
        mesh = torus_mesh(60, 30)
        kept = np.sort(np.random.default_rng(0).permutation(mesh.n_vertices)[:900])
        faces = coarse_faces(mesh, nearest_along(mesh, kept))
        assert len(np.unique(faces)) > 0.98 * len(kept)
        assert (np.diff(np.sort(faces, axis=1), axis=1) > 0).all()
        coarse = TriangleMesh(mesh.vertices[kept], faces)
        assert coarse.area == pytest.approx(mesh.area, rel=0.1)


class TestContents:
    def test_the_kernel_of_the_page_is_that_of_the_model_within_the_stated_error(self, sphere, sphere_page):
        page, contents = sphere_page
        exact = sphere.kernel_matrix(sphere.graph_.positions[contents.ids])
        error = np.abs(contents.kernel - exact).max() / exact.max()
        assert 0 < page.error < 1e-4
        assert page.error == pytest.approx(error, rel=1e-6)  # all pairs were compared
        assert "between any two points of this page" in page.path.read_text("utf-8")

    @pytest.mark.filterwarnings("ignore::manifoldrf.GraphWarning")  # of few points in five dimensions
    @pytest.mark.parametrize("case", quick_ones(["network", "five dimensions"], "five dimensions"))
    def test_columns_are_right_even_where_bounds_of_features_are_far_too_large(self, fitted, case, tmp_path):
        """Of these a network stays 1e4 times below what it could give, a field in five dimensions 1e3 times."""
        if case == "network":
            options = {"field": "mlp", "field_options": {"epochs": 1, "network": "paper", "device": "cpu"}}
            made = fitted(Sphere().sample(100, seed=0), DiffusionKernel(20.0), n_features=30, **options)
        else:
            cloud = np.random.default_rng(0).standard_normal((300, 5))
            made = fitted(cloud, HeatKernel(0.5), n_features=50)
        page = explore(made, tmp_path / "page.html")
        contents = Contents(page.path)
        order = [made.anchors_.tolist().index(anchor) for anchor in contents.anchors]
        features = made.transform(made.graph_.positions[contents.ids])
        features = (features.toarray() if sparse.issparse(features) else features)[:, order]
        shown = contents.values * np.sqrt(contents.weights)
        # Half a step of 65535 in each column; what is cut is smaller.
        assert (np.abs(shown - features).max(axis=0) <= 8e-6 * features.max(axis=0)).all()
        exact = features @ features.T
        assert page.error == pytest.approx(np.abs(contents.kernel - exact).max() / exact.max(), rel=0.02)

    def test_a_large_model_is_compared_at_some_pairs_and_says_so(self, torus, tmp_path, monkeypatch):
        monkeypatch.setattr("manifoldrf.explorer.contents._WORK", 1.0)
        page = explore(torus, tmp_path / "torus.html")
        text = page.path.read_text("utf-8")
        assert text.count(f"Error of K from rounding: {page.error:.2g} of the largest value") == 2
        assert text.count("the largest error of 18,432 random pairs of points") == 2  # 64 of 288 rows
        assert page.error <= explore(torus, tmp_path / "torus.html").error

    def test_units_are_those_of_the_kernel(self, fitted, torus_mesh, sphere_page, torus, tmp_path):
        def unit(model):
            return Contents(explore(model, tmp_path / "page.html").path).meta["unit"]

        assert sphere_page[1].meta["unit"] == "of the graph"
        assert unit(torus) == "per unit of volume"
        assert unit(fitted(torus_mesh(), 3 * HeatKernel(0.1), n_features=80)) == ""
        assert unit(fitted(torus_mesh(), HeatKernel(0.1), n_features=80, normalize=True)) == ""

    def test_logarithms_go_no_farther_than_the_numbers(self, sphere, sphere_page, least, tmp_path):
        """255 whole numbers span 2.4 decades, 65,535 span 4.8."""
        contents = sphere_page[1]
        assert contents.meta["decades"] == {"kernel": 4, "feature": 4, "exact": 4, "difference": 4}
        small = Contents(explore(sphere, tmp_path / "small.html", max_bytes=least + 1_000).path)
        assert set(small.meta["decades"].values()) == {2}

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
        graph, setting = sphere.graph_, sphere.map_.problem
        root = setting.kernel.root().dense(graph)[np.ix_(contents.ids, contents.anchors)]
        exact = root / np.sqrt(setting.measure[contents.anchors])
        found = contents.values - contents.difference
        assert np.abs(contents.difference).max() > 0.01 * exact.max()  # this field has something to show
        assert_allclose(found, exact, atol=1e-3 * exact.max())

    def test_exact_signatures_in_the_manifold_clock_are_per_volume(self, torus, tmp_path):
        contents = Contents(explore(torus, tmp_path / "torus.html").path)
        graph, setting = torus.graph_, torus.map_.problem
        volumes = setting.measure * torus.map_.problem.unit
        root = setting.kernel.root().dense(graph)[np.ix_(contents.ids, contents.anchors)]
        exact = root / np.sqrt(volumes[contents.ids])[:, None] / np.sqrt(volumes[contents.anchors])
        assert_allclose(contents.values - contents.difference, exact, atol=1e-3 * exact.max())

    def test_each_point_knows_its_nearest_anchor(self, sphere, sphere_page):
        _, contents = sphere_page
        points = sphere.graph_.positions
        gaps = np.linalg.norm(points[contents.ids][:, None] - points[contents.anchors], axis=2)
        assert_array_equal(contents.arrays["nearest"], gaps.argmin(axis=1))

    def test_first_anchors_are_far_apart(self, sphere_page, sphere):
        """Any number of them can be taken alone: they cover the sphere, whatever their order in the model."""
        _, contents = sphere_page
        first = sphere.graph_.positions[contents.anchors[:8]]
        gaps = np.linalg.norm(first[:, None] - first, axis=2)[np.triu_indices(8, 1)]
        assert gaps.min() > 0.8  # eight even points of the unit sphere are 1.2 apart

    def test_a_mesh_keeps_its_triangles(self, torus, tmp_path):
        contents = Contents(explore(torus, tmp_path / "torus.html").path)
        mesh = torus.graph_.mesh
        there = {tuple(sorted(face)) for face in contents.ids[contents.faces].tolist()}
        assert there == {tuple(sorted(face)) for face in mesh.faces.tolist()}
        assert_allclose(contents.positions + contents.meta["origin"], mesh.vertices[contents.ids], atol=1e-6)

    def test_a_loaded_model_makes_the_same_page(self, torus, tmp_path):
        again = load(torus.save(tmp_path / "torus.safetensors"))
        first, second = (explore(model, tmp_path / name) for model, name in ((torus, "a.html"), (again, "b.html")))
        assert first.path.read_bytes() == second.path.read_bytes()

    def test_the_same_model_makes_the_same_bytes(self, sphere, sphere_page, tmp_path):
        page, contents = sphere_page
        explore(sphere, tmp_path / "again.html", title="Sphere")
        assert (tmp_path / "again.html").read_text("utf-8") == contents.text
        assert page.n_bytes == (tmp_path / "again.html").stat().st_size

    @pytest.mark.parametrize("dim", [1, 2, 5])
    def test_spaces_of_other_dimensions_are_drawn(self, fitted, dim, tmp_path):
        points = np.random.default_rng(0).random((150, 2)) @ np.eye(2, dim)
        made = fitted(points, DiffusionKernel(4.0))
        contents = Contents(explore(made, tmp_path / "page.html").path)
        assert contents.positions.shape == (150, 3)
        assert contents.meta["dimensions"] == min(dim, 3)
        assert ("first three principal axes: 100% of the variance" in contents.text) == (dim > 3)

    def test_fields_are_drawn_on_another_surface(self, torus_mesh, torus, tmp_path):
        """Its vertices are no nodes: there are no exact values, and the page says so by leaving the layers out."""
        finer = torus_mesh(36, 12)
        page = explore(torus, tmp_path / "page.html", surface=finer)
        contents = Contents(page.path)
        assert (page.n_points, page.n_exact) == (finer.n_vertices, 0)
        assert len(contents.faces) == finer.n_faces
        exact = torus.kernel_matrix(finer.vertices[contents.ids])
        assert_allclose(contents.kernel, exact, atol=2 * page.error * exact.max())
        assert "differenceLow" not in contents.arrays
        cloud = explore(torus, tmp_path / "cloud.html", surface=finer.vertices[:50])
        assert cloud.n_points == 50
        assert len(Contents(cloud.path).faces) == 0

    def test_points_away_from_the_space_are_warned_of(self, torus_mesh, torus, tmp_path):
        with pytest.warns(FarQueryWarning, match="1 of 289 points are away from the space"):
            explore(torus, tmp_path / "page.html", surface=np.concatenate([torus_mesh().vertices, [[0, 0, 5.0]]]))


class TestSize:
    @pytest.mark.parametrize("extra", [1_000, 10_000, 40_000])
    def test_no_page_is_larger_than_allowed_and_each_says_what_it_lacks(
        self, sphere, sphere_page, least, tmp_path, extra
    ):
        full, _ = sphere_page
        assert full.left_out == ()
        limit = least + extra
        page = explore(sphere, tmp_path / "small.html", max_bytes=limit)
        assert page.n_bytes == page.path.stat().st_size <= limit < full.n_bytes
        assert page.left_out
        contents = Contents(page.path)
        for sentence in page.left_out:
            assert sentence in contents.text
            assert sentence in str(page)
        assert len(contents.weights) == page.n_features
        assert len(contents.ids) == page.n_points

    def test_fewer_features_have_weights_of_the_same_sum_and_an_error_that_is_stated(self, smooth, tmp_path):
        """As few as the smallest size that an error names allows; below it, nothing is written."""
        with pytest.raises(ValueError, match="`max_bytes` must be at least") as caught:
            explore(smooth, tmp_path / "none.html", max_bytes=1)
        least = int(re.search(r"\d+", str(caught.value))[0])
        with pytest.raises(ValueError, match=f"`max_bytes` must be at least .* Got {least - 500}"):
            explore(smooth, tmp_path / "none.html", max_bytes=least - 500)
        page = explore(smooth, tmp_path / "small.html", max_bytes=least)
        contents = Contents(page.path)
        assert page.n_bytes <= least
        assert page.n_features < 70
        assert contents.meta["share"] * contents.weights.sum() == pytest.approx(smooth.weights_.sum())
        exact = smooth.kernel_matrix(smooth.graph_.positions[contents.ids])
        assert np.abs(contents.kernel - exact).max() / exact.max() == pytest.approx(page.error, rel=1e-6)
        assert 0.02 < page.error <= 0.2
        assert f"{page.n_features} of 80 features are kept" in contents.text

    def test_points_are_thinned_before_anything_else(self, sphere, tmp_path):
        cloud = Sphere().grid(6000)
        full = explore(sphere, tmp_path / "full.html", surface=cloud)
        page = explore(sphere, tmp_path / "fewer.html", surface=cloud, max_bytes=int(0.9 * full.n_bytes))
        assert full.left_out == ()
        assert 4000 <= page.n_points < 6000
        assert (page.bits, page.n_features) == (16, 60)
        assert page.n_bytes <= 0.9 * full.n_bytes
        assert page.left_out == (f"{page.n_points} of 6000 points are drawn.",)

    def test_a_thinned_mesh_is_joined_again(self, torus, tmp_path):
        page = explore(torus, tmp_path / "page.html", n_points=150)
        contents = Contents(page.path)
        assert page.left_out == ("150 of 288 vertices are drawn, joined by coarser triangles.",)
        assert page.left_out[0] in contents.text
        assert 150 < len(contents.faces) < 400
        vertices = torus.graph_.mesh.vertices[contents.ids]
        assert_allclose(contents.positions + contents.meta["origin"], vertices, atol=1e-6)

    def test_nothing_is_written_where_nothing_fits(self, sphere, tmp_path):
        with pytest.raises(ValueError, match="max_bytes"):
            explore(sphere, tmp_path / "page.html", max_bytes=10)
        assert list(tmp_path.iterdir()) == []


class Tags(HTMLParser):
    """Tags that are opened and closed in turn, and the text of the heading."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.ids, self.heading = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h1":
            self.heading += data


class TestPage:
    @pytest.mark.parametrize("title", ["</script><b>bold</b>", "$title & ${data} \"quoted\" 'x'", "Wärme — 热"])
    def test_a_title_is_text_whatever_it_holds(self, sphere, sphere_page, tmp_path, title):
        tags = Tags(Contents(explore(sphere, tmp_path / "page.html", title=title).path).text)
        assert tags.heading == title
        assert tags.seen == Tags(sphere_page[1].text).seen
        assert not tags.open

    def test_signs_that_no_page_can_hold_are_replaced(self, sphere, tmp_path):
        """Halves of pairs cannot be written at all; control signs and turned text would be hidden."""
        page = explore(sphere, tmp_path / "page.html", title="a\ud800b\x00c\x1bd\u202ee")
        assert Tags(Contents(page.path).text).heading == "a\ufffdb\ufffdc\ufffdd\ufffde"

    def test_tags_are_balanced_and_ids_unique(self, sphere_page):
        tags = Tags(sphere_page[1].text)
        assert not tags.open
        assert len(set(tags.ids)) == len(tags.ids)

    def test_nothing_is_fetched(self, sphere_page):
        text = sphere_page[1].text
        assert "default-src 'none'" in text
        assert not re.search(r"https?://|@import|url\(", text)

    def test_arrays_of_the_model_are_not_spread_into_arguments(self, sphere_page):
        """More than some 100,000 arguments overflow the stack of a browser."""
        arrays = "|".join(sphere_page[1].arrays)
        assert not re.search(rf"\(\.\.\.(this\.)?(model\.)?({arrays})\b", sphere_page[1].text)

    def test_the_summary_of_the_model_and_the_error_are_in_it(self, sphere, sphere_page):
        page, contents = sphere_page
        assert "DiffusionKernel(tau=30.0)" in contents.text
        assert str(sphere.error_) in contents.text
        assert contents.text.count(f"Error of K from rounding: at most {page.error:.2g} of the largest value") == 2

    def test_the_record_reads_as_a_sentence(self, sphere_page):
        page, _ = sphere_page
        one = dataclasses.replace(page, n_points=1, n_features=1)
        assert f"{page.path}: 1 point, 1 feature, " in str(one)
        assert str(page).startswith(f"{page.path}: 400 points, 60 features, 0.")


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

    def test_fields_at_the_vertices_of_a_mesh_that_the_model_thinned_need_the_mesh(self, fitted, torus_mesh):
        mesh = torus_mesh(60, 30)
        model = fitted(mesh, HeatKernel(0.5), n_features=60)
        field = {"x": mesh.vertices[:, 0]}
        nodes = model.graph_.n_nodes
        assert nodes < mesh.n_vertices
        rule = (
            rf"`fields\['x'\]` must be a vector of shape \({nodes},\): one number for each node of the model; with "
        )
        with pytest.raises(ValueError, match=rule + "`surface`, for each of its vertices or points. Got shape"):
            explore(model, fields=field)
        page = Contents(explore(model, fields=field, surface=mesh))
        assert_array_equal(page.arrays["own0"], field["x"][page.ids])

    def test_clouds_graphs_and_frames_are_taken(self):
        points = Sphere().sample(150, seed=0)
        frame = pd.DataFrame({"height": points[:, 2], "half": np.where(points[:, 0] > 0, 1, np.nan)})
        page = Contents(explore(points, fields=frame))
        assert [field["name"] for field in page.meta["fields"]] == ["height", "half"]
        assert np.isnan(page.arrays["own1"]).any()
        assert "no value at" in page.text
        again = Contents(explore(knn_graph(points), fields=dict(frame)))
        assert_array_equal(again.arrays["own0"], page.arrays["own0"])

    def test_names_are_text_whatever_they_hold(self, torus_mesh, sphere_page):
        mesh = torus_mesh()
        names = ["</script><b>x</b>", '$title "', "a\x00\u202eb\ud800"]
        page = explore(mesh, fields=dict.fromkeys(names, mesh.vertices[:, 0]))
        assert not Tags(page.html).open
        assert Tags(page.html).seen.count("b") == Tags(sphere_page[1].text).seen.count("b") + 3
        assert [field["name"] for field in Contents(page).meta["fields"]] == [*names[:2], "a\ufffd\ufffdb\ufffd"]

    def test_too_many_fields_are_drawn_at_fewer_points(self, torus_mesh):
        mesh = torus_mesh(100, 60)
        rng = np.random.default_rng(0)
        fields = {f"field {k}": rng.standard_normal(mesh.n_vertices) for k in range(5)}
        page = explore(mesh, fields=fields, max_bytes=250_000)
        assert page.n_bytes <= 250_000
        assert page.left_out == (f"{page.n_points} of 6000 vertices are drawn, joined by coarser triangles.",)
        assert str(page).startswith(f"page: {page.n_points} points, 0.2")
        with pytest.raises(ValueError, match=r"`max_bytes` must be at least \d+ for these fields\. Got 10\."):
            explore(mesh, fields=fields, max_bytes=10)

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

    @pytest.mark.parametrize(
        ("fields", "kind", "match"),
        [
            ([1.0], TypeError, r"`fields` must be a dictionary of names and vectors, or a frame\. Got list\."),
            ({3: np.zeros(288)}, TypeError, r"`fields` must be a dictionary whose keys are names, .*\. Got 3\."),
            (
                {" ": np.zeros(288)},
                TypeError,
                r"`fields` must be a dictionary whose keys are names, .*\. Got ' '\.",
            ),
            (
                {"a": np.zeros(287)},
                ValueError,
                r"`fields\['a'\]` must be a vector of shape \(288,\): one number for each vertex of the mesh\. "
                r"Got shape \(287,\)\.",
            ),
            (
                {"a": np.zeros((288, 1))},
                ValueError,
                r"`fields\['a'\]` must be a vector of shape .* Got shape \(288, 1\)",
            ),
            (
                {"a": np.full(288, np.nan)},
                ValueError,
                r"`fields\['a'\]` must be a vector with at least one number\. ",
            ),
            (
                {"a": np.r_[np.zeros(287), np.inf]},
                ValueError,
                r"`fields\['a'\]` must be finite, or NaN where there is no value\. Got inf at index 287\.",
            ),
            ({"a": ["x"] * 288}, TypeError, r"`fields\['a'\]` must be an array of numbers"),
            (
                pd.DataFrame({3: np.zeros(288)}),
                TypeError,
                "`fields` must be .* frame whose columns have names. Got 3",
            ),
            ({}, ValueError, r"`fields` must be given for a space without a model: .* Got none\."),
        ],
    )
    def test_wrong_fields_are_refused_by_name(self, torus_mesh, fields, kind, match):
        with pytest.raises(kind, match=match):
            explore(torus_mesh(), fields=fields)

    def test_other_models_and_a_second_space_are_refused(self, torus_mesh):
        with pytest.raises(
            TypeError, match=r"`model` must be a fitted ManifoldRandomFeatures, .* Got FieldInterpolator"
        ):
            explore(FieldInterpolator(), fields={"a": [0.0]})
        mesh = torus_mesh()
        with pytest.raises(
            ValueError, match=r"`surface` must be left out for a space without a model\. Got TriangleMesh"
        ):
            explore(mesh, fields={"x": mesh.vertices[:, 0]}, surface=mesh)


class TestBadInput:
    def test_other_objects_are_refused(self, tmp_path):
        rule = r"`model` must be a fitted ManifoldRandomFeatures, a mesh, a graph or points\. Got str\."
        with pytest.raises(TypeError, match=rule):
            explore("model", tmp_path / "page.html")

    def test_models_must_be_fitted(self, tmp_path):
        with pytest.raises(NotFittedError):
            explore(ManifoldRandomFeatures(), tmp_path / "page.html")

    def test_two_sides_are_refused(self, fitted, tmp_path):
        two_sided = fitted(Sphere().grid(200), CosineKernel())
        with pytest.raises(
            ValueError, match=r"must be a model with nonnegative features, .* Got CosineKernel\(\) with two"
        ):
            explore(two_sided, tmp_path / "page.html")

    @pytest.mark.parametrize(
        ("options", "kind", "match"),
        [
            ({"title": 3}, TypeError, r"`title` must be a string\. Got 3\."),
            ({"n_points": 1}, ValueError, r"`n_points` must be an integer in \[2, inf\)\. Got 1\."),
            ({"n_points": "all"}, TypeError, "`n_points` must be an integer"),
            ({"max_bytes": 0}, ValueError, r"`max_bytes` must be an integer in \[1, inf\)\. Got 0\."),
            ({"surface": np.zeros((3, 2))}, ValueError, r"`surface` must be an array of shape \(n, 3\)"),
        ],
    )
    def test_options_are_checked(self, sphere, tmp_path, options, kind, match):
        with pytest.raises(kind, match=match):
            explore(sphere, tmp_path / "page.html", **options)

    def test_a_mesh_does_not_fit_a_plane(self, torus_mesh, fitted, tmp_path):
        plane = fitted(np.random.default_rng(0).random((100, 2)), DiffusionKernel(3.0))
        with pytest.raises(ValueError, match=r"`surface` must be an array of points of shape \(n, 2\)"):
            explore(plane, tmp_path / "page.html", surface=torus_mesh())

    def test_the_folder_must_exist(self, sphere, tmp_path):
        with pytest.raises(FileNotFoundError, match="`path` must be in a folder that exists"):
            explore(sphere, tmp_path / "no" / "page.html")
