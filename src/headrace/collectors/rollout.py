"""A rollout on its way: T steps of n copies, written in place by the loop, and put together as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batch import Batch, as_trees
from headrace.envs.protocol import Indices, StepResult
from headrace.spec import ArraySpec, Signature
from headrace.store.arena import Arena, ArenaLayout

Columns = Mapping[str, NDArray[Any]]


def rollout_signature(observed: Signature, acted: Signature, extras: Mapping[str, ArraySpec]) -> Signature:
    """The columns of one step as a collector stores them."""
    tree = dict(observed.tree)
    tree["action"] = acted.tree["action"]
    tree["reward"] = ArraySpec((), np.float32)
    tree["terminated"] = ArraySpec((), np.bool_)
    tree["truncated"] = ArraySpec((), np.bool_)
    tree.update(extras)
    return Signature(tree)


class RolloutBuffer:
    """Room for one rollout in an arena: T + 1 rows of observations, T of the rest, and final observations beside them.

    Args:
        arena: whose memory is used from byte `offset` on.
        signature: of one step.
        observed: names of the columns that an observation has.
        steps, num_envs: T and n.
        offset: where it begins.
    """

    def __init__(
        self,
        arena: Arena,
        signature: Signature,
        observed: frozenset[str],
        steps: int,
        num_envs: int,
        offset: int = 0,
    ) -> None:
        self.signature = signature
        self.observed = observed
        self.steps, self.num_envs = steps, num_envs
        layout = rollout_layout(signature, observed, steps, num_envs, offset)
        arrays = layout.arrays(arena)
        self.columns: dict[str, NDArray[Any]] = {name: arrays[name] for name in signature.columns}
        self.finals: dict[str, NDArray[Any]] = {name: arrays[f"final:{name}"] for name in observed}
        self._final_places: NDArray[np.int64] = arrays["final_places"]  # type: ignore[assignment]
        self.versions: NDArray[np.int64] = arrays["versions"]  # type: ignore[assignment]
        self.masked: NDArray[np.bool_] = arrays["masked"]  # type: ignore[assignment]
        self.restarted: NDArray[np.bool_] = arrays["restarted"]  # type: ignore[assignment]
        # Views of each row, made once: the loop asks for them at every step.
        self.rows = [{name: self.columns[name][step] for name in observed} for step in range(steps + 1)]
        self.step = self.num_finals = 0

    def begin(self, first: Columns) -> None:
        """Make it empty; these are the observations of its first step."""
        self.step = self.num_finals = 0
        self.restarted[:] = False
        self.masked[:] = False
        for name, row in self.rows[0].items():
            row[...] = first[name]

    @property
    def row(self) -> Columns:
        """The observations of the step that comes next."""
        return self.rows[self.step]

    @property
    def next_row(self) -> Columns:
        """Where the observations that follow are to be written."""
        return self.rows[self.step + 1]

    @property
    def is_full(self) -> bool:
        """Whether all steps are recorded."""
        return self.step == self.steps

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, finals: Indices, version: int
    ) -> None:
        """Write what was done at this step and what followed; see `Sink.record`."""
        step = self.step
        columns = self.columns
        for name, value in actions.items():
            columns[name][step] = value
        for name, value in extras.items():
            columns[name][step] = value
        columns["reward"][step] = result.reward
        columns["terminated"][step] = result.terminated
        columns["truncated"][step] = result.truncated
        self.versions[step] = version
        if result.reset_steps.size:
            self.masked[step, result.reset_steps] = True
        if finals.size:
            self._keep_finals(result.last_observation, finals, step)
        self.step = step + 1

    def cut(self) -> None:
        """All copies are about to be reset before the next step: keep the observations that followed the last one."""
        last = self.step - 1
        self.restarted[self.step] = True
        if last >= 0:
            steps, copies = np.divmod(self._final_places[: self.num_finals], self.num_envs)
            open_copies = np.setdiff1d(np.arange(self.num_envs), copies[steps == last])
            self._keep_finals(self.row, open_copies, last)

    def _keep_finals(self, observations: Columns, copies: Indices, step: int) -> None:
        start = self.num_finals
        stop = start + len(copies)
        for name, final in self.finals.items():
            final[start:stop] = observations[name][copies]
        self._final_places[start:stop] = step * self.num_envs + copies
        self.num_finals = stop

    def finals_by_step(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Step to the copies that ended in it and where their final observations stand in `finals`."""
        places = self._final_places[: self.num_finals]
        steps, copies = np.divmod(places, self.num_envs)
        ends: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for step in np.unique(steps):
            here = np.flatnonzero(steps == step)
            ends[int(step)] = (copies[here], here)
        return ends

    def copy_last(self, out: Columns) -> None:
        """Write the observations that the rollout ended with into `out`."""
        for name, row in self.rows[self.steps].items():
            out[name][...] = row

    @property
    def frames(self) -> int:
        """Transitions recorded so far."""
        return self.step * self.num_envs - int(np.count_nonzero(self.masked[: self.step]))

    def batch(self, ledger: EpisodeLedger, worker_idx: int | None = None) -> Batch:
        """A copy of everything as a batch `[n, T, ...]`; next observations are put together here, once."""
        columns = {name: by_env(column[: self.steps]) for name, column in self.columns.items()}
        following = {name: by_env(self.columns[name][1:]) for name in self.observed}
        step, env = np.divmod(self._final_places[: self.num_finals], self.num_envs)
        for name, final in self.finals.items():
            following[name][env, step] = final[: self.num_finals]
        ended = self.columns["terminated"][: self.steps] | self.columns["truncated"][: self.steps]
        starts = ledger.starts(ended, self.masked, self.restarted)
        return make_batch(
            self.signature, columns, following, self.masked, starts, self.versions, ledger, worker_idx
        )


