"""From a finished rollout to rows of a replay, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.collectors.rollout import RolloutBuffer
from headrace.envs.protocol import Autoreset
from headrace.errors import SpecError
from headrace.replay.rules import ItemRule
from headrace.spec import Signature


class ReplayRows:
    """Writes rollouts into a replay, lane by lane, with a final row at every end of an episode.

    Args:
        replay: in this process.
        buffer: whose rollouts are written.
        rules: which items they become.
        autoreset: what the environments do when they end.

    Raises:
        SpecError: a column that the environments or the policy do not give, or of another shape or dtype.
    """

    def __init__(
        self, replay: Any, buffer: RolloutBuffer, rules: Sequence[ItemRule], autoreset: Autoreset
    ) -> None:
        check_columns(replay.signature, buffer.signature)
        self._names = list(replay.signature.columns)
        self._signature: Signature = replay.signature
        self._observed = [name for name in buffer.observed if name in replay.signature.columns]
        self._in_lane = autoreset is Autoreset.NEXT_STEP
        self._single = buffer.num_envs == 1
        self._writer = replay.writer(lanes=buffer.num_envs, items=rules)

    def write(self, buffer: RolloutBuffer) -> None:
        """Append every step of a full rollout."""
        finals = buffer.finals_by_step()
        for step in range(buffer.steps):
            row = {name: buffer.columns[name][step] for name in self._names}
            self._writer.policy_version = int(buffer.versions[step])
            masked = buffer.masked[step]
            if masked.any():
                # The reset step of an environment that resets itself: this row is the final row of the old episode.
                self._append_marked(row, masked)
            else:
                self._append(row)
            if step in finals:
                copies, places = finals[step]
                values = {name: buffer.finals[name][places] for name in self._observed}
                self._writer.end_lanes(copies, values)

    def _append(self, row: dict[str, Any]) -> None:
        if self._single:
            row = {name: value[0] for name, value in row.items()}
        self._writer.append(self._signature.unflatten(row))

    def _append_marked(self, row: dict[str, Any], masked: np.ndarray[Any, Any]) -> None:
        if self._single:
            given = {name: row[name] for name in self._observed}
            self._writer.end_lanes(np.zeros(1, np.int64), given)
        else:
            idle = np.zeros(len(masked), np.bool_)
            self._writer.append_marked(self._signature.unflatten(row), masked, idle, self._observed)

    def cut(self) -> None:
        """All copies were reset before their episodes ended."""
        self._writer.cut_open_lanes()

    def close(self, timeout: float | None) -> None:
        """Flush and close the writer."""
        self._writer.close(timeout)


def check_columns(wanted: Signature, given: Signature) -> None:
    """Refuse a replay whose columns a collector does not fill, or fills with something else (collectors CF1).

    Raises:
        SpecError: with the columns.
    """
    base = [
        name
        for name in given.columns
        if name.split("/")[0] in ("observation", "action", "reward", "terminated", "truncated")
    ]
    missing = [name for name in base if name not in wanted.columns]
    extra = [name for name in wanted.columns if name not in given.columns]
    if missing or extra:
        raise SpecError(
            f"replay_buffer: expected the columns {', '.join(given.columns)}; "
            f"missing {missing or 'none'}, unknown {extra or 'none'} (hr.collectors.signature makes the right one)"
        )
    for name, spec in wanted.columns.items():
        if spec != given.columns[name]:
            raise SpecError(f"replay_buffer: {name}: expected {given.columns[name]}, got {spec}")
