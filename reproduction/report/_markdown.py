"""Blocks in Markdown."""

import functools
from collections.abc import Collection, Sequence

import reproduction.report._blocks as _blocks

_RULES = {"text": "---", "pair": "---", "number": "---:"}


def markdown(blocks: Sequence[_blocks.Block], images: Collection[str] = ()) -> str:
    r"""Blocks as one text; pictures are left out unless their files are among ``images``.

    Examples
    --------
    >>> print(markdown([_blocks.Heading(2, "n_nodes", "n"), _blocks.Command("manifoldrf info")]))
    ## n\_nodes
    <BLANKLINE>
    ```sh
    manifoldrf info
    ```
    """
    shown = [block for block in blocks if not isinstance(block, _blocks.Picture) or f"{block.name}.png" in images]
    return "\n\n".join(_text(block) for block in shown)


@functools.singledispatch
def _text(block: object) -> str:
    """A block in Markdown."""
    raise TypeError(type(block).__name__)  # a block without a rule here: a mistake of the package's own


@_text.register
def _(block: _blocks.Heading) -> str:
    return f"{'#' * block.level} {escape(block.text)}"


@_text.register
def _(block: _blocks.Paragraph) -> str:
    return "".join(_span(span) for span in block.spans)


@_text.register
def _(block: _blocks.Command) -> str:
    return f"```sh\n{_one_line(block.text).replace('```', '')}\n```"


@_text.register
def _(block: _blocks.Settings) -> str:
    settings = "; ".join(f"{name} = {value}" for name, value in block.items)
    return f"Took {block.took}. Settings: {escape(settings)}."


@_text.register
def _(block: _blocks.Origin) -> str:
    facts = ", ".join(f"{what} {value}" for what, value in block.facts)
    return escape(f"{', '.join(block.records)}: {facts}.")


@_text.register
def _(block: _blocks.Table) -> str:
    lines = [[escape(column.heading) for column in block.columns]]
    lines += [[escape(_beside(cell)) for cell in row] for row in block.rows]
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "|".join(_RULES[column.kind] for column in block.columns) + "|", *body])


@_text.register
def _(block: _blocks.Picture) -> str:
    return f"![{escape(block.text)}](images/{block.name}.png)"


def _beside(cell: _blocks.Cell) -> str:
    """A value with the paper's in brackets; that ours is worse is said below the tables."""
    return f"{cell.text} ({cell.paper})" if cell.paper else cell.text


def _span(span: _blocks.Span) -> str:
    if span.look == "code":
        return f"`{_one_line(span.text).replace('`', '')}`"
    # Blanks at the ends part words from those of other looks, and belong outside of the asterisks.
    inner = span.text.strip()
    head, tail = span.text[: len(span.text) - len(span.text.lstrip())], span.text[len(span.text.rstrip()) :]
    marks = "**" if span.look == "strong" else ""
    return f"{head}{marks}{escape(inner)}{marks}{tail}" if inner else span.text


def escape(text: str) -> str:
    r"""Text that Markdown takes for text, in one line.

    Examples
    --------
    >>> print(escape("n_nodes |x|"))
    n\_nodes \|x\|
    """
    for sign in ("\\", "|", "*", "_", "`", "<", "$", "["):
        text = text.replace(sign, f"\\{sign}")
    return _one_line(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
