"""Text of others inside a page: nothing but text, and nothing that cannot be seen."""

import html
import re

# Control signs, halves of pairs that no file can hold, and signs that turn the direction of the text around them.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    r"""Text for HTML, inside and outside of quotes; what cannot be seen is a replacement sign.

    Examples
    --------
    >>> escaped("1 < 2 \x00")
    '1 &lt; 2 \ufffd'
    """
    return html.escape(_UNSEEN.sub("\ufffd", text), quote=True)
