"""Views of steps: a column, at one or several time offsets, with a fill where there is no value."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.arrays import as_array
from headrace.checks import check_count, check_kind, check_mapping, shown
from headrace.errors import SpecError
from headrace.views.goals import Hindsight

Shift = int | str | Sequence[int]
_RANGE = re.compile(r"\s*([+-]?\d+)\s*:\s*([+-]?\d+)\s*(?::\s*([+-]?\d+)\s*)?")


@dataclass(frozen=True, eq=False)
class View:
    """A declarative window over one column of a trajectory.

    Args:
        data_col: the source column; a path presents one leaf or sub-tree. Default: the view's name.
        space: a gymnasium space, an `ArraySpec`, or a `Signature` of a tree: shapes and dtypes where there are no data.
        shift: time offsets: an int adds no axis; a sequence or `"from:to[:step]"`, both ends inclusive, adds one.
        every: presents only rows 0, k, 2k, ... of an item.
        fill: value of places without data: "zeros", a value, or "edge", the nearest value that may be known at the row.
        used_for_compute_actions: None passes it to the policy if all its data are known before acting. False never
            does. True does, and a view that looks ahead is an error.
        used_for_training: False leaves it out of training batches.
        mask: adds a bool column `<name>_mask`, True where the value is data.
        agent: the agent of the trajectory: None for the row's own, else an agent's id or a list of ids.
        hindsight: shows goals reached later, and their rewards; `views.hindsight` sets it.

    Raises:
        ValueError: an empty list; an invalid or descending range; `every` < 1; an empty `data_col`.
        TypeError: a shift or an `every` that is a bool or a float; a flag that is not a bool; a `data_col` that is not
            a string; a fill that cannot be copied.

    >>> View("observation", shift="-3:0", fill="edge").offsets
    (-3, -2, -1, 0)
    >>> View("action", shift=-1).has_window
    False
    """

    # Rules: views V1 to V10

    data_col: str | None = None
    space: Any = None
    shift: Shift = 0
    _: dataclasses.KW_ONLY
    every: int = 1
    fill: Any = "zeros"
    used_for_compute_actions: bool | None = None
    used_for_training: bool = True
    mask: bool = False
    agent: Any = None
    hindsight: Hindsight | None = None
    offsets: tuple[int, ...] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", _offsets(self.shift))
        if not isinstance(self.shift, str):
            plain = int(self.shift) if _is_integer(self.shift) else self.offsets  # type: ignore[arg-type]
            object.__setattr__(self, "shift", plain)
        object.__setattr__(self, "every", check_count("every", self.every, 1))
        self._check_source_and_flags()
        # An array that the caller changes later must not change the view.
        object.__setattr__(self, "fill", _copied(self.fill))

    def _check_source_and_flags(self) -> None:
        if self.data_col is not None and not check_kind("data_col", self.data_col, str):
            raise ValueError("data_col: expected the name of a column or a path, got ''")
        for name in ("mask", "used_for_training", "used_for_compute_actions"):
            flag = getattr(self, name)
            if not isinstance(flag, bool | np.bool_) and (
                name != "used_for_compute_actions" or flag is not None
            ):
                raise TypeError(f"{name}: expected a bool, got {shown(flag)}")

    @property
    def is_known_before_acting(self) -> bool:
        """Whether its column is known before acting, independent of the column's name."""
        # Rules: views V2
        return False

    @property
    def has_window(self) -> bool:
        """Whether the view presents a window axis."""
        # Rules: views V5
        return not isinstance(self.shift, int)

    @property
    def furthest(self) -> int:
        """The largest offset of the rows that are shown or used."""
        return max(self.offsets)

    def replace(self, **changes: Any) -> View:
        """Returns a copy with some arguments changed.

        >>> View("action").replace(shift=-1)
        View('action', shift=-1)
        """
        return dataclasses.replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self)
        )

    def __hash__(self) -> int:
        # A fill may be an array or a tree; equal views have equal numbers of everything else.
        return hash((self.data_col, self.offsets, self.every, self.mask, self.used_for_training))

    def __repr__(self) -> str:
        parts = [] if self.data_col is None else [repr(self.data_col)]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.init and field.name not in ("data_col", "_") and not _same(value, field.default):
                parts.append(f"{field.name}={shown(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _copied(fill: Any) -> Any:
    try:
        return copy.deepcopy(fill)
    except Exception as error:
        raise TypeError(
            f"fill: expected 'zeros', 'edge' or a value that can be copied, got {type(fill).__name__}: {error}"
        ) from error


def _offsets(shift: Shift) -> tuple[int, ...]:
    if isinstance(shift, str):
        return _range(shift)
    if _is_integer(shift):
        return (int(shift),)  # type: ignore[arg-type]
    if isinstance(shift, Sequence | np.ndarray) and not isinstance(shift, bytes):
        for offset in shift:
            if not _is_integer(offset):
                raise TypeError(f"shift: expected integers, got {shown(offset)} in {shown(shift)}")
        if len(shift) == 0:
            raise ValueError("shift: expected at least one offset, got an empty list")
        return tuple(int(offset) for offset in shift)
    raise TypeError(f"shift: expected an int, a list of ints or 'from:to[:step]', got {shown(shift)}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _range(text: str) -> tuple[int, ...]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"shift: expected 'from:to' or 'from:to:step' such as '-3:0', got {text!r}")
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if first > last or step < 1:
        raise ValueError(f"shift: expected from <= to and step >= 1, got {text!r}")
    return tuple(range(first, last + 1, step))


def check_views(views: Mapping[str, View]) -> None:
    """Refuses values that are not views, and names that are not strings.

    Raises:
        TypeError: not a mapping, or one of its values is not a view; the message has the name.
    """
    check_mapping("views", views, "View")
    for name, view in views.items():
        if not isinstance(name, str):
            raise TypeError(f"views: expected names that are strings, got {name!r}")
        if not isinstance(view, View):
            raise TypeError(f"views: {name!r}: expected a View, got {view!r}")


def _same(one: Any, other: Any) -> bool:
    """Compares trees of arrays and other values; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and other.dtype.kind in "fc")
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) or (isinstance(one, float) and one != one and other != other)


def fill_value(path: str, fill: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns the fill of one column as an array of its dtype and row shape.

    Args:
        path: of the value, which begins every message.
        fill: "zeros", "edge" or a value.
        shape: of a row.
        dtype: of the column.

    Raises:
        SpecError: the dtype cannot hold the value, or the shape differs.
    """
    # Rules: views V6
    if isinstance(fill, str) and fill in ("zeros", "edge"):
        return np.zeros(shape, dtype)
    if isinstance(fill, str):
        raise SpecError(f"{path}: expected 'zeros', 'edge' or a value, got {fill!r}")
    given = as_array(fill, path)
    with np.errstate(all="ignore"):
        stored = (given if dtype.kind == "c" else given.real).astype(dtype)
    # Rounding 0.1 to float32 is allowed; -1 as uint8 or 2.5 as an integer would be a different number.
    if dtype.kind == "c" or (dtype.kind == "f" and given.dtype.kind != "c"):
        same = np.array_equal(np.isfinite(given), np.isfinite(stored))
    else:
        same = np.array_equal(given, stored)
    if not same:
        raise SpecError(f"{path}: {dtype} cannot hold {shown(fill)}")
    try:
        return np.broadcast_to(stored, shape).copy()
    except ValueError as error:
        raise SpecError(f"{path}: expected a value of {dtype}{list(shape)}, got {shown(fill)}") from error
