"""Nested mappings from values by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import SpecError


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested mappings that hold each value at its path.

    Raises:
        SpecError: a path leads through a value.

    >>> nested({"wind/speed": 1.5, "wind/name": "x", "n": 3})
    {'wind': {'speed': 1.5, 'name': 'x'}, 'n': 3}
    """
    root: dict[str, Any] = {}
    for path, value in values.items():
        *names, last = path.split("/")
        place = root
        for name in names:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise SpecError(f"{path}: {name} is an array and has entries below it")
        if place.setdefault(last, value) is not value:
            raise SpecError(f"{path} is an array and has entries below it")
    return root
