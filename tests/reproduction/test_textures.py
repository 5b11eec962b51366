"""Textures: pictures from files and packages, windows of them turned, descriptors."""

import numpy as np
import pytest
from PIL import Image
from scipy import linalg

from reproduction import textures
from reproduction.textures import (
    Plates,
    Protocol,
    centre_side,
    channels_of,
    draw_views,
    generated_plates,
    margin_of,
    photo_plates,
    read_plates,
    rotated_centre,
    spd_to_vectors,
    window_covariances,
)

SMALL = Protocol(
    unlabelled_angles=(0, 45), test_angles=(30, 120), unlabelled_windows=4, test_windows=5, window=16, sigma=1.0
)
ROLES = ("labelled", "unlabelled", "test")


def some_plates(n=3, side=80):
    plates = generated_plates(side=side)
    return Plates(plates.names[:n], plates.images[:n], plates.source)


def arrays(views):
    return {name: value for name, value in vars(views).items() if isinstance(value, np.ndarray)}


def assert_same(first, second):
    for name, values in arrays(first).items():
        np.testing.assert_array_equal(values, arrays(second)[name], err_msg=name)


# ------------------------------------------------------------------------------------------------------- rotation
@pytest.mark.parametrize("shape", [(40, 40), (41, 41), (40, 57)])
@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_right_angles_change_no_pixel(shape, quarter):
    image = np.random.default_rng(0).random(shape)
    expected = np.rot90(rotated_centre(image, 0.0), quarter)
    np.testing.assert_array_equal(rotated_centre(image, 90.0 * quarter), expected)
    assert set(expected.ravel()) <= set(image.ravel())


@pytest.mark.parametrize("shape", [(40, 40), (41, 41), (40, 57)])
@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_other_angles_go_over_into_right_ones(shape, quarter):
    """An angle of 1e-9 degrees moves pixels by less than 1e-9, and intensities in [0, 1] by as much."""
    image = np.random.default_rng(0).random(shape)
    found = rotated_centre(image, 90.0 * quarter + 1e-9)
    np.testing.assert_allclose(found, rotated_centre(image, 90.0 * quarter), atol=1e-8)


@pytest.mark.parametrize("side", [40, 41, 192, 640])
@pytest.mark.parametrize("angle", [15.0, 45.0, 60.0, 135.0, 165.0])
def test_turned_centres_stay_inside_the_picture(side, angle):
    """Interpolation is exact on a ramp, and constant outside: the result is a ramp only if all is inside."""
    ramp = np.tile(np.linspace(0, 1, side), (side, 1))
    turned = rotated_centre(ramp, angle)
    centre = len(turned)
    down, right = np.mgrid[:centre, :centre] - (centre - 1) / 2
    # Counterclockwise: what was to the right is now up.
    expected = 0.5 + (right * np.cos(np.radians(angle)) - down * np.sin(np.radians(angle))) / (side - 1)
    np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_rows_have_their_class_angle_and_group():
    views = draw_views(some_plates(), SMALL, [3])[0]
    assert [getattr(views, role).shape for role in ROLES] == [(18, 15), (24, 15), (30, 15)]
    np.testing.assert_array_equal(views.labelled_y, np.repeat([0, 1, 2], 6))
    np.testing.assert_array_equal(views.unlabelled_y, np.repeat([0, 1, 2], 8))
    np.testing.assert_array_equal(views.labelled_angle, np.tile([0, 0, 0, 90, 90, 90], 3))
    np.testing.assert_array_equal(views.test_group, np.repeat(np.arange(6), 5))
    for group in range(6):
        members = views.test_group == group
        assert len({*zip(views.test_y[members], views.test_angle[members], strict=True)}) == 1


def test_places_of_windows_are_uniform():
    """A picture that tells its columns by brightness: the covariances of a steeper and steeper ramp say where."""
    side = 80
    image = np.tile((np.arange(side) / side) ** 2, (side, 1))
    protocol = Protocol(test_windows=2000, test_angles=(0,), unlabelled_windows=1, window=16)
    views = draw_views(Plates(("ramp",), (image,), ""), protocol, [0])[0]
    values, counts = np.unique(views.test[:, 0].round(9), return_counts=True)
    n_places = centre_side(side) - 2 * margin_of(1.0) - 16 + 1
    assert len(values) == n_places
    # z = 5 of the binomial deviation at 2000 windows.
    expected = 2000 / n_places
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


# ------------------------------------------------------------------------------------------- nothing else matters
def test_seeds_do_not_depend_on_each_other():
    together = draw_views(some_plates(), SMALL, [4, 0, 7])
    assert [views.seed for views in together] == [4, 0, 7]
    for views in together:
        assert_same(views, draw_views(some_plates(), SMALL, [views.seed])[0])
    assert (together[0].test != together[1].test).any(axis=1).all()


# ---------------------------------------------------------------------------------------------------------- errors
def test_pictures_without_room_for_a_window_are_refused_by_name():
    plates = some_plates(2, side=50)
    draw_views(plates, SMALL, [0])
    small = Plates((*plates.names, "tiny"), (*plates.images, plates.images[0][:30]), "")
    with pytest.raises(ValueError, match=r"at least 38 x 38 pixels .* tiny"):
        draw_views(small, SMALL, [0])
    draw_views(Plates(("a",), (plates.images[0][:38],), ""), SMALL, [0])
    with pytest.raises(ValueError, match=r"Got shape \(37, 50\)"):
        draw_views(Plates(("a",), (plates.images[0][:37],), ""), SMALL, [0])


