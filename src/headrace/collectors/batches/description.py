"""A line about a batch: its shape, its columns, the versions that acted, and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS = ("mask", "episode_id", "t", "reward", "terminated", "truncated")


def describe(shape: Sequence[int], trees: Mapping[str, Any]) -> str:
    """Returns shape, columns, versions and returns; arrays of other libraries than NumPy and torch are not read.

    Args:
        shape: of the batch.
        trees: column to its tree of arrays.

    >>> columns = {"reward": np.ones((1, 3)), "policy_version": np.full((1, 3), 7), "mask": np.ones((1, 3), bool)}
    >>> describe((1, 3), columns)
    '[1, 3] of reward, policy_version, mask, policy version 7'
    """
    parts = [f"{list(shape)} of {', '.join(trees)}"]
    versions, mask = (_host(trees.get(name)) for name in ("policy_version", "mask"))
    if versions is not None and mask is not None and mask.any():
        known = versions[mask]
        parts.append(f"policy version{_range(known.min(), known.max())}")
    rows = [row for name in _ROWS if (row := _host(trees.get(name))) is not None]
    if len(rows) == len(_ROWS):
        returns = whole_returns(*rows)
        if returns.size:
            count = f"{returns.size} whole episode{'s' * (returns.size > 1)}"
            parts.append(f"{count} with return{_range(returns.min(), returns.max())}")
    return ", ".join(parts)


def whole_returns(
    mask: NDArray[np.bool_],
    episode_id: NDArray[np.int64],
    t: NDArray[np.int64],
    reward: NDArray[np.floating[Any]],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Returns the sum of rewards of each episode that has ended and all of whose steps are here, by rising id.

    Args:
        mask, episode_id, t, reward, terminated, truncated: columns of a batch, rows in any order.

    >>> whole_returns(
    ...     np.ones(5, bool), np.array([3, 3, 4, 4, 5]), np.array([1, 2, 0, 1, 0]), np.arange(5.0),
    ...     np.array([0, 1, 0, 1, 0], bool), np.zeros(5, bool),
    ... )
    array([5.])
    """
    if not mask.any():
        return np.empty(0)
    _, of_row, counts = np.unique(episode_id[mask], return_inverse=True, return_counts=True)
    lengths, ended = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.bool_)
    np.maximum.at(lengths, of_row, t[mask] + 1)
    np.logical_or.at(ended, of_row, (terminated | truncated)[mask])
    sums = np.zeros(len(counts))
    np.add.at(sums, of_row, reward[mask])
    returns: NDArray[np.float64] = sums[ended & (lengths == counts)]
    return returns


def _host(column: Any) -> NDArray[Any] | None:
    """Returns a column as a NumPy array; None if it is not an array of NumPy or torch."""
    if isinstance(column, np.ndarray):
        return column
    if type(column).__module__.partition(".")[0] == "torch":
        array: NDArray[Any] = column.numpy(force=True)
        return array
    return None


def _range(least: Any, most: Any) -> str:
    """Returns "s 1 to 3", or " 1" where both are equal: the end of a noun and its values."""
    return f" {least:g}" if least == most else f"s {least:g} to {most:g}"
