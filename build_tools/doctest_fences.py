"""An extension of griffe: the examples of docstrings are code on the site.

A docstring has its `>>>` lines where it needs them, without a heading above. Markdown would take them for quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a prompt to the next empty line.
_SESSION = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.DOTALL | re.MULTILINE)


class DoctestFences(griffe.Extension):
    """Puts fences around the sessions in each docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Returns the docstring with fences around its sessions."""
    return _SESSION.sub(lambda session: f"```pycon\n{session[0].rstrip()}\n```\n", text)
