"""Blocks in HTML: one page that loads nothing, in light and dark, on paper and on a phone."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import reproduction.report._blocks as _blocks
from manifoldrf._files import escaped
from reproduction.report._html_style import STYLE

_WORSE = "worse than the paper's"
_MARK = f'<span class="mark" role="img" aria-label="{_WORSE}" title="{_WORSE}">▼</span> '
_KEY = (
    f'<p class="key"><span class="mark">▼</span> marks a number that is {_WORSE}; '
    '<span class="paper">numbers in brackets</span> are the paper\'s.</p>'
)
# A browser that obeys it loads nothing and runs nothing, whatever a record holds.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LONGEST_LINE = 42  # signs: the names of all methods fit


@dataclass(frozen=True)
class Image:
    """A picture inside the page: its data as an address, its size in pixels; or the reason why there is none."""

    address: str = ""
    size: tuple[int, int] | None = None
    reason: str = ""


def html_page(blocks: Sequence[_blocks.Block], images: Mapping[str, Image], title: str) -> str:
    """Blocks as a page with a list of contents; ``images`` has one for each picture.

    Examples
    --------
    >>> page = html_page([_blocks.Heading(1, "Results", "results"), _blocks.Paragraph.of("1 < 2")], {}, "Results")
    >>> "<p>1 &lt; 2</p>" in page
    True
    """
    anchors = _anchors(blocks)
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escaped(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        '<a class="skip" href="#content">To the results</a>',
        _contents(blocks, anchors),
        '<main id="content">',
        *_sections(blocks, images, anchors),
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _anchors(blocks: Sequence[_blocks.Block]) -> dict[int, str]:
    """Place of a heading -> its name for links: letters, digits and dashes only, no name twice."""
    names: dict[int, str] = {}
    for place, block in enumerate(blocks):
        if isinstance(block, _blocks.Heading):
            plain = re.sub(r"[^A-Za-z0-9]+", "-", block.anchor).strip("-") or "part"
            taken = set(names.values()) | {"content"}
            same = (plain if count == 1 else f"{plain}-{count}" for count in range(1, len(blocks) + 3))
            names[place] = next(name for name in same if name not in taken)
    return names


def _contents(blocks: Sequence[_blocks.Block], anchors: Mapping[int, str]) -> str:
    """Links to all headings of the second level."""
    links = [
        f'<li><a href="#{anchors[place]}">{escaped(block.text)}</a></li>'
        for place, block in enumerate(blocks)
        if isinstance(block, _blocks.Heading) and block.level == 2
    ]
    return '<nav aria-label="Contents">\n<ol>\n' + "\n".join(links) + "\n</ol>\n</nav>"


def _sections(
    blocks: Sequence[_blocks.Block], images: Mapping[str, Image], anchors: Mapping[int, str]
) -> Iterator[str]:
    """All blocks; what belongs to a heading of the second level is a section, and pictures have their data."""
    inside, label = False, ""
    for place, block in enumerate(blocks):
        if isinstance(block, _blocks.Heading):
            label = block.text
            if block.level == 2:
                yield from ["</section>"] * inside
                yield f'<section aria-labelledby="{anchors[place]}">'
                inside = True
            yield f'<h{block.level} id="{anchors[place]}">{escaped(block.text)}</h{block.level}>'
        elif isinstance(block, _blocks.Picture):
            yield _figure(block, images[block.name])
        elif isinstance(block, _blocks.Table):
            yield _table(block, label)
        else:
            yield _text(block)
        if place == 1:
            yield _KEY  # below the first sentences
    yield from ["</section>"] * inside


@functools.singledispatch
def _text(block: object) -> str:
    """A block in HTML."""
    raise TypeError(type(block).__name__)  # a block without a rule here: a mistake of the package's own


@_text.register
def _(block: _blocks.Paragraph) -> str:
    return "<p>" + "".join(_span(span) for span in block.spans) + "</p>"


@_text.register
def _(block: _blocks.Command) -> str:
    return f'<pre tabindex="0"><code>{escaped(block.text)}</code></pre>'


@_text.register
def _(block: _blocks.Settings) -> str:
    head = f"<summary>Took {escaped(block.took)}. Settings</summary>"
    return f"<details>\n{head}\n{_pairs(block.items)}\n</details>"


@_text.register
def _(block: _blocks.Origin) -> str:
    names = escaped(", ".join(block.records))
    commit = escaped(dict(block.facts).get("commit", "unknown"))
    head = f"<summary><strong>{names}</strong>: commit {commit}</summary>"
    return f"<details>\n{head}\n{_pairs(block.facts)}\n</details>"


def _pairs(items: Sequence[tuple[str, str]]) -> str:
    """Names and values."""
    found = [f"<div><dt>{escaped(name)}</dt> <dd>{escaped(value)}</dd></div>" for name, value in items]
    return "<dl>\n" + "\n".join(found) + "\n</dl>"


def _table(block: _blocks.Table, label: str) -> str:
    """A table in a box of its own, which scrolls where the window is too narrow; its first row stays in view."""
    looks = [_look(column, [row[place] for row in block.rows]) for place, column in enumerate(block.columns)]
    named = zip(block.columns, looks, strict=True)
    head = "".join(f'<th class="{look}" scope="col">{escaped(column.heading)}</th>' for column, look in named)
    body = (
        "<tr>" + "".join(_td(cell, look) for cell, look in zip(row, looks, strict=True)) + "</tr>"
        for row in block.rows
    )
    return "\n".join(
        [
            f'<div class="table" role="region" tabindex="0" aria-label="{escaped(label)}">',
            f"<table>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>",
            *body,
            "</tbody>\n</table>\n</div>",
        ]
    )


def _look(column: _blocks.Column, cells: Sequence[_blocks.Cell]) -> str:
    """Numbers to the right; short text in few lines, broken between words only; long text in a wide column."""
    if column.kind != "text":
        return "number"
    return "long" if any(len(cell.text) > _LONGEST_LINE for cell in cells) else "short"


def _td(cell: _blocks.Cell, look: str) -> str:
    paper = f' <span class="paper">({escaped(cell.paper)})</span>' if cell.paper else ""
    worse, text = " worse" if cell.worse else "", escaped(cell.text)
    shown = f'<span class="whole">{_MARK}{text}</span>' if cell.worse else text
    return f'<td class="{look}{worse}">{shown}{paper}</td>'


def _figure(block: _blocks.Picture, image: Image) -> str:
    """A picture with its caption, or a sentence why it is not there."""
    if not image.address:
        return f'<p class="missing">{escaped(block.name)}: {escaped(image.reason)}</p>'
    size = "" if image.size is None else f' width="{image.size[0]}" height="{image.size[1]}"'
    caption = escaped(block.text)
    # The caption below says all: a name is enough here, or a screen reader would read the same text twice.
    img = f'<img src="{image.address}" alt="Picture {escaped(block.name)}"{size}>'
    return f"<figure>\n{img}\n<figcaption>{caption}</figcaption>\n</figure>"


def _span(span: _blocks.Span) -> str:
    tag = {"plain": "", "strong": "strong", "code": "code"}[span.look]
    return f"<{tag}>{escaped(span.text)}</{tag}>" if tag else escaped(span.text)
