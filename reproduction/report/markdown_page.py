"""One self-contained HTML page from a Markdown text: the report of the experiments."""

import base64
import html
import itertools
import re
from collections.abc import Mapping
from typing import Any

from markdown_it import MarkdownIt

# The browser loads nothing and runs nothing, whatever the text contains.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --band: #8881; --quiet: #5a6068; }
@media (prefers-color-scheme: dark) { :root { --quiet: #a5abb3; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 76rem; overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; border-bottom: 1px solid var(--line); padding: .6rem 0; }
pre { overflow-x: auto; padding: .6rem .8rem; border-radius: 6px; background: var(--band); }
code { font: .92em ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
table { display: block; overflow: auto; max-height: 85vh; width: fit-content; max-width: 100%; font-size: .8rem;
  border-collapse: collapse; border: 1px solid var(--line); border-radius: 6px; overflow-wrap: normal; }
th, td { padding: .35rem .28rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; } thead { background: var(--band); }
tbody tr:nth-child(even) { background: var(--band); }
figure { margin: 1.4rem 0; } figcaption { color: var(--quiet); font-size: .92rem; max-width: 46rem; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
@media print { nav { display: none; } table { overflow: visible; max-height: none; } }
@media print { figure { break-inside: avoid; } }
"""


def html_page(text: str, title: str, images: Mapping[str, bytes] | None = None) -> str:
    """Render Markdown as a page that loads nothing from elsewhere.

    Parameters
    ----------
    text : str
        Markdown with tables. HTML inside it is shown as text.
    title : str
        Title of the page.
    images : mapping of str to bytes, optional
        Address of a picture in the text -> the contents of its png file. Its caption is the text of the link.

    Examples
    --------
    >>> "<p>1 &lt; 2</p>" in html_page("1 < 2", "Results")
    True
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_visible(text))
    links = _add_anchors(tokens)
    _embed(tokens, images or {})
    parser.add_render_rule("image", _figure)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(_visible(title))}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            *([f'<nav aria-label="Contents">{links}</nav>'] if links else []),
            f"<main>\n{parser.renderer.render(tokens, parser.options, {})}</main>",
            "</body>",
            "</html>\n",
        ]
    )


def _visible(text: str) -> str:
    """Replace characters that cannot be seen or that change the direction of the text."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text)


def _add_anchors(tokens: list[Any]) -> str:
    """Give each heading of the second level an id; return links to them."""
    links, taken = [], set()
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open" and opening.tag == "h2":
            words = "".join(child.content for child in inline.children)
            name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "part"
            while name in taken:
                name += "-again"
            taken.add(name)
            opening.attrSet("id", name)
            links.append(f'<a href="#{name}">{html.escape(words)}</a>')
    return "\n".join(links)


def _embed(tokens: list[Any], images: Mapping[str, bytes]) -> None:
    """Put the pictures into the page; a picture alone in its paragraph loses the paragraph around it."""
    for place, token in enumerate(tokens):
        for child in token.children or ():
            if child.type == "image" and child.attrs["src"] in images:
                data = base64.b64encode(images[child.attrs["src"]]).decode("ascii")
                child.attrSet("src", f"data:image/png;base64,{data}")
                for neighbour in (tokens[place - 1], tokens[place + 1]):
                    neighbour.hidden = len(token.children) == 1  # a figure must not be inside a paragraph


def _figure(self: Any, tokens: list[Any], place: int, options: Any, env: Any) -> str:
    """A picture with its caption."""
    token = tokens[place]
    source, caption = (
        html.escape(token.attrs["src"]),
        html.escape(self.renderInlineAsText(token.children, options, env)),
    )
    return f'<figure>\n<img src="{source}" alt="">\n<figcaption>{caption}</figcaption>\n</figure>'
