"""The explorer in a real browser: it draws, answers clicks and keys, and shows Python's numbers."""

import io
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from manifoldrf import Counts, DiffusionKernel, HeatKernel, Sphere
from manifoldrf.explorer.page import explore

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
FLAGS = [
    "--no-sandbox",
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),  # WebGL without a card
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
LAYERS = ("kernel", "feature", "exact", "difference")
TITLE = "</script><b>Sphere</b>"


@pytest.fixture(scope="module")
def features(fitted):
    """Signatures that are not exact on the sphere, so that the difference is something to see."""
    return fitted(Sphere().sample(1500, seed=0), DiffusionKernel(30.0), n_features=300, teacher=Counts(300))


@pytest.fixture(scope="module")
def address(features, tmp_path_factory):
    return explore(features, tmp_path_factory.mktemp("page") / "sphere.html", title=TITLE).path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


class Window:
    """A window with the page in it, and all that it complained of or asked the network for."""

    def __init__(self, browser, address, width=800, height=520, **options):
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        until(self.page, "window.explorer !== undefined")
        settle(self.page)


@pytest.fixture(scope="module")
def windows(browser, address):
    """Windows by what is special about them; each is opened once."""
    opened = {}

    def window(**options):
        key = repr(options)
        if key not in opened:
            opened[key] = Window(browser, address, **options)
        return opened[key]

    yield window
    for one in opened.values():
        one.context.close()


@pytest.fixture
def visit(windows, address):
    """Go to the page, as it is first shown or as a link says; it must not complain, nor fetch anything."""
    visited = []

    def page_at(fragment="", **options):
        window = windows(**options)
        visited.append(window)
        window.page.mouse.move(2, 2)
        window.page.evaluate(
            "text => { history.replaceState(null, '', '#-'); location.hash = text || '#'; }", fragment
        )
        settle(window.page)
        return window.page

    yield page_at
    for window in visited:
        assert window.complaints == []
        assert [url for url in window.requests if not url.startswith((address, "data:", "blob:"))] == []


def until(page, expression):
    """Wait for something to be true; the page forbids the script by which the driver would wait itself."""
    for _ in range(1000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"{expression} did not come true in 20 seconds")


