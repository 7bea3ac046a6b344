"""Views of other agents: their values at the time of a row, found by environment step."""

# Rules: views M9

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.store.layout import EDGE, KNOWN, UNKNOWN
from headrace.views.causality import check_causal
from headrace.views.columns import Columns
from headrace.views.sources import Source, source_of
from headrace.views.view import View

Times = NDArray[np.int64]


class OtherRows(NamedTuple):
    """The trajectory of one agent beside each row that is presented.

    Attributes:
        arrays: by column; with a row for each row number.
        env_t: int64[...], the environment step of each of their rows; rises within a trajectory.
        begins: int64[M], the first row of the agent's trajectory; the same as the end where it has none here.
        pre_ends: int64[M], the row after its last known value of columns that are known before acting.
        post_ends: int64[M], the row after its last known value of the other columns.
    """

    arrays: Mapping[str, NDArray[Any]]
    env_t: Times
    begins: NDArray[np.int64]
    pre_ends: NDArray[np.int64]
    post_ends: NDArray[np.int64]

    def kept(self, kept: NDArray[np.bool_]) -> OtherRows:
        """Returns the trajectories beside some of the rows."""
        return self._replace(
            begins=self.begins[kept], pre_ends=self.pre_ends[kept], post_ends=self.post_ends[kept]
        )


class Beside(NamedTuple):
    """The other agents beside the rows that are presented.

    Attributes:
        env_t: int64[M], the environment step of each row.
        agents: maps an agent's id to its trajectories. Several are for an agent that different policies act for; at
            each row one of them has rows at most.
    """

    env_t: Times
    agents: Mapping[Any, Sequence[OtherRows]]


@dataclass(frozen=True)
class AgentView:
    """One view of other agents.

    Attributes:
        name: of the view.
        view: the view.
        source: the columns of the agents, which all have the same.
        specs: their specs.
    """

    name: str
    view: View
    source: Source
    specs: Mapping[str, ArraySpec]

    @property
    def agents(self) -> tuple[Any, ...]:
        """The ids of the agents."""
        return tuple(self.view.agent) if self.has_axis else (self.view.agent,)

    @property
    def has_axis(self) -> bool:
        """Whether there is an axis for the agents."""
        return isinstance(self.view.agent, list | tuple)

    def present(self, beside: Beside, places: NDArray[np.int64], out: dict[str, Any]) -> None:
        """Writes the view, `[M, A, W, ...]` without the axes that it has not, and its mask.

        Args:
            beside: the other agents.
            places: int64[M], number of each row in what is presented, from which `every` counts.
            out: written.
        """
        kept = places % self.view.every == 0
        shown = [self._present_agent(beside, agent, kept) for agent in self.agents]
        leading = (int(kept.sum()), *self._axes())

        def merged(parts: list[NDArray[Any]], row: tuple[int, ...]) -> NDArray[Any]:
            return np.stack(parts, axis=1).reshape(*leading, *row)

        leaves = {
            leaf: merged([part[leaf] for part, _ in shown], spec.shape) for leaf, spec in self.specs.items()
        }
        build = self.source.build
        out[self.name] = leaves[""] if build is None else build(leaves)
        if self.view.mask:
            out[f"{self.name}_mask"] = merged([mask for _, mask in shown], ())

    def _axes(self) -> tuple[int, ...]:
        agents = (len(self.agents),) if self.has_axis else ()
        return (*agents, len(self.view.offsets)) if self.view.has_window else agents

    def _present_agent(
        self, beside: Beside, agent: Any, kept: NDArray[np.bool_]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Returns the leaves of one agent's values, `[M, W, ...]`, and bool[M, W], True where they are data."""
        shape = (int(kept.sum()), len(self.view.offsets))
        leaves = {
            leaf: np.broadcast_to(self.source.fills[leaf], (*shape, *spec.shape)).copy()
            for leaf, spec in self.specs.items()
        }
        mask = np.zeros(shape, np.bool_)
        for others in beside.agents.get(agent, ()):
            rows, known = self._find(others.kept(kept), beside.env_t[kept])
            is_shown = known > self.source.fill_threshold
            for leaf, column in self.source.columns.items():
                leaves[leaf][is_shown] = others.arrays[column][rows[is_shown]]
            mask |= known == KNOWN
        return leaves, mask

    def _find(self, others: OtherRows, env_t: Times) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Returns the rows at the offsets, int64[M, W], and how they are known."""
        is_post = self.source.window.is_post
        begins, ends = others.begins[:, None], (others.post_ends if is_post else others.pre_ends)[:, None]
        wanted = env_t[:, None] + np.array(self.view.offsets)
        rows = _latest(others.env_t, begins, ends, wanted)
        known = np.where(rows >= begins, EDGE, UNKNOWN).astype(np.uint8)
        known[(known == EDGE) & (others.env_t.take(rows, mode="clip") == wanted)] = KNOWN
        # Before the agent's first value: that value, if this row may know it.
        newest = env_t[:, None] + max(-1 if is_post else 0, self.view.furthest)
        early = (known == UNKNOWN) & (ends > begins)
        early &= others.env_t.take(np.broadcast_to(begins, rows.shape), mode="clip") <= newest
        known[early] = EDGE
        return np.where(early, begins, rows), known


def agent_view(name: str, view: View, columns_of: Mapping[Any, Columns]) -> AgentView:
    """Looks up the columns of a view of other agents.

    Args:
        name: of the view.
        view: the view.
        columns_of: maps the id of each agent to its columns.

    Raises:
        SpecError: an unknown agent or column; agents of a list whose columns differ.
        ValueError: a view for acting that shows what is not known yet, or an empty list of agents.
    """
    ids = list(view.agent) if isinstance(view.agent, list | tuple) else [view.agent]
    if not ids:
        raise ValueError(f"view {name!r}: agent: expected at least one id, got an empty list")
    found: dict[Any, Source] = {}
    specs: dict[Any, dict[str, ArraySpec]] = {}
    for agent in ids:
        if agent not in columns_of:
            known = ", ".join(map(repr, columns_of))
            raise SpecError(f"view {name!r}: agent: no agent {agent!r}; there are {known}")
        columns = columns_of[agent]
        source = found[agent] = source_of(
            columns, name, view.replace(agent=None, used_for_compute_actions=None)
        )
        check_causal(name, view, is_pre=not source.window.is_post)
        specs[agent] = {leaf: columns.spec_of(column) for leaf, column in source.columns.items()}
    first = ids[0]
    for agent, other in specs.items():
        if other != specs[first]:
            raise SpecError(
                f"view {name!r}: agent: expected agents with the same columns, got {specs[first]} of {first!r} and "
                f"{other} of {agent!r}"
            )
    return AgentView(name, view, found[first], specs[first])


def _latest(
    env_t: Times, begins: NDArray[np.int64], ends: NDArray[np.int64], wanted: Times
) -> NDArray[np.int64]:
    """Returns the last row of each trajectory that is not later than wanted; the row before it if all are later.

    It halves all intervals at the same time.
    """
    low, high = np.broadcast_to(begins - 1, wanted.shape).copy(), np.broadcast_to(ends, wanted.shape).copy()
    while True:
        is_open = high - low > 1
        if not is_open.any():
            return low
        middle = (low + high) // 2
        is_early = np.zeros(wanted.shape, np.bool_)
        is_early[is_open] = env_t[middle[is_open]] <= wanted[is_open]
        low = np.where(is_early, middle, low)
        high = np.where(is_open & ~is_early, middle, high)
