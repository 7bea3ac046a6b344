"""Views as data, so that a server can present them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from headrace.server.messages.dtypes import dtype_of
from headrace.spec import ArraySpec
from headrace.views.columns import Columns
from headrace.views.recurrent import StateView
from headrace.views.sources import check_space
from headrace.views.transition import TransitionView
from headrace.views.view import View, check_views

_KINDS: dict[str, type[View]] = {kind.__name__: kind for kind in (View, StateView, TransitionView)}
_MOST_LEVELS = 32


class ArrayValue(msgspec.Struct, tag="array"):
    """An array of a fill."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class TreeValue(msgspec.Struct, tag="tree"):
    """A container of a fill; `names` are the keys of a dict."""

    kind: Literal["dict", "list", "tuple"]
    names: list[str]
    children: list[Any]


class ViewRecord(msgspec.Struct, omit_defaults=True):
    """A view; the attributes are those of `View` and `TransitionView`."""

    kind: Literal["View", "StateView", "TransitionView"]
    offsets: list[int]
    is_single: bool
    fill: Any
    data_col: str | None = None
    every: int = 1
    used_for_training: bool = True
    used_for_compute_actions: bool | None = None
    mask: bool = False
    agent: Any = None
    part: str = "reward"
    n_step: int = 1
    gamma: float = 0.99


def described_views(views: Mapping[str, View], columns: Columns) -> dict[str, ViewRecord]:
    """Returns the records of views; their spaces are checked here, and not sent.

    Args:
        views: of `ReplayLike.sample`.
        columns: of the replay.

    Raises:
        TypeError: not a dict of views; or a view with a function or of a class of the user's own, which the server
            cannot call.
        SpecError: a space that contradicts its column.
    """
    check_views(views)
    return {name: _described(name, view, columns) for name, view in views.items()}


def _described(name: str, view: View, columns: Columns) -> ViewRecord:
    if view.hindsight is not None:
        raise TypeError(
            f"views: {name!r}: expected a view that can be described to the server, got one with hindsight, whose "
            "functions are of this program; sample it in the server's process"
        )
    kind = type(view).__name__
    if _KINDS.get(kind) is not type(view):
        raise TypeError(
            f"views: {name!r}: expected a view of Headrace, which can be described to the server, got {view!r}"
        )
    if view.space is not None:
        found = columns.at(name, view.data_col or name)
        check_space(name, view, {leaf: columns.spec_of(column) for leaf, column in found.items()})
    sums = (
        {"part": view.part, "n_step": view.n_step, "gamma": view.gamma}
        if isinstance(view, TransitionView)
        else {}
    )
    return ViewRecord(
        kind=kind,  # type: ignore[arg-type]
        offsets=list(view.offsets),
        is_single=not view.has_window,
        fill=_described_value(f"views: {name!r}: fill", view.fill),
        data_col=view.data_col,
        every=view.every,
        used_for_training=bool(view.used_for_training),
        used_for_compute_actions=None
        if view.used_for_compute_actions is None
        else bool(view.used_for_compute_actions),
        mask=bool(view.mask),
        agent=_described_value(f"views: {name!r}: agent", view.agent),
        **sums,  # type: ignore[arg-type]
    )


def _described_value(path: str, value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        return TreeValue("dict", names, [_described_value(path, each) for each in value.values()])
    if type(value) in (list, tuple):
        return TreeValue(type(value).__name__, [], [_described_value(path, each) for each in value])  # type: ignore[arg-type]
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{path}: expected numbers, which can be described to the server, got {value!r}")
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    return ArrayValue(array.dtype.str, array.shape, array.tobytes())


def views_of(records: Mapping[str, ViewRecord]) -> dict[str, View]:
    """Returns the views of records that a client sent.

    Raises:
        ValueError, TypeError: no such view.
    """
    return {name: _view_of(record) for name, record in records.items()}


def _view_of(record: ViewRecord) -> View:
    shift = record.offsets[0] if record.is_single and record.offsets else record.offsets
    sums = (
        {"part": record.part, "n_step": record.n_step, "gamma": record.gamma}
        if record.kind == "TransitionView"
        else {}
    )
    return _KINDS[record.kind](
        record.data_col,
        None,
        shift,
        every=record.every,
        fill=_value_of(record.fill),
        used_for_compute_actions=record.used_for_compute_actions,
        used_for_training=record.used_for_training,
        mask=record.mask,
        agent=_value_of(record.agent),
        **sums,  # type: ignore[arg-type]
    )


def _value_of(given: Any, level: int = 0) -> Any:
    if not isinstance(given, dict):
        return given
    if level > _MOST_LEVELS:
        raise ValueError("fill: expected a tree of at most 32 levels")
    if given.get("type") == "array":
        return array_of(msgspec.convert(given, ArrayValue))
    tree = msgspec.convert(given, TreeValue)
    children = [_value_of(child, level + 1) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.names, children, strict=True))
    return tuple(children) if tree.kind == "tuple" else children


def array_of(value: ArrayValue) -> np.ndarray[Any, Any]:
    """Returns the array of a value that a client sent.

    Raises:
        ValueError: no such array.
    """
    dtype = dtype_of(value.dtype)
    spec = ArraySpec(value.shape, dtype)
    if spec.nbytes != len(value.data):
        raise ValueError(f"fill: expected {spec.nbytes} bytes of {spec}, got {len(value.data)}")
    return np.frombuffer(value.data, dtype).reshape(spec.shape).astype(spec.dtype)