def settle(page):
    """Two frames, so that what was asked for is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def picture(page):
    """Pixels of the canvas, (height, width, 3)."""
    settle(page)
    return np.asarray(Image.open(io.BytesIO(page.locator("#frame").screenshot())).convert("RGB")).astype(int)


def state(page):
    return page.evaluate("explorer.state")


def front_point(page, number):
    """A point on the near side, and where it is on the screen."""
    ids = page.evaluate("explorer.ids")
    places = page.evaluate("ids => ids.map(id => explorer.onScreen(id))", ids)
    near = sorted(range(len(ids)), key=lambda k: places[k]["depth"])[: len(ids) // 5]
    k = near[number]
    box = page.locator("#canvas").bounding_box()
    return ids[k], box["x"] + places[k]["x"], box["y"] + places[k]["y"]


def test_the_surface_is_drawn_and_a_click_changes_the_field(visit):
    page = visit()
    assert page.title() == TITLE
    before = picture(page)
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 500
    chosen, x, y = front_point(page, 40)
    assert state(page)["point"] != chosen
    page.mouse.click(x, y)
    # The disc that is seen there may be that of a neighbour, no farther than discs reach.
    clicked = state(page)["point"]
    gap = page.evaluate("([a, b]) => [a, b].map(id => explorer.onScreen(id))", [chosen, clicked])
    assert np.hypot(gap[0]["x"] - gap[1]["x"], gap[0]["y"] - gap[1]["y"]) < 20
    page.mouse.move(5, 5)
    after = picture(page)
    assert np.mean(np.abs(after - before).max(axis=2) > 20) > 0.01
    said = float(re.search(r"K\(x, x\) = ([\d.]+)", page.inner_text("#selected"))[1])
    assert said == pytest.approx(page.evaluate("id => explorer.valueAt('kernel', id, id)", clicked), rel=1e-3)


def test_values_are_those_of_python(visit, features):
    """To 1e-3 of the largest value: 16 bits in a column, 8 bits of the difference where it is small."""
    page = visit()
    ids = page.evaluate("explorer.ids")
    points = features.graph_.positions[ids]
    x = ids[123]
    anchor = page.evaluate("id => explorer.anchorOf(id)", x)
    column = features.anchors_.tolist().index(anchor)
    shown = {layer: np.array(page.evaluate(f"explorer.fieldOf('{layer}', {x})")) for layer in LAYERS}
    kernel = features.kernel_matrix(features.graph_.positions[[x]], points)[0]
    g = features.transform(points)[:, column] / np.sqrt(features.weights_[column])
    setting = features.map_.kernel
    root = setting.resolved.root().matrix(features.graph_, np.array(ids), np.array([anchor]))[:, 0]
    exact = root / np.sqrt(setting.measure[anchor])
    for layer, values in zip(LAYERS, (kernel, g, exact, g - exact), strict=True):
        largest = np.abs(exact if layer == "difference" else values).max()
        assert_allclose(shown[layer], values, atol=1e-3 * largest, err_msg=layer)
    assert np.abs(shown["difference"]).max() > 5e-3 * exact.max()  # there is something to see
    assert page.evaluate(f"explorer.valueAt('kernel', {x}, {ids[5]})") == pytest.approx(shown["kernel"][5])


def test_a_link_brings_everything_back(visit):
    page = visit("#p=77&layer=exact&m=50&log=1&decades=3&anchors=0&view=0.1,0.2,0.3,0.9,0.7,0.1,-0.1")
    first = state(page)
    expected = {"point": 77, "layer": "exact", "features": 50, "log": True, "decades": 3, "anchors": False}
    assert {name: first[name] for name in expected} == expected
    seen = picture(page)
    assert state(visit())["hash"] != first["hash"]
    assert np.abs(picture(page) - seen).max() > 50
    visit(first["hash"])
    page.reload()
    until(page, "window.explorer !== undefined")
    assert state(page) == first
    assert np.abs(picture(page) - seen).max() <= 2
    page.locator("#canvas").focus()
    page.keyboard.press("1")
    until(page, "location.hash.includes('layer=kernel')")


def test_links_without_sense_are_ignored(visit):
    first = state(visit())
    for fragment in (
        "#p=99999999&layer=x&m=0&log=7",
        "#p=-1&m=1e9&view=1,2",
        "#%E0%A4%A&view=NaN",
        "#view=0,0,0,0,1,0,0",
        "#view=1e308,1e308,1e308,1e308,1e308,1e308,1e308",
        "#view=0,0,0,1,-5,0,0",
        "#edges=1",
    ):
        assert state(visit(fragment)) == first
    page = visit("#view=1e308,1e308,1e308,1e308,1e308,1e308,1e308")
    page.locator("#canvas").focus()
    page.keyboard.press("ArrowLeft")
    turned = [float(part) for part in state(page)["hash"].split("view=")[1].split(",")]
    assert np.linalg.norm(turned[:4]) == pytest.approx(1, abs=1e-3)


def test_a_mesh_is_clicked_at_its_vertices_and_lacks_layers_off_the_nodes(
    fitted, torus_mesh, browser, tmp_path_factory
):
    """Drawn on another mesh than the model's, where exact values are not known."""
    model = fitted(torus_mesh(), HeatKernel(0.3), n_features=80)
    path = explore(model, tmp_path_factory.mktemp("page") / "torus.html", surface=torus_mesh(30, 12)).path
    window = Window(browser, path.as_uri())
    page = window.page
    for number in (0, 7, 20):
        chosen, x, y = front_point(page, number)
        page.mouse.click(x, y)
        assert state(page)["point"] == chosen
    assert page.locator('input[value="exact"]').is_disabled()
    page.keyboard.press("3")
    assert state(page)["layer"] == "kernel"
    page.mouse.move(2, 2)
    before = picture(page)
    page.keyboard.press("e")
    assert np.mean(np.abs(picture(page) - before).max(axis=2) > 20) > 0.01
    window.context.close()
    assert window.complaints == []


OWN = ("mean", "<b>std</b>", "known")


@pytest.fixture(scope="module")
def own(torus_mesh):
    """Fields of a mesh: both signs, in a narrow range, and with no value at most vertices."""
    vertices = torus_mesh().vertices
    values = [np.sin(3 * vertices[:, 0]), 20 + np.abs(vertices[:, 1]) / 3, vertices[:, 2] + 1]
    values[2][np.arange(len(vertices)) % 4 > 0] = np.nan
    return dict(zip(OWN, values, strict=True))


