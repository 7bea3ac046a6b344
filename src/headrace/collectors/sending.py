"""Pickles that travel to workers."""

# Rules: collectors CX1, CQ5, CH1

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import cloudpickle

from headrace.error_texts import message_of


def pickle_for_worker(value: Any, parts: Mapping[str, Any], advice: str) -> bytes:
    """Returns a pickle of a value.

    Args:
        value: to be sent to a worker.
        parts: of the value, by the names that the user knows. Fields of dataclasses are parts, too, also of those in a
            dict.
        advice: ends the message of the error: where a part that cannot be pickled can be made instead.

    Raises:
        TypeError: a part cannot be pickled. The message names it.

    >>> pickle_for_worker((print, open), {"hook": print}, "Open files there.")  # doctest: +ELLIPSIS
    b'...'
    """
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception:
        for name, part in _leaves(parts):
            _check_part(name, part, advice)
        raise
    return pickled


def _leaves(parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in parts.items():
        if is_dataclass(part) and not isinstance(part, type):
            yield from _leaves({f"{name}.{field.name}": getattr(part, field.name) for field in fields(part)})
        if isinstance(part, Mapping):
            held = {f"{name}[{key!r}]": value for key, value in part.items() if is_dataclass(value)}
            yield from _leaves(held)
        yield name, part


def _check_part(name: str, part: Any, advice: str) -> None:
    try:
        cloudpickle.dumps(part)
    except Exception as error:
        raise TypeError(
            f"{name}: expected what can be pickled and sent to a worker, got {type(part).__name__}: "
            f"{message_of(error)}. {advice}"
        ) from error
