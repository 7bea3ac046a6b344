"""Reads the last observations of episodes whose environment resets itself in the same step."""

# Rules: trajectories V4

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.trajectories.columns.step_columns import TreeColumns

Array = np.ndarray[Any, Any]


def final_of_info(info: Mapping[str, Any] | None, terminated: Any, truncated: Any) -> Any:
    """Returns the last observations of a step of a vector environment, for `read_final_observations`.

    Args:
        info: of the step; its `_final_obs`, if there, says for which lanes `final_obs` has an observation.
        terminated, truncated: bool[lanes].

    Raises:
        ValueError: `_final_obs` says that lanes which ended have none.
    """
    final = None if info is None else info.get("final_obs")
    if info is None or final is None or "_final_obs" not in info:
        return final
    ended = np.asarray(terminated) | np.asarray(truncated)
    present = np.asarray(info["_final_obs"])
    if present.shape == ended.shape and (ended & ~present).any():
        raise _missing(np.flatnonzero(ended & ~present))
    return final


def read_final_observations(
    observation: TreeColumns, given: Any, ended: NDArray[np.int64]
) -> dict[str, Array]:
    """Returns the columns `[m, ...]` of the m lanes that ended.

    Args:
        observation: its columns.
        given: a tree of arrays `[lanes, ...]`, whose other rows are ignored; or an object array, or a
            list, of one observation for each lane, None elsewhere (gymnasium's `info["final_obs"]`).
        ended: int64[m].

    Raises:
        ValueError: some have none, with the lanes.
        SpecError: one does not fit.
    """
    if given is None:
        raise _missing(ended)
    each = _one_each(given, observation.lanes)
    if each is None:
        return observation.read_columns(given, ended)
    missing = [lane for lane in ended.tolist() if each[lane] is None]
    if missing:
        raise _missing(missing)
    return observation.read_each([each[lane] for lane in ended.tolist()])


def _one_each(given: Any, lanes: int | None) -> list[Any] | None:
    """Returns one observation for each lane if they were given so; else None."""
    if isinstance(given, np.ndarray) and given.dtype == object:
        if given.shape[:1] != (lanes,):
            raise ValueError(
                f"final_observation: expected one entry for each of {lanes} lanes, got {given.shape}"
            )
        return list(given)
    if isinstance(given, list) and len(given) == lanes and any(entry is None for entry in given):
        return given
    return None


def _missing(lanes: Any) -> ValueError:
    return ValueError(
        f"final_observation: lanes {list(map(int, lanes))} ended and have none; with autoreset='same_step' "
        "next_observation is already the next episode's first, so the last one must be given "
        "(info['final_obs'] of gymnasium's vector environments)"
    )