@pytest.fixture(scope="module")
def mesh_window(torus_mesh, own, browser, tmp_path_factory):
    path = explore(torus_mesh(), tmp_path_factory.mktemp("page") / "own.html", fields=own, title="A torus: $x").path
    window = Window(browser, path.as_uri(), accept_downloads=True)
    yield window
    window.context.close()
    assert window.complaints == []
    assert [url for url in window.requests if not url.startswith((path.as_uri(), "data:", "blob:"))] == []


def with_hyphens(page, place):
    """The text of a place, with negative numbers as Python reads them."""
    return page.inner_text(place).replace("\N{MINUS SIGN}", "-")


def test_values_of_own_fields_are_those_of_python(mesh_window, torus_mesh, own):
    """All of them to the last bit, and at a vertex as text; a vertex without a value says so."""
    page = mesh_window.page
    ids = page.evaluate("explorer.ids")
    assert sorted(ids) == list(range(torus_mesh().n_vertices))
    for k, (name, values) in enumerate(own.items()):
        page.locator(f'input[value="own{k}"]').check()
        read = page.evaluate(f"explorer.fieldOf('own{k}', 0).map(value => Number.isNaN(value) ? null : value)")
        np.testing.assert_array_equal(np.array(read, dtype=float), values[ids])
        assert page.inner_text("#bar-name") == name
        page.locator("#point").fill("8")
        page.keyboard.press("Enter")
        shown = re.search(rf"{re.escape(name)} = (-?[\d.]+)", with_hyphens(page, "#selected"))
        assert float(shown[1]) == pytest.approx(values[8], abs=1e-3)
        low, high = np.nanmin(values), np.nanmax(values)
        ends = [float(part) for part in re.findall("-?[0-9.]+", with_hyphens(page, "#bar-most"))]
        assert_allclose(ends, [low, high], atol=6e-3)
    page.locator("#point").fill("9")
    page.keyboard.press("Enter")
    assert "known: no value" in page.inner_text("#selected")
    assert page.locator('input[value="kernel"]').count() == 1
    assert not page.locator('input[value="kernel"]').is_visible()  # there is no model


def test_a_saved_picture_is_the_canvas_with_its_colour_bar(mesh_window):
    page = mesh_window.page
    page.locator('input[value="own0"]').check()
    page.mouse.move(2, 2)
    seen = picture(page)
    with page.expect_download() as download:
        page.locator("#save").click()
    assert download.value.suggested_filename == "A_torus_x_mean.png"
    image = Image.open(io.BytesIO(download.value.path().read_bytes()))
    assert image.format == "PNG"
    saved = np.asarray(image.convert("RGB")).astype(int)
    height = len(saved) - 72
    assert abs(height - len(seen)) <= 1  # a screenshot of half a pixel has a whole one
    assert saved.shape[1:] == seen.shape[1:]
    both = min(height, len(seen))
    assert np.mean(np.abs(saved[:both] - seen[:both]).max(axis=2) <= 10) > 0.98  # all but the rim
    assert np.mean(np.ptp(saved[:both], axis=2) > 20) > 0.05  # colours
    below = saved[height:].reshape(-1, 3)
    assert len(np.unique(below, axis=0)) > 100  # the bar
    assert (below.sum(axis=1) < 150).any()  # texts


def test_a_notebook_shows_the_page_in_a_frame(torus_mesh, own, browser, tmp_path):
    """Without an address of its own: no link to copy, everything else works, nothing is said to the notebook."""
    page = explore(torus_mesh(), fields=own)
    assert page.path is None
    (tmp_path / "notebook.html").write_text(f"<p>above</p>{page._repr_html_()}<p>below</p>", "utf-8")
    context = browser.new_context(viewport={"width": 900, "height": 700}, accept_downloads=True)
    outer = context.new_page()
    complaints = []
    outer.on("console", lambda message: complaints.append(message.text))
    outer.on("pageerror", lambda error: complaints.append(str(error)))
    outer.goto((tmp_path / "notebook.html").as_uri())
    frame = outer.frames[1]
    until(frame, "window.explorer !== undefined")
    assert not frame.locator("#link").is_visible()
    frame.locator('input[value="own1"]').check()
    assert frame.evaluate("explorer.valueAt('own1', 0, 7)") == own["<b>std</b>"][7]
    outer.wait_for_timeout(300)  # the address would be written by now
    with outer.expect_download() as download:
        frame.locator("#save").click()
    assert Image.open(io.BytesIO(download.value.path().read_bytes())).format == "PNG"
    context.close()
    assert complaints == []