def make_batch(
    signature: Signature,
    columns: dict[str, NDArray[Any]],
    following: dict[str, NDArray[Any]],
    masked: NDArray[np.bool_],
    starts: NDArray[np.bool_],
    versions: NDArray[np.int64],
    ledger: EpisodeLedger,
    worker_idx: int | None,
) -> Batch:
    """A batch of columns `[n, T, ...]`, which it keeps.

    Args:
        signature: of one step.
        columns, following: what was seen and done, and the observations that followed.
        masked: bool[T, n], True where no transition was taken.
        starts: bool[T, n], True where a trajectory begins.
        versions: int64[T].
        ledger: numbers the trajectories.
        worker_idx: who collected.
    """
    ended = (columns["terminated"] | columns["truncated"]).T
    ids, positions = ledger.number(starts, ended, masked, columns["reward"].T)
    mask = ~by_env(masked)
    stamps = np.repeat(versions[None, :], len(mask), axis=0)
    if not mask.all():
        for column in (*columns.values(), *following.values(), stamps):
            column[~mask] = 0
    trees = as_trees(signature, columns)
    after = Signature(
        {name: tree for name, tree in signature.tree.items() if _top(name, frozenset(following))}
    )
    ordered = {name: trees[name] for name in ("observation", "action", "reward", "terminated", "truncated")}
    ordered["next_observation"] = as_trees(after, following)["observation"]
    ordered["episode_id"], ordered["t"] = by_env(ids), by_env(positions)
    ordered["policy_version"] = stamps
    ordered["mask"] = mask
    ordered.update({name: tree for name, tree in trees.items() if name not in ordered})
    return Batch(ordered, worker_idx)


def _top(name: str, observed: frozenset[str]) -> bool:
    return any(column == name or column.startswith(f"{name}/") for column in observed)


def by_env(column: NDArray[Any]) -> NDArray[Any]:
    """A copy of `[T, n, ...]` as `[n, T, ...]`."""
    return column.swapaxes(0, 1).copy(order="C")


def rollout_layout(
    signature: Signature, observed: frozenset[str], steps: int, num_envs: int, offset: int = 0
) -> ArenaLayout:
    """Where the arrays of a `RolloutBuffer` lie. Final observations have room for an end at every step."""
    layout = ArenaLayout(offset)
    for name, spec in signature.columns.items():
        layout.add(name, (steps + 1, num_envs, *spec.shape), spec.dtype)
    for name in sorted(observed):  # The order of a set differs from process to process.
        layout.add(
            f"final:{name}", (steps * num_envs, *signature.columns[name].shape), signature.columns[name].dtype
        )
    layout.add("final_places", (steps * num_envs,), np.int64)
    layout.add("versions", (steps,), np.int64)
    layout.add("restarted", (steps,), np.bool_)
    layout.add("masked", (steps, num_envs), np.bool_)
    return layout


