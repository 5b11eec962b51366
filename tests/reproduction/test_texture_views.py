"""Windows of rotated textures: what is drawn, from where, and that nothing else matters."""

import dataclasses

import numpy as np
import pytest

from manifoldrf.applications.textures import channels_of, covariance_descriptors, dense_corners, margin_of
from reproduction.texture_data import Plates, generated_plates
from reproduction.texture_views import Draws, Protocol, centre_side, draw_views, rotated_centre

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


def test_the_centre_of_a_plate_of_the_album_has_452_pixels():
    assert centre_side(640) == 452


# -------------------------------------------------------------------------------------------------------- windows
def test_default_protocol_has_the_sizes_of_the_paper():
    sizes = [111 * Protocol().per_class(role) for role in ROLES]
    assert sizes == [666, 66_600, 22_200]
    assert 111 * len(Protocol().test_angles) == 444


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


@pytest.mark.parametrize(("role", "angle"), [("labelled", 0), ("labelled", 90), ("unlabelled", 45), ("test", 120)])
def test_every_row_describes_a_window_of_its_texture_at_its_angle(role, angle):
    """It is found among all windows of the turned picture that the border cannot reach."""
    plates, margin = some_plates(), margin_of(SMALL.sigma)
    views = draw_views(plates, SMALL, [0])[0]
    for label, image in enumerate(plates.images):
        turned = rotated_centre(image, angle)
        corners = margin + dense_corners(np.array(turned.shape) - 2 * margin, window=SMALL.window, stride=1)
        windows = covariance_descriptors(turned, corners, window=SMALL.window)
        mine = (getattr(views, f"{role}_y") == label) & (getattr(views, f"{role}_angle") == angle)
        for row in getattr(views, role)[mine]:
            assert np.abs(windows - row).max(axis=1).min() == 0


def test_windows_at_0_degrees_see_the_picture_and_not_the_border_of_its_centre():
    image = some_plates().images[0]
    side, centre, margin = len(image), centre_side(len(image)), margin_of(1.0)
    inside = slice(margin, centre - margin)
    around = (side - centre) // 2
    whole = channels_of(image, 1.0)[:, around : around + centre, around : around + centre]
    seen = channels_of(rotated_centre(image, 0.0), 1.0)
    np.testing.assert_array_equal(seen[:, inside, inside], whole[:, inside, inside])


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
def test_threads_change_no_bit():
    plates = some_plates(5)
    assert_same(draw_views(plates, SMALL, [0], n_jobs=1)[0], draw_views(plates, SMALL, [0], n_jobs=3)[0])


def test_seeds_do_not_depend_on_each_other():
    together = draw_views(some_plates(), SMALL, [4, 0, 7])
    assert [views.seed for views in together] == [4, 0, 7]
    for views in together:
        assert_same(views, draw_views(some_plates(), SMALL, [views.seed])[0])
    assert (together[0].test != together[1].test).any(axis=1).all()


def test_draws_are_those_of_their_seeds_without_the_seeds_before_the_first():
    seen = []
    draws = Draws(some_plates(), SMALL, [4, 0, 7], lambda what, done, total: seen.append(done))
    for seed in (0, 7):
        assert_same(draws[seed], draw_views(some_plates(), SMALL, [seed])[0])
    assert seen == [1, 2, 3]  # one round of the plates for both
    assert_same(draws[4], draw_views(some_plates(), SMALL, [4])[0])


def test_signed_derivatives_give_other_descriptors_only_where_signs_cancel():
    """On a ramp all derivatives have one sign, so that their covariances are the same."""
    ramp = np.tile((np.arange(80) / 80) ** 2, (80, 1))
    waves = some_plates().images[0]
    for image, same in ((ramp, True), (waves, False)):
        plates = Plates(("a",), (image,), "")
        first, second = (
            draw_views(plates, dataclasses.replace(SMALL, signed=signed, labelled_angles=(0,)), [0])[0]
            for signed in (False, True)
        )
        assert np.allclose(first.labelled, second.labelled, atol=1e-9) == same


def test_textures_do_not_depend_on_each_other():
    all_of_them, two = (draw_views(some_plates(n), SMALL, [0])[0] for n in (3, 2))
    np.testing.assert_array_equal(all_of_them.test[:20], two.test)


def test_roles_at_one_angle_have_different_windows():
    views = draw_views(some_plates(), SMALL, [0])[0]
    labelled, unlabelled = (getattr(views, role)[0] for role in ("labelled", "unlabelled"))
    assert (labelled != unlabelled).any()


def test_progress_counts_the_plates():
    seen = []
    draw_views(some_plates(), SMALL, [0], progress=lambda what, done, total: seen.append((what, done, total)))
    assert [entry[1:] for entry in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[0][0] == f"windows of {some_plates().names[0]}"


def test_integer_and_float_pictures_are_the_same():
    levels = np.random.default_rng(0).integers(0, 256, (60, 60)).astype(np.uint8)
    first, second = (draw_views(Plates(("a",), (image,), ""), SMALL, [0])[0] for image in (levels, levels / 255))
    assert_same(first, second)


# ---------------------------------------------------------------------------------------------------------- errors
def test_pictures_without_room_for_a_window_are_refused_by_name():
    plates = some_plates(2, side=50)
    draw_views(plates, SMALL, [0])
    small = Plates((*plates.names, "tiny"), (*plates.images, plates.images[0][:30]), "")
    with pytest.raises(
        ValueError, match=r"at least 38 x 38 pixels for windows of 16. Got shape \(30, 50\) for tiny"
    ):
        draw_views(small, SMALL, [0])
    draw_views(Plates(("a",), (plates.images[0][:38],), ""), SMALL, [0])
    with pytest.raises(ValueError, match=r"Got shape \(37, 50\)"):
        draw_views(Plates(("a",), (plates.images[0][:37],), ""), SMALL, [0])


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_that_are_missing_or_repeated_are_refused(seeds):
    with pytest.raises(ValueError, match="`seeds` must be at least one integer, all different"):
        draw_views(some_plates(), SMALL, seeds)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"labelled_windows": 0}, "`labelled_windows` must be an integer"),
        ({"test_angles": ()}, "`test_angles` must be at least one angle"),
        ({"unlabelled_angles": (0, 0)}, "`unlabelled_angles` must be at least one angle, all different"),
        ({"test_angles": (np.nan,)}, "`test_angles` must be at least one angle, all different and finite"),
        ({"window": 2}, r"`window` must be an integer in \[3, inf\)"),
        ({"sigma": -1.0}, "`sigma` must be a number"),
        ({"ridge": -1.0}, "`ridge` must be a number"),
    ],
)
def test_protocols_that_cannot_be_drawn_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        Protocol(**options)
