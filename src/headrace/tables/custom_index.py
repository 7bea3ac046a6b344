"""A user's index with checks: its choices are checked, and an error of it is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.description.selectors import CustomSelector

# Sums of floats may end a little above 1.
_AT_MOST = 1.0 + 1e-9


class CheckedIndex:
    """The index of a `CustomSelector` for one use.

    Args:
        selector: whose.
    """

    def __init__(self, selector: CustomSelector) -> None:
        self._selector = selector
        self._index = selector.new_index()
        self._failure: BaseException | None = None
        self._is_called = False

    def check(self) -> None:
        """Raises `RuntimeError` if the index failed before: its data may be incomplete.

        Also if it is being called: it uses the table that asks it, in the middle of a change.
        """
        self.check_uncalled()
        if self._failure is not None:
            raise RuntimeError(
                f"the index of {self._selector!r} failed before ({self._failure!r}), so the table cannot go on. Mend "
                "the selector; `reset` empties the table and begins with a new index"
            ) from self._failure

    def check_uncalled(self) -> None:
        """Raises `RuntimeError` if it is being called; see `check`."""
        if self._is_called:
            raise RuntimeError(
                f"the index of {self._selector!r} uses the table that calls it, in the middle of a change. Use the "
                "table after the call that changes it"
            )

    def insert(self, key: int, priority: float) -> None:
        """See `SelectorIndex.insert`."""
        self._call(self._index.insert, key, priority)

    def update(self, key: int, priority: float) -> None:
        """See `SelectorIndex.update`."""
        self._call(self._index.update, key, priority)

    def remove(self, key: int) -> None:
        """See `SelectorIndex.remove`."""
        self._call(self._index.remove, key)

    def choose(
        self, count: int, random: np.random.Generator
    ) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """See `SelectorIndex.choose`. Whether there are such items is for the table to say (`refuse`).

        Raises:
            RuntimeError: it did not return `count` keys and probabilities.
        """
        found = self._call(self._index.choose, count, random)
        try:
            keys, probabilities = (np.asarray(each) for each in found)
            fits = (
                keys.shape == probabilities.shape == (count,)
                and keys.dtype.kind in "iu"
                and bool(((probabilities > 0.0) & (probabilities <= _AT_MOST)).all())
            )
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise self.refuse(
                f"expected {count} keys and {count} probabilities above 0 and at most 1, got {found!r}"
            )
        return keys.astype(np.uint64), np.minimum(probabilities.astype(np.float64), 1.0)

    def refuse(self, reason: str) -> RuntimeError:
        """Returns the error of a wrong choice; the index counts as failed from here on."""
        error = RuntimeError(f"choose of {type(self._index).__name__}: {reason}")
        self._failure = error
        return error

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self._is_called = True
        try:
            return method(*arguments)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._is_called = False
