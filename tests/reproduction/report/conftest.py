"""What tests of pictures share."""

import pytest


@pytest.fixture
def keep_figures(monkeypatch, tmp_path):
    """From a module of pictures and its drawing function: a function that draws a record and returns the figure."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept = []

    def keep(figure, path):
        kept.append(figure)
        return path

    def drawing(module, draw):
        monkeypatch.setattr(module, "save_figure", keep)  # else it would be closed

        def drawn(record):
            draw(record, tmp_path / "picture.png")
            return kept[-1]

        return drawn

    yield drawing
    for figure in kept:
        pyplot.close(figure)
