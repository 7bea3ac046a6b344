"""Columns of final rows, as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import Signature


class FinalColumns:
    """Reads what a user gives for a final row: a partial step, or the observation alone.

    Args:
        signature: of a whole step.

    >>> import numpy as np
    >>> final = FinalColumns(Signature.like({"observation": np.zeros(2), "reward": 0.0}))
    >>> list(final.read([1.0, 2.0], ())), list(final.read({"reward": 1.0}, ()))
    (['observation'], ['reward'])
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        tree = signature.tree
        self._top = (
            tree if isinstance(tree, Mapping) else tree._asdict() if hasattr(tree, "_asdict") else None
        )
        self._partial: dict[tuple[str, ...], Signature] = {}

    def read(self, final: Any, leading: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Returns the columns that are given, checked.

        Args:
            final: a partial step such as `{"observation": ...}`, or the observation.
            leading: axes before those of the signature.

        Raises:
            SpecError: `final` does not fit.
        """
        if self._top is None:
            return self._signature.validate(final, leading)
        if hasattr(final, "_asdict"):
            final = final._asdict()
        if not (isinstance(final, Mapping) and final and all(name in self._top for name in final)):
            if "observation" not in self._top:
                raise SpecError(f"final: expected some of {', '.join(self._top)}, got {_describe(final)}")
            final = {"observation": final}
        names = tuple(final)
        if names not in self._partial:
            self._partial[names] = Signature({name: self._top[name] for name in names})
        return self._partial[names].validate(dict(final), leading)


def _describe(value: Any) -> str:
    return (
        f"a mapping of {', '.join(map(str, value))}" if isinstance(value, Mapping) else type(value).__name__
    )