class EpisodeLedger:
    """Numbers the trajectories of n copies over batch borders, and adds up their returns.

    Ids count the starts: in the order of steps, and of copies within a step.

    >>> ledger = EpisodeLedger(1)
    >>> ends = np.array([[False], [True], [False]])
    >>> none = np.zeros((3, 1), bool)
    >>> starts = ledger.starts(ends, none, none[:, 0])
    >>> ids, positions = ledger.number(starts, ends, none, np.ones((3, 1), np.float32))
    >>> ids[:, 0].tolist(), positions[:, 0].tolist(), ledger.finished
    ([0, 0, 1], [0, 1, 0], [(2.0, 2)])
    """

    # Rules: collectors CB5

    def __init__(self, num_envs: int) -> None:
        self._next_id = 0
        self._ids = np.full(num_envs, -1, np.int64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._starts = np.ones(num_envs, np.bool_)
        self.finished: list[tuple[float, int]] = []

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Number nothing where an exception ends the block: the rollout in it is dropped, or numbered again."""
        before = vars(self) | {"finished": list(self.finished)}
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def take_finished(self) -> list[tuple[float, int]]:
        """Return and length of the trajectories that ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def restart(self, copies: NDArray[np.bool_]) -> None:
        """These copies were reset: their next transition begins a trajectory."""
        self._starts[copies] = True

    def number(
        self,
        starts: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        masked: NDArray[np.bool_],
        rewards: NDArray[np.floating],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The trajectory id and the index in it of each step; -1 and 0 where masked.

        Args:
            starts, ended, masked: bool[T, n].
            rewards: [T, n].
        """
        steps, num_envs = ended.shape
        flat = starts.reshape(-1)
        ids = np.where(flat, self._next_id + np.cumsum(flat) - 1, -1).reshape(steps, num_envs)
        self._next_id += int(flat.sum())
        ids = np.maximum(np.maximum.accumulate(ids, axis=0), self._ids)
        at = np.arange(steps)[:, None]
        # The step at which the trajectory began; before this rollout for those that go on.
        begin = np.maximum.accumulate(np.where(starts, at, -1), axis=0)
        positions = np.where(begin >= 0, at - begin, at + self._lengths)
        self._close(ended, begin, positions, rewards)
        self._ids = ids[-1].copy()
        if masked.any():
            ids[masked] = -1
            positions[masked] = 0
        return ids, positions

    def starts(
        self, ended: NDArray[np.bool_], masked: NDArray[np.bool_], restarted: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Where a trajectory begins, bool[T, n]: at the first real step after an end or a reset.

        Args:
            ended, masked: bool[T, n].
            restarted: bool[T], True where all copies were reset just before.
        """
        if not masked.any():
            starts = np.empty_like(ended)
            starts[0] = self._starts
            starts[1:] = ended[:-1]
            starts[restarted] = True
            self._starts = ended[-1].copy()
            return starts
        starts = np.zeros_like(ended)
        waiting = self._starts.copy()
        for step in range(len(ended)):
            starts[step] = (waiting | restarted[step]) & ~masked[step]
            waiting = np.where(masked[step], waiting, ended[step])
        self._starts = waiting
        return starts

    def _close(
        self,
        ended: NDArray[np.bool_],
        begin: NDArray[np.int64],
        positions: NDArray[np.int64],
        rewards: NDArray[np.floating],
    ) -> None:
        """Note the returns and lengths of what ended, and carry over what goes on."""
        sums = np.zeros((len(ended) + 1, ended.shape[1]))
        np.cumsum(rewards, axis=0, dtype=np.float64, out=sums[1:])
        for step, env in zip(*np.nonzero(ended), strict=True):
            first = begin[step, env]
            carried = self._returns[env] if first < 0 else 0.0
            self.finished.append(
                (
                    float(sums[step + 1, env] - sums[max(first, 0), env] + carried),
                    int(positions[step, env]) + 1,
                )
            )
        last = begin[-1]
        envs = np.arange(ended.shape[1])
        self._returns = np.where(last < 0, self._returns, 0.0) + sums[-1] - sums[np.maximum(last, 0), envs]
        self._lengths = positions[-1] + 1
