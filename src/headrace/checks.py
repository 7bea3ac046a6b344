"""Checks of numbers given by users; errors name the argument."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_COUNTER_END = 1 << 63


def shown(value: Any) -> str:
    """Returns a value as a message shows it, with NumPy numbers as Python numbers.

    >>> shown(np.int64(4)), shown([np.float64(0.5)]), shown(np.array(4)), shown("4")
    ('4', '[0.5]', '4', "'4'")
    """
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def check_count(name: str, value: Any, least: int) -> int:
    """Returns an integer of at least `least` as a Python int.

    Raises:
        TypeError: not an integer (a bool is refused).
        ValueError: below `least`.

    >>> check_count("lanes", 3, 1)
    3
    """
    if type(value) is int and value >= least:
        return value
    if isinstance(value, bool | type) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer >= {least}, got {shown(value)}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {number}")
    return number


def check_bits(name: str, value: int) -> None:
    """Refuses an integer that a signed counter of 64 bits does not hold.

    Raises:
        ValueError: 2**63 or more. The message tells its length: Python does not print every integer.

    >>> check_bits("frames", 2**63 - 1)
    """
    if value >= _COUNTER_END:
        raise ValueError(f"{name}: expected an int below 2**63, got one of {int(value).bit_length()} bits")


def check_kind(name: str, value: Any, kind: type[T]) -> T:
    """Returns an instance of a class.

    Raises:
        TypeError: an instance of another class.

    >>> check_kind("name", "reward", str)
    'reward'
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected a {kind.__name__}, got {type(value).__name__}")
    return value


def is_name(value: Any) -> bool:
    r"""Returns whether a value can name a table or a served object: a text that is not empty and fits into UTF-8.

    >>> is_name("t"), is_name(""), is_name(3), is_name("\ud800")
    (True, False, False, False)
    """
    if type(value) is not str:
        return False
    try:
        return len(value.encode()) > 0
    except UnicodeEncodeError:  # Half of a pair: it could be in no message, file or page.
        return False


def check_path(name: str, path: Any) -> str:
    """Returns a path as a string.

    Raises:
        TypeError: not a path.
        ValueError: an empty one.

    >>> check_path("checkpoint", b"out")
    'out'
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{name}: expected a path, got {type(path).__name__}")
    if not path:
        raise ValueError(f"{name}: expected a path, got {path!r}")
    return os.fsdecode(path)


def check_mapping(name: str, value: Any, values: str) -> None:
    """Refuses a value that is not a mapping; `values` describes its values in the message.

    Raises:
        TypeError: refused.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected a dict of {values}, got {type(value).__name__}")


def check_share(name: str, value: Any) -> float:
    """Returns a number from 0 to 1 as a Python float.

    Raises:
        TypeError: not a number (a bool is refused).
        ValueError: outside [0, 1], or nan.

    >>> check_share("gamma", 1)
    1.0
    """
    if isinstance(value, bool | type) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: expected a number from 0 to 1, got {shown(value)}")
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {shown(value)}")
    return number


def check_timeout(timeout: Any, name: str = "timeout") -> float | None:
    """Returns the seconds that a call may wait as a Python float; None means without limit and stays None.

    Raises:
        TypeError: not a number (a bool is refused).
        ValueError: negative.

    >>> check_timeout(2)
    2.0
    """
    seconds = check_seconds(timeout, name)
    if seconds is not None and seconds < 0:
        raise ValueError(f"{name}: expected seconds >= 0 or None, got {shown(timeout)}")
    return seconds


def check_seconds(timeout: Any, name: str = "timeout") -> float | None:
    """Checks a number of seconds like `check_timeout`; a negative number means not to wait.

    Raises:
        TypeError: not a number (a bool is refused).
        ValueError: nan.

    >>> check_seconds(-1)
    -1.0
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool | type) or not hasattr(timeout, "__float__"):
        raise TypeError(f"{name}: expected seconds or None, got {shown(timeout)}")
    try:
        seconds = float(timeout)
    except OverflowError:
        raise ValueError(
            f"{name}: expected seconds or None, got an int of {int(timeout).bit_length()} bits"
        ) from None
    if math.isnan(seconds):
        raise ValueError(f"{name}: expected seconds or None, got {shown(timeout)}")
    return seconds
