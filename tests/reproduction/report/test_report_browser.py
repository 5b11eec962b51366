"""The page of results in a real browser: what is wide enough to be read without scrolling."""

import shutil
from pathlib import Path

import pytest

from reproduction.report.html_page import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
RECORDS = Path(__file__).parents[3] / "docs" / "records"
WIDER = "[...document.querySelectorAll('table')].filter(box => box.scrollWidth > box.clientWidth)"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_tables_of_the_first_experiments_do_not_scroll_sideways_at_1280_pixels(tmp_path):
    for name in ("surfaces", "ambient", "attention"):  # without arrays: nothing is drawn
        shutil.copy(RECORDS / f"{name}.json", tmp_path)
    address = write_report(tmp_path).as_uri()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        wider = page.evaluate(f"{WIDER}.map(box => box.innerText.slice(0, 60))")
        n_tables = page.evaluate("document.querySelectorAll('table').length")
        browser.close()
    assert n_tables >= 6
    assert wider == []
