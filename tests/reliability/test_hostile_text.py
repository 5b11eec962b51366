"""Names, titles, values and notes from untrusted files appear on pages as text only."""

import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from command_line import invoke
from reliability.mutations import close_model, open_model
from reliability.strategies import quietly

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load
from manifoldrf.explorer.page import explore

HOSTILE = {
    "the end of a script": "</script><script>alert(1)</script>",
    "the end of a script in capitals": "</ScRiPt ><svg/onload=alert(1)>",
    "a comment that opens": "<!--<script>",
    "a comment that closes": "--><img src=x onerror=alert(1)>",
    "the end of a title": "</title></style></textarea></pre><b>",
    "the end of an attribute": '" onmouseover="alert(1)" x="',
    "the end of another attribute": "' onmouseover='alert(1)' x='",
    "no quotes at all": "x onfocus=alert(1) autofocus",
    "an entity": "&lt;script&gt; &#60;script&#62; &amp;",
    "half an entity": "&#x3c",
    "ends of lines": "a\u2028b\u2029c\nd\re",
    "a template": "${title} $data $$ {{7*7}} {% x %} %s {0}",
    "an address": "javascript:alert(1)//data:text/html,<b>",
    "CDATA": "]]><![CDATA[<b>]]>",
    "signs that are not seen": "\x00\x08\x1b[31m\u202eevil\u2066\ufeff",
    "half of a pair": "a\ud800b",
    "a link": "[a](javascript:alert(1)) ![b](http://c.d/e.png) <http://f.g>",
    "a backslash": "\\u003cscript\\u003e \\",
}
PLAIN = "harmless words"


class Shape(HTMLParser):
    """The tags, attribute names and scripts of a page, which no text may change."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._inside, self.comments = [], [], False, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data

    def handle_comment(self, data):
        self.comments += 1


@pytest.fixture(scope="module")
def model():
    """A small model; it is poor, which is not the claim here."""
    nodes = Sphere().grid(80)
    features = ManifoldRandomFeatures(HeatKernel(0.4), random_state=0, n_features=16)
    return quietly(features.fit, nodes)


def explorer_page(model, folder, word):
    """The page of a model file with the word as each of its texts and as the title."""
    path = quietly(model.save, folder / "model")
    header, tree, body = open_model(path.read_bytes())
    state = tree["fields"]
    record = state["record"]["fields"]
    record["notes"] = {"tuple": [{"tuple": [f"note {k}", word]} for k in range(3)]}
    record["field"] = record["quadrature"] = word
    state["feature_names_in"] = [word] * 3
    pairs = {"tuple": [{"tuple": [word, 0.5]}]}
    state["error"]["fields"].update(candidates=pairs, quadratures=pairs)
    state["params"]["dict"].update(field=word, anchors=word, teacher=word)
    path.write_bytes(close_model(header, tree, body))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = explore(load(path), folder / "page.html", title=word)
    return written.path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plain_page(model, tmp_path_factory):
    return Shape(explorer_page(model, tmp_path_factory.mktemp("plain"), PLAIN))


def test_pages_of_strangers_models_have_the_same_tags_and_scripts_whatever_their_words_are(
    tmp_path, model, plain_page
):
    for name, words in HOSTILE.items():
        text = explorer_page(model, tmp_path, words)
        page = Shape(text)
        assert page.tags == plain_page.tags, name
        assert page.comments == plain_page.comments, name
        assert page.scripts == plain_page.scripts, name  # no text of the file is in a script
        assert isinstance(json.loads(re.search(r'id="meta">(.*?)</script>', text, re.DOTALL)[1]), dict)


@pytest.mark.parametrize("name", ["[/x].npy", "[link=http:a]b.npy"])
def test_names_of_files_are_no_markup_on_the_command_line(tmp_path, monkeypatch, model, name):
    """A name like a closing tag once crashed a command after all its work."""
    monkeypatch.chdir(tmp_path)
    quietly(model.save, tmp_path / "model.safetensors")
    np.save("points.npy", Sphere().grid(80)[:4])
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    done = invoke("transform", "model.safetensors", "points.npy", "--out", name)
    assert done.exit_code == 0, done.output
    assert f"Saved: {name}" in done.output
    assert (tmp_path / name).is_file()
