"""Checks of the parts of a state, by their paths."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

Check = Callable[[str, Any], None]
"""Raises ValueError if a part, of this path and value, is not as expected."""

_COUNTER_END = 1 << 63


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raises the error of a part that is not as expected.

    >>> refuse("loop/begun", "an int >= 0", "a")
    Traceback (most recent call last):
        ...
    ValueError: load_state_dict: loop/begun: expected an int >= 0, got str; nothing was changed
    """
    raise ValueError(
        f"load_state_dict: {path}: expected {expected}, got {_shown(value)}; nothing was changed"
    )


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, int | float) and abs(value) < _COUNTER_END:
        return repr(value)
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else type(value).__name__


def whole(least: int = 0, most: int = _COUNTER_END - 1) -> Check:
    """Returns a check for an int within these bounds."""
    expected = f"an int >= {least}" if most == _COUNTER_END - 1 else f"an int from {least} to {most}"

    def check(path: str, value: Any) -> None:
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value <= most:
            refuse(path, expected, value)

    return check


def of_type(expected: str, *types: type) -> Check:
    """Returns a check for a value of one of these types."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, types):
            refuse(path, expected, value)

    return check


flag = of_type("a bool", bool, np.bool_)
number = of_type("a number", int, float, np.number)
text = of_type("a str", str)


def array(dtype: DTypeLike, shape: Sequence[int | None], least: int | None = None) -> Check:
    """Returns a check for an array of a type and shape.

    Args:
        dtype: values of other types of the same kind are cast.
        shape: None: of any length.
        least: the smallest value; None: any.
    """
    kind = np.dtype(dtype)
    form = f"{kind}[{', '.join('n' if each is None else str(each) for each in shape)}]"
    expected = form if least is None else f"{form} of values >= {least}"

    def check(path: str, value: Any) -> None:
        found = as_array(value)
        fits = (
            found is not None
            and np.can_cast(found.dtype, kind, "same_kind")
            and len(found.shape) == len(shape)
            and all(want in (None, got) for want, got in zip(shape, found.shape, strict=True))
            and (least is None or (found >= least).all())
        )
        if not fits:
            refuse(path, expected, value)

    return check


def as_array(value: Any) -> NDArray[Any] | None:
    """Returns an array, or a list of numbers, as an array; None: another value."""
    if not isinstance(value, np.ndarray | np.generic | list | tuple):
        return None
    try:
        return np.asarray(value)
    except ValueError:  # Lists of different lengths.
        return None


def optional(check: Check) -> Check:
    """Returns a check for a value that `check` accepts, or None."""

    def check_value(path: str, value: Any) -> None:
        if value is not None:
            check(path, value)

    return check_value


def record(**checks: Check) -> Check:
    """Returns a check for a dict with these parts; it may have others, too."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            refuse(path, f"a dict with {', '.join(checks)}", value)
        for name, check_part in checks.items():
            if name not in value:
                missing(within(path, name))
            check_part(within(path, name), value[name])

    return check


def missing(path: str) -> NoReturn:
    """Raises the error of a part that a state lacks."""
    raise ValueError(
        f"load_state_dict: {path}: expected a state with this part, got none; nothing was changed"
    )


def within(path: str, name: object) -> str:
    """Returns the path of a part."""
    return f"{path}/{name}" if path else str(name)


def list_of(check: Check, length: int | None = None) -> Check:
    """Returns a check for a list (None: of any length) of values that `check` accepts."""
    expected = "a list" if length is None else f"a list of {length}"

    def check_all(path: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or length not in (None, len(value)):
            refuse(path, expected, value)
        for index, each in enumerate(value):
            check(within(path, index), each)

    return check_all


def by_key(check_key: Check, check: Check) -> Check:
    """Returns a check for a dict of such keys and values."""

    def check_all(path: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            refuse(path, "a dict", value)
        for key, each in value.items():
            check_key(f"{path}: keys", key)
            check(within(path, key), each)

    return check_all


def columns_of(known: Mapping[str, Check], required: Collection[str], other: Check) -> Check:
    """Returns a check for a dict of columns.

    Args:
        known: checks by name.
        required: names that must be there.
        other: for columns of other names, such as those of a policy that has not acted here yet.
    """

    def check(path: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            refuse(path, "a dict of columns", value)
        for name in required:
            if name not in value:
                missing(within(path, name))
        for name, column in value.items():
            known.get(name, other)(within(path, name), column)

    return check
