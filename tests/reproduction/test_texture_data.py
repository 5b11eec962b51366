"""Pictures of textures: files, photographs in a package, made ones."""

import sys

import numpy as np
import pytest
from PIL import Image

from reproduction import texture_data
from reproduction.texture_data import Plates, builtin_plates, generated_plates, photo_plates, read_plates

needs_photos = pytest.mark.skipif(texture_data._photo_folder() is None, reason="scikit-image is not installed")


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


def test_png_counts_before_gif(tmp_path):
    save(tmp_path, "D1.gif", grey(1))
    save(tmp_path, "D1.png", grey(2))
    np.testing.assert_array_equal(read_plates(tmp_path).images[0], grey(2))


def test_palettes_and_grey_colours_become_what_they_show(tmp_path):
    palette = Image.fromarray(grey() % 4)
    palette.putpalette([255, 255, 255, 128, 128, 128, 64, 64, 64, 0, 0, 0])
    palette.save(tmp_path / "D1.gif")
    save(tmp_path, "D2.png", np.repeat(grey()[..., None], 3, axis=2))
    first, second = read_plates(tmp_path).images
    np.testing.assert_array_equal(first, np.array([255, 128, 64, 0])[grey() % 4])
    np.testing.assert_array_equal(second, grey())


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


@pytest.mark.parametrize("name", ["D5.png", "D5.gif"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.6])
def test_damaged_files_are_refused_by_name(tmp_path, name, part):
    save(tmp_path, name, grey())
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(ValueError, match=rf"Got {name}, which cannot be read"):
        read_plates(tmp_path)


def test_files_of_another_kind_are_refused_by_name(tmp_path):
    (tmp_path / "D5.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"Got D5\.png, which cannot be read"):
        read_plates(tmp_path)


def test_folders_without_plates_are_refused(tmp_path):
    save(tmp_path, "D14.png", grey())
    with pytest.raises(FileNotFoundError, match=r"plates D1.png \(or .gif\), D2.png, .... Got none in"):
        read_plates(tmp_path)
    with pytest.raises(FileNotFoundError, match="`data` must be an existing folder"):
        read_plates(tmp_path / "nowhere")


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    save(tmp_path, "D1.png", grey())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'manifoldrf\[viz\]'"):
        read_plates(tmp_path)


def test_plates_need_as_many_names_as_images_all_different():
    with pytest.raises(ValueError, match="Got 0 names and 0 images"):
        Plates((), (), "")
    with pytest.raises(ValueError, match="Got 2 names and 1 images"):
        Plates(("a", "b"), (grey(),), "")
    with pytest.raises(ValueError, match=r"`names` must be all different\. Got a, a"):
        Plates(("a", "a"), (grey(), grey()), "")
    assert repr(Plates(("a", "b"), (grey(), grey()[:20]), "")) == "Plates(2 textures, sides of 20 to 24 pixels)"


# ------------------------------------------------------------------------------------------------------- built in
@needs_photos
def test_photographs_are_cut_into_different_tiles_of_one_size():
    plates = photo_plates()
    assert len(plates) == 36
    assert all(image.shape == (192, 192) for image in plates.images)
    assert all(image.min() >= 0 and image.max() <= 1 for image in plates.images)
    flat = np.stack([image.ravel() for image in plates.images])
    assert np.abs(np.corrcoef(flat) - np.eye(36)).max() < 0.9
    assert plates.source == "36 tiles of the photographs brick, grass, gravel in scikit-image, scaled and dimmed"


@needs_photos
def test_tiles_are_parts_of_the_photograph_at_their_scale_and_contrast():
    photo = np.asarray(Image.open(texture_data._photo_folder() / "grass.png")) / 255
    plates = photo_plates()
    tile = plates.images[plates.names.index("grass x1 contrast 1")]
    np.testing.assert_allclose(tile, photo[:192, :192], atol=1e-15)
    tile = plates.images[plates.names.index("grass x1 contrast 0.75")]
    part = photo[:192, -192:]
    np.testing.assert_allclose(tile, part.mean() + 0.75 * (part - part.mean()), atol=1e-15)
    tile = plates.images[plates.names.index("grass x2 contrast 1")]
    np.testing.assert_allclose(tile[::2, ::2], photo[:96, :96], atol=1e-12)
    np.testing.assert_allclose(tile[1:-1:2, ::2], (photo[:95, :96] + photo[1:96, :96]) / 2, atol=1e-12)


def test_without_photographs_textures_are_made_and_the_source_says_so(monkeypatch):
    monkeypatch.setattr(texture_data, "_photo_folder", lambda: None)
    plates = builtin_plates()
    assert plates.source == "24 textures of filtered noise, made with seed 0"
    assert len(plates) == 24


def test_without_scikit_image_photographs_name_the_extra(monkeypatch):
    monkeypatch.setattr(texture_data, "_photo_folder", lambda: None)
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'manifoldrf\[test\]'"):
        photo_plates()


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


def test_made_textures_follow_from_the_seed():
    first, again, other = (generated_plates(side=32, seed=seed).images[5] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_sizes_without_room_are_refused():
    with pytest.raises(ValueError, match=r"`side` must be an integer in \[8, inf\)"):
        generated_plates(side=7)
    with pytest.raises(ValueError, match=r"`side` must be an integer in \[8, 256\]"):
        photo_plates(side=300)
