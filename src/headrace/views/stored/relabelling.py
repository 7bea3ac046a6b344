"""Hindsight in a sampling plan: goals are drawn under the lock and shown outside it; rewards follow after the copies.

The user's functions get copies, and run after the reading guard was closed, so they may take any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.store.copier import Copier
from headrace.store.gather import Pool
from headrace.store.layout import FINAL
from headrace.store.store import Store
from headrace.views.columns import METADATA, Columns
from headrace.views.goals import Hindsight
from headrace.views.located import Located, Relabelled, shape_of
from headrace.views.sources import Source, source_of
from headrace.views.stored.goal_rewards import (
    FLAG,
    RewardGroup,
    call,
    reward_groups,
    reward_spec,
    show_flags,
    show_rewards,
)
from headrace.views.stored.goal_rows import GoalRows
from headrace.views.view import View

# Columns that a goal decides, or that say how an episode ended.
_OF_REWARDS = {"reward", "terminated", "truncated"}
_NO_FLAGS = np.zeros(0, np.bool_)


class Relabelling:
    """The part of a plan that relabels goals.

    Args:
        store, pool: of the columns, and of the buffers for copies.
        rule: for replacing goals.
        sources: the views of the plan; views without hindsight are ignored.
        columns: of the store.

    Raises:
        SpecError: an unknown column; goals and achieved goals of different shape or dtype; a reward that is not a
            scalar.
    """

    def __init__(
        self,
        store: Store,
        pool: Pool,
        rule: Hindsight,
        sources: Sequence[Source],
        columns: Columns,
    ) -> None:
        signature = store.signature
        self._rule, self._steps = rule, store.arrays.steps
        self._goal = source_of(columns, "hindsight: goal", View(rule.goal))
        self._achieved = source_of(columns, "hindsight: achieved", View(rule.achieved))
        self._infos = [source_of(columns, f"hindsight: info {path!r}", View(path)) for path in rule.info]
        self._goal_rows = GoalRows(store.window, rule.strategy, self._achieved.window.is_post)
        _check_columns(self._goal, self._achieved, *self._infos)
        _check_alike(signature, self._goal, self._achieved)
        marked = [source for source in sources if source.view.hindsight is not None]
        leaf_of = {column: leaf for leaf, column in self._goal.columns.items()}
        self._targets = [
            (source, leaf, self._achieved.columns[leaf_of[column]])
            for source in marked
            for leaf, column in source.columns.items()
            if column in leaf_of
        ]
        self._shown = reward_groups(marked, rule)
        self._reward = reward_spec(signature, self._shown)
        self._shows_flags = any(shown.terminated or shown.discounts for shown in self._shown)
        self._columns = [list(self._achieved.columns.values())]
        for _ in self._shown:
            self._columns.append(list(self._achieved.columns.values()))
            self._columns.append([column for info in self._infos for column in info.columns.values()])
        self._copier = Copier(
            store, pool, [(number, column) for number, names in enumerate(self._columns) for column in names]
        )

    # ---- under the lock --------------------------------------------------------------------------------------------

    def locate(self, rows: NDArray[np.int64], located: Located, random: np.random.Generator) -> Relabelled:
        """Draws the goals, and finds the rows needed for their rewards. The store's lock must be held."""
        if rows.ndim == 1:
            runs, count = np.arange(len(rows)), len(rows)
        else:
            runs = np.empty(rows.shape, np.int64)
            count = self._goal_rows.number_runs(rows, runs)
        goals = np.empty(count, np.int64)
        flat = runs.reshape(-1)
        uniforms = random.random((2, count)).reshape(-1)
        self._goal_rows.draw(rows.reshape(-1), flat, uniforms, self._rule.ratio, goals)
        found = Relabelled(goals, flat, _NO_FLAGS)
        for shown in self._shown:
            acted = self._acted(shown, located)
            acted_runs = _widened(self._of_source(flat, shown.source, located), acted.shape[1])
            reached = np.empty(acted.size, np.int64)
            self._goal_rows.find_next(acted.reshape(-1), acted_runs, goals, reached)
            found.acted.append(acted)
            found.acted_runs.append(acted_runs)
            found.reached.append(reached)
        # A run with a reward that cannot be computed keeps its own goal.
        found.replaced = goals >= 0 if rows.ndim == 1 else (flat >= 0) & (goals[flat] >= 0)
        return found

    def _acted(self, shown: RewardGroup, located: Located) -> NDArray[np.int64]:
        """Returns the rows of the transitions whose rewards are shown, or -1: int64[M, W]."""
        if shown.sums is None:
            rows, is_shown = self._places(shown.source, located)
            acted = np.where(is_shown, rows, -1)
            return acted.reshape(-1, len(shown.source.window.offsets))
        counts = located.sums[shown.sums].n
        flat = located.rows.reshape(-1)
        acted = np.empty((len(flat), shown.sums[0]), np.int64)
        self._goal_rows.steps(flat, counts, acted)
        return acted

    @staticmethod
    def _of_source(values: NDArray[Any], source: Source, located: Located) -> NDArray[Any]:
        """Selects from `values`, `[M]`, the entries of the rows that a view presents."""
        every, shape = source.window.every, located.rows.shape
        return values if every == 1 or len(shape) == 1 else values.reshape(shape)[:, ::every].reshape(-1)

    def _places(self, source: Source, located: Located) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the rows that a view shows, and a mask of the places without fill."""
        if not source.is_plain:
            found = located.found[source.window]
            return found.rows, found.known > source.fill_threshold
        rows = located.rows.reshape(-1)
        is_shown = rows >= 0
        if source.window.is_post:
            is_shown &= self._steps[rows] & FINAL == 0
        return rows, is_shown

    # ---- outside the lock ------------------------------------------------------------------------------------------

    def present(self, located: Located, found: Relabelled, out: dict[str, Any]) -> None:
        """Shows the goals, and copies the arguments of the functions. A reading guard must be open."""
        sets = [found.goals]
        for acted, reached in zip(found.acted, found.reached, strict=True):
            sets += [reached, acted.reshape(-1)]
        copies = iter(self._copier.copy(sets))
        found.copies = [{column: next(copies) for column in names} for names in self._columns]
        for source, leaf, column in self._targets:
            values = out[source.name][leaf] if leaf else out[source.name]
            places, runs = self._replaced_places(source, located, found)
            leading = len(shape_of(source, located))
            values.reshape(-1, *values.shape[leading:])[places] = found.copies[0][column].take(runs, 0)

    def _replaced_places(
        self, source: Source, located: Located, found: Relabelled
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the places of a view that show a replaced goal, and the run of each."""
        width = len(source.window.offsets)
        replaced = _widened(self._of_source(found.replaced, source, located), width)
        if source.is_plain:
            is_all_shown = not (located.padded or source.window.is_post)
        else:
            is_all_shown = not located.found[source.window].missing
        if not is_all_shown:
            replaced = replaced & self._places(source, located)[1].reshape(-1)
        places = np.flatnonzero(replaced)
        runs = self._of_source(found.runs, source, located)
        return places, runs.take(places // width if width > 1 else places)

    def finish(self, found: Relabelled, out: dict[str, Any]) -> None:
        """Computes the rewards for the goals with the user's functions, and shows them. Needs no lock and no guard."""
        # The places of `acted` where a reward for another goal is shown: those after which a row was looked up, in runs
        # that were not given up later.
        chosen = [
            np.flatnonzero((reached >= 0) & (found.goals[runs] >= 0))
            for reached, runs in zip(found.reached, found.acted_runs, strict=True)
        ]
        count = sum(map(len, chosen))
        if not count:
            return
        arguments = self._arguments(found, chosen)
        rewards = flags = None
        if self._reward is not None:
            rewards = call("reward", self._rule.reward, arguments, self._reward, count)
        if self._shows_flags:
            assert self._rule.terminated is not None
            flags = call("terminated", self._rule.terminated, arguments, FLAG, count)
        begin = 0
        for shown, acted, where in zip(self._shown, found.acted, chosen, strict=True):
            part = slice(begin, begin + len(where))
            begin += len(where)
            if rewards is not None:
                show_rewards(shown, acted.shape, where, rewards[part], out)
            if flags is not None:
                show_flags(shown, where, flags[part], out)

    def _arguments(
        self, found: Relabelled, chosen: list[NDArray[np.int64]]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Returns the arguments of the functions, `[K, ...]` each, for the K transitions of all views in order."""

        def together(source: Source, number: int) -> Any:
            leaves = {}
            for leaf, column in source.columns.items():
                parts = [
                    found.copies[1 + 2 * place + number][column].take(where, 0)
                    for place, where in enumerate(chosen)
                ]
                leaves[leaf] = parts[0] if len(parts) == 1 else np.concatenate(parts)
            return leaves[""] if source.build is None else source.build(leaves)

        runs = np.concatenate([runs[where] for runs, where in zip(found.acted_runs, chosen, strict=True)])
        goals = {
            leaf: found.copies[0][column].take(runs, 0) for leaf, column in self._achieved.columns.items()
        }
        goal = goals[""] if self._goal.build is None else self._goal.build(goals)
        info = {path: together(source, 1) for path, source in zip(self._rule.info, self._infos, strict=True)}
        return together(self._achieved, 0), goal, info


def _widened(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Repeats the value of each row for each place of its window."""
    return values if width == 1 else np.repeat(values, width)


def _check_columns(goal: Source, *others: Source) -> None:
    """Refuses views that no stored column provides, and goals among the columns that goals decide.

    Raises:
        SpecError: a view is refused; the message has its name.
    """
    for source in (goal, *others):
        if any(column in METADATA for column in source.columns.values()):
            raise SpecError(f"{source.name}: expected columns of the signature, got {source.view.data_col!r}")
    if not _OF_REWARDS.isdisjoint(goal.columns.values()):
        raise SpecError(f"{goal.name}: expected a column of goals, got {goal.view.data_col!r}")


def _check_alike(signature: Signature, goal: Source, achieved: Source) -> None:
    """Refuses achieved goals whose shape or dtype differs from that of the goals."""

    def specs(source: Source) -> Mapping[str, ArraySpec]:
        return {leaf: signature.columns[column] for leaf, column in source.columns.items()}

    if specs(goal) != specs(achieved):
        raise SpecError(
            f"hindsight: expected goals {goal.view.data_col!r} that are alike what is achieved in "
            f"{achieved.view.data_col!r}, {specs(achieved)}, got {specs(goal)}"
        )
