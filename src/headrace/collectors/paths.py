"""Dotted paths to the parts of an object, such as `policy.layers[0].weight`."""

# Rules: collectors CQ5

from __future__ import annotations

import re
from typing import Any

_NAME = r"[^\W\d]\w*"
_ITEM = r"""\[(?:-?\d+|'[^']*'|"[^"]*")\]"""
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME}|{_ITEM})*")
_PART = re.compile(rf"(?P<name>{_NAME})|\[(?:(?P<index>-?\d+)|'(?P<key>[^']*)'|\"(?P<text>[^\"]*)\")\]")


def follow_path(root: Any, path: str) -> Any:
    """Returns the part of an object that a path names: attributes, and items `['key']` or `[0]`.

    Raises:
        ValueError: not a path.
        AttributeError, KeyError, IndexError: there is no such part.

    >>> from types import SimpleNamespace
    >>> follow_path(SimpleNamespace(policy=SimpleNamespace(layers=[{"w": 3}])), "policy.layers[0]['w']")
    3
    """
    if not _PATH.fullmatch(path):
        raise ValueError(
            f"path: expected attributes and items, such as policy.layers[0] or env.unwrapped, got {path!r}"
        )
    for part in _PART.finditer(path):
        root = _step(root, part)
    return root


def _step(root: Any, part: re.Match[str]) -> Any:
    name, index, key, text = part.group("name", "index", "key", "text")
    if name is not None:
        return getattr(root, name)
    if index is not None:
        return root[int(index)]
    return root[text if key is None else key]
