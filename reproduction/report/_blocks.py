"""What a page of results consists of, whatever it is written in: a list of blocks, made once from the records."""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Block",
    "Cell",
    "Column",
    "Command",
    "Heading",
    "Origin",
    "Paragraph",
    "Picture",
    "Settings",
    "Span",
    "Table",
]


@dataclass(frozen=True)
class Span:
    """Words of one look inside a paragraph. They are plain text: renderers escape them."""

    text: str
    look: Literal["plain", "strong", "code"] = "plain"


@dataclass(frozen=True)
class Heading:
    """A heading of level 1 to 3, and the name that links lead to."""

    level: Literal[1, 2, 3]
    text: str
    anchor: str


@dataclass(frozen=True)
class Paragraph:
    """Sentences."""

    spans: tuple[Span, ...]

    @classmethod
    def of(cls, text: str) -> "Paragraph":
        """A paragraph of one look."""
        return cls((Span(text),))


@dataclass(frozen=True)
class Command:
    """A line for the terminal."""

    text: str


@dataclass(frozen=True)
class Settings:
    """How long a run took, and its settings as pairs of name and value."""

    took: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Origin:
    """Records that were made in one place: their names, and what is known of it as pairs of fact and value."""

    records: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table: text is aligned to the left, numbers to the right."""

    heading: str
    kind: Literal["text", "number", "pair"] = "text"  # a pair is a number of ours and the paper's


@dataclass(frozen=True)
class Cell:
    """A value, the paper's where it stands beside ours, and whether ours is worse."""

    text: str
    paper: str = ""
    worse: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells below their columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A picture by the stem of its file name, and what is said where it cannot be seen."""

    name: str
    text: str


Block = Heading | Paragraph | Command | Settings | Origin | Table | Picture
