"""`SampleCollector`: collects the steps of trajectories one by one, and presents them through views."""

# Rules: views-rollouts C3

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.columns import INFO, NUMBER, OUTCOME
from headrace.rollouts.lanes.presenter import Presenter
from headrace.rollouts.lanes.rows import LaneRows
from headrace.rollouts.pieces import SampleKey
from headrace.spec import Signature, check_array
from headrace.views import View
from headrace.views.arrays.rows import Segments
from headrace.views.promised import promised_specs, with_promised

_FIRST_LANES = 8


@dataclass(slots=True)
class _Trajectory:
    """Where the rows of a key are.

    Attributes:
        lane: the lane, which the trajectories of an agent share as long as its environment is not reset.
        first: the first row since the last cut, counted from the first of the lane.
        t: the step number at that row.
        last_is_known: whether the last step was followed by an observation.
        stop: the row after the last one; None: the newest of the lane.
    """

    lane: int
    first: int
    t: int = 0
    last_is_known: bool = True
    stop: int | None = None


class SampleCollector:
    """Collects the steps of the agents of one policy. Derive from it to change what is collected.

    A `RolloutWorker` makes one for each policy, with the policy's views, and calls only these four methods. Where none
    of them is overridden, the worker collects whole steps of all environments in their place. Views of other agents are
    added by the worker: they show what these agents did, also where a derived class changes what is collected.

    At a soft horizon, `add_first` is called for the next episode before `cut` ends the one before it, so a collector
    sees that the environment goes on: look-back and recurrent states read the rows of both.

    An exception of `cut` is raised by `sample` at the end of the fragment, which is dropped. `cut` is called again with
    `end=True`, and a trajectory that has not ended begins again with `add_first`.

    Args:
        views: the views, base columns included. Spaces of views tell columns before their first value.
        max_seq_len: the longest sequence; None: batches have no sequences.

    >>> collector = SampleCollector({"observation": View(), "last": View("action", shift=-1)})
    >>> key = SampleKey(env_index=0, episode_id=0, agent_id="agent0")
    >>> collector.add_first(key, np.array([5]), env_t=0)
    >>> collector.add_step(key, {"action": 3, "observation": np.array([6])}, env_t=1)
    >>> collector.add_step(key, {"action": 4, "observation": np.array([7])}, env_t=2)
    >>> batch = collector.cut(key, end=True)
    >>> batch["observation"].tolist(), batch["last"].tolist(), batch["env_t"].tolist()
    ([[5], [6]], [0, 3], [0, 1])
    """

    def __init__(self, views: Mapping[str, View], *, max_seq_len: int | None = None) -> None:
        self.views = views
        self.max_seq_len = max_seq_len
        self._tree = with_promised({**OUTCOME, "env_t": NUMBER}, promised_specs(views))
        self._learned: set[str] = set()
        # Columns that are shown under their own names, because no view has that name.
        self._added: list[str] = []
        self._trajectories: dict[SampleKey, _Trajectory] = {}
        # The newest trajectory of each agent of each environment, as long as it has not ended.
        self._running: dict[tuple[int, Any], _Trajectory] = {}
        self._free = list(range(_FIRST_LANES))
        self._rows = LaneRows(Signature(self._tree).columns, _FIRST_LANES)
        self._planned: dict[str, View] = {}
        self._presenter: Presenter | None = None

    def add_first(self, key: SampleKey, observation: Any, *, env_t: int) -> None:
        """Begins a trajectory; it goes on from one of the same agent and environment that has not ended.

        Args:
            key: has `env_index`, `episode_id` and `agent_id`.
            observation: a tree of arrays; kept as it is now.
            env_t: environment steps of the episode so far.
        """
        before = self._running.get((key.env_index, key.agent_id))
        if before is None:
            lane = self._begin_lane(observation)
        else:
            lane = before.lane
            before.stop = self._rows.place(lane)
        self._write(int(self._rows.newest[lane]), {"env_t": env_t})
        trajectory = _Trajectory(lane, self._rows.place(lane))
        self._trajectories[key] = self._running[key.env_index, key.agent_id] = trajectory

    def add_step(self, key: SampleKey, values: Mapping[str, Any], *, env_t: int) -> None:
        """Adds a completed step.

        Args:
            key: of the trajectory.
            values: "action", "reward", "terminated", "truncated", "observation" (the next one; absent where an agent
                ended without one), and the further columns and the states of the policy.
            env_t: environment steps of the episode at the next observation.

        Raises:
            SpecError: a value that the column of its first value, or of a view's space, cannot hold.
        """
        self._learn(values)
        trajectory = self._trajectories[key]
        step = self._checked({name: value for name, value in values.items() if name != "observation"})
        after = self._checked({name: value for name, value in values.items() if name == "observation"})
        self._write(int(self._rows.newest[trajectory.lane]), step)
        self._write(self._rows.append(trajectory.lane), {**after, "env_t": env_t})
        trajectory.last_is_known = bool(after)

    def input_dict(self, keys: Sequence[SampleKey]) -> dict[str, Any]:
        """Returns the causal views of the newest rows, one row for each key."""
        lanes = np.array([self._trajectories[key].lane for key in keys], np.int64)
        return self._plan().input_dict(self._rows, lanes)

    def cut(self, key: SampleKey, *, end: bool) -> SampleBatch | None:
        """Returns the rows since the last cut, with the views presented; None for no rows.

        Args:
            key: of the trajectory.
            end: whether the trajectory has ended, so that it is forgotten.
        """
        trajectory = self._trajectories[key]
        batch = self._present(key, trajectory)
        if end:
            del self._trajectories[key]
        if trajectory.stop is None:
            self._forget(key, trajectory, end=end)
        else:
            # The rows of its lane belong to the trajectory that goes on from it.
            trajectory.first = trajectory.stop
        return batch

    def _begin_lane(self, observation: Any) -> int:
        self._learn({"observation": observation})
        observed = self._checked({"observation": observation})
        if not self._free:
            self._free = list(range(self._rows.lanes, 2 * self._rows.lanes))
            self._rows.add_lanes(self._rows.lanes)
        lane = self._free.pop()
        self._write(self._rows.append(lane, begins=True), observed)
        return lane

    def _forget(self, key: SampleKey, trajectory: _Trajectory, *, end: bool) -> None:
        """Forgets the rows that no view reads any more; those of a trajectory that has ended."""
        look_back = -1 if end else self._plan().look_back
        if end:
            del self._running[key.env_index, key.agent_id]
            self._free.append(trajectory.lane)
        self._rows.forget_one(trajectory.lane, look_back)
        trajectory.first = self._rows.place(trajectory.lane)

    def _present(self, key: SampleKey, trajectory: _Trajectory) -> SampleBatch | None:
        rows, base = self._rows, int(self._rows.first_rows[trajectory.lane])
        stop = int(rows.newest[trajectory.lane]) if trajectory.stop is None else base + trajectory.stop
        shown = np.arange(base + trajectory.first, stop)
        if not shown.size:
            return None
        ends = np.full(shown.shape, stop)
        begins = np.full(shown.shape, rows.begins[trajectory.lane])
        places = np.arange(len(shown))
        segments = Segments(shown, begins, ends + trajectory.last_is_known, ends, places)
        columns = self._plan().present(rows.arrays, segments, None, None, rows.late_at(shown))
        columns |= {
            "episode_id": np.full(shown.shape, key.episode_id),
            "t": trajectory.t + places,
            "env_t": rows.arrays["env_t"][shown],
            "env_id": np.full(shown.shape, key.env_index),
        }
        trajectory.t += len(shown)
        longest = self.max_seq_len
        lengths = None
        if longest is not None:
            lengths = np.diff(np.arange(0, len(shown), longest), append=len(shown))
        return SampleBatch(columns, seq_lens=lengths, max_seq_len=longest)

    def _learn(self, values: Mapping[str, Any]) -> None:
        """Learns the specs of columns from their first values."""
        new = {name: value for name, value in values.items() if name not in self._learned}
        if new:
            self._learned.update(new)
            self._added += [name for name in new if name not in (*self.views, "observation", INFO)]
            for name, value in new.items():
                self._tree[name] = _learned_spec(self._tree.get(name), name, value)
            self._presenter = None
            self._rows.match(Signature(self._tree).columns, late=f"{INFO}/")

    def _checked(self, values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Returns values as columns that can hold them."""
        signature = Signature({name: self._tree[name] for name in values})
        return {
            column: check_array(leaf, signature.columns[column], column)
            for column, leaf in signature.flatten(values).items()
        }

    def _write(self, row: int, columns: Mapping[str, Any]) -> None:
        for column, value in columns.items():
            self._rows.arrays[column][row] = value

    def _plan(self) -> Presenter:
        """Returns the plan of the present views; a column of a policy is shown under its own name."""
        extras = {name: View() for name in self._added}
        views = {**extras, **self.views}
        if views != self._planned:
            # The new views may show other entries of it.
            self._tree.pop(INFO, None)
            self._tree = with_promised(self._tree, promised_specs(views))
            self._learned.discard(INFO)
            self._presenter = None
        if self._presenter is None:
            self._presenter = Presenter(views, self._tree, may_grow=True, shown=views.keys())
            self._planned = views
            self._rows.drop(f"{INFO}/", kept=self._presenter.columns)
            self._rows.match(self._presenter.columns, late=f"{INFO}/")
        return self._presenter


def _learned_spec(promised: Any, name: str, value: Any) -> Any:
    """Returns the tree of specs of a column after its first value; None is promised: it is that of the value.

    Views promise entries of the column. Their specs hold, and the value has the names of all entries.
    """
    if promised is not None and not isinstance(promised, dict):
        return promised
    spec = Signature.like({name: value}).tree[name]
    if promised is None or not isinstance(spec, dict):
        return spec
    return {key: _learned_spec(promised.get(key), key, value[key]) for key in spec}