# --------------------------------------------------------------------------------------------------------- pictures
needs_photos = pytest.mark.skipif(textures._photo_folder() is None, reason="scikit-image is not installed")


def grey(seed=0, kind=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max + 1, (24, 30)).astype(kind)


def save(folder, name, pixels):
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name)


# ---------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("place", [".", "brodatz", "textures/brodatz"])
def test_plates_are_read_in_order_of_number_without_d14(tmp_path, place):
    for number, name in [(10, "D10.png"), (2, "d2.PNG"), (14, "D14.png"), (1, "D001.gif")]:
        save(tmp_path / place, name, grey(number))
    save(tmp_path / place, "E3.png", grey())
    plates = read_plates(tmp_path)
    assert plates.names == ("D1", "D2", "D10")
    for number, image in zip((1, 2, 10), plates.images, strict=True):
        np.testing.assert_array_equal(image, grey(number))
    assert plates.source == "3 plates of the Brodatz album"


def test_sixteen_bits_stay(tmp_path):
    save(tmp_path, "D1.png", grey(kind=np.uint16))
    image = read_plates(tmp_path).images[0]
    assert image.dtype == np.uint16
    np.testing.assert_array_equal(image, grey(kind=np.uint16))


def test_files_in_colour_are_refused_by_name(tmp_path):
    save(tmp_path, "D1.png", grey())
    save(tmp_path, "D7.png", np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8))
    with pytest.raises(ValueError, match=r"grey png or gif images. Got D7.png, which is in colour"):
        read_plates(tmp_path)


@needs_photos
def test_tiles_are_parts_of_the_photograph_at_their_scale_and_contrast():
    photo = np.asarray(Image.open(textures._photo_folder() / "grass.png")) / 255
    plates = photo_plates()
    tile = plates.images[plates.names.index("grass x1 contrast 1")]
    np.testing.assert_allclose(tile, photo[:192, :192], atol=1e-15)
    tile = plates.images[plates.names.index("grass x1 contrast 0.75")]
    part = photo[:192, -192:]
    np.testing.assert_allclose(tile, part.mean() + 0.75 * (part - part.mean()), atol=1e-15)
    tile = plates.images[plates.names.index("grass x2 contrast 1")]
    np.testing.assert_allclose(tile[::2, ::2], photo[:96, :96], atol=1e-12)
    np.testing.assert_allclose(tile[1:-1:2, ::2], (photo[:95, :96] + photo[1:96, :96]) / 2, atol=1e-12)


def test_made_textures_have_the_waves_and_contrast_of_their_name():
    plates = generated_plates(side=128)
    for name, image in zip(plates.names, plates.images, strict=True):
        wave, contrast = float(name.split()[1]), float(name.split()[5])
        # At contrast 1 values beyond 3.3 deviations are cut off, one in a thousand: less than 1 % of the deviation.
        assert image.std() == pytest.approx(0.15 * contrast, rel=0.01)
        power = np.abs(np.fft.fft2(image - image.mean())) ** 2
        size = np.hypot(np.fft.fftfreq(128)[:, None], np.fft.fftfreq(128)[None, :])
        # The power is a ring around its wave; that it grows with the radius and is cut at 0 moves the mean by 6 %.
        assert (power * size).sum() / power.sum() == pytest.approx(wave, rel=0.15)


# ------------------------------------------------------------------------------------------------------ descriptors
def test_channels_are_derivatives_and_covariances_those_of_numpy():
    row, column = np.mgrid[0:24, 0:30].astype(float)
    channels = channels_of(0.3 + 0.01 * column - 0.002 * row + 0.0005 * row**2, 0.0)
    inside = (slice(1, -1), slice(1, -1))  # beyond, the border is repeated
    np.testing.assert_allclose(channels[1][inside], 0.01, atol=1e-14)
    np.testing.assert_allclose(channels[2][inside], np.abs(0.001 * row[inside] - 0.002), atol=1e-14)
    np.testing.assert_allclose(channels[3][inside], 0.0, atol=1e-14)
    np.testing.assert_allclose(channels[4][inside], 0.001, atol=1e-14)
    noisy = channels_of(np.random.default_rng(0).random((24, 30)), 1.0)
    corners = np.array([[0, 0], [5, 9]])
    for (top, left), found in zip(corners, window_covariances(noisy, corners, 8), strict=True):
        expected = np.cov(noisy[:, top : top + 8, left : left + 8].reshape(5, -1))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_vectors_of_matrices_have_the_log_euclidean_distance():
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((2, 4, 4))
    matrices = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(4)
    first, second = spd_to_vectors(matrices)
    expected = np.linalg.norm(linalg.logm(matrices[0]) - linalg.logm(matrices[1]))
    assert np.linalg.norm(first - second) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match="`matrices` must be positive definite"):
        spd_to_vectors([np.diag([1.0, 0.0])])
    assert spd_to_vectors([np.diag([1.0, 0.0])], ridge=1.0)[0, 0] == pytest.approx(np.log(2.0))
