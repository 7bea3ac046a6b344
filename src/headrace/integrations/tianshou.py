"""Batches of Tianshou as transitions, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.replay.sampling.replay_sample import ReplaySample

_NAMES = {
    "observation": "obs",
    "action": "act",
    "reward": "rew",
    "terminated": "terminated",
    "truncated": "truncated",
    "next_observation": "obs_next",
}


def from_tianshou(batch: Any) -> dict[str, Any]:
    """Returns a `Batch` of Tianshou as arguments of `hr.TransitionWriter.extend`: `writer.extend(**from_tianshou(b))`.

    `buffer.sample(0)[0]` is all that is in a buffer of Tianshou, environment by environment, in the order of time; so
    each observation is stored once. Other entries, such as `info` and `policy`, are left out.

    Args:
        batch: of transitions `[n]`, with obs, act, rew, terminated, truncated and obs_next.

    Raises:
        SpecError: an entry is missing.
    """
    entries = batch.to_dict()
    if missing := [name for name in _NAMES.values() if _is_empty(entries.get(name))]:
        raise SpecError(
            f"batch: expected entries {', '.join(_NAMES.values())}; missing: {', '.join(missing)}"
        )
    return {ours: entries[theirs] for ours, theirs in _NAMES.items()}


def to_tianshou(sample: ReplaySample | Mapping[str, Any]) -> Any:
    """Returns transitions as a `Batch` of Tianshou, over the same arrays.

    Args:
        sample: of views `hr.views.transition`. Its columns beside those of a transition are entries of `info`.

    Returns:
        A `Batch` with obs, act, rew, terminated, truncated, done, obs_next and info. Of a `ReplaySample`, `info.key`
        has the items' keys, for `update_priorities`.

    Raises:
        ImportError: Tianshou is not installed.
        SpecError: a column is missing.
    """
    try:
        from tianshou.data import Batch
    except ImportError as error:
        raise ImportError('to_tianshou needs Tianshou: pip install "headrace[tianshou]"') from error
    columns = dict(sample.data if isinstance(sample, ReplaySample) else sample)
    if missing := [name for name in _NAMES if name not in columns]:
        raise SpecError(f"sample: expected columns {', '.join(_NAMES)}; missing: {', '.join(missing)}")
    entries = {theirs: columns.pop(ours) for ours, theirs in _NAMES.items()}
    done = entries["terminated"] | entries["truncated"]
    if isinstance(sample, ReplaySample):
        columns["key"] = sample.info.keys
    return Batch(**entries, done=done, info=Batch(columns))


def _is_empty(entry: Any) -> bool:
    return entry is None or (isinstance(entry, dict) and not entry) or not np.size(entry)
