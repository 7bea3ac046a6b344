"""Step writers with one rule: sequences, whole episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import ItemRule, PriorityFunction
from headrace.trajectories.rules.step_rules import EpisodeRule
from headrace.trajectories.writers.step_writer import StepWriter

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike


class SequenceWriter(StepWriter):
    """Makes items of windows of `length` rows, one every `period` rows.

    Args:
        replay: see `StepWriter`.
        table: the table's name.
        length: rows of a window; an episode of T transitions has T + 1, the final row included.
        period: rows from the start of one window to the next.
        end: treatment of the rows at the end of an episode that fill no window.
        priority: of every item; or a function of its rows. None: `Table.new_priority`.
        lanes, autoreset, env, timeout: see `StepWriter`.

    >>> import headrace as hr
    >>> import numpy as np
    >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1)
    >>> replay = hr.Replay(hr.Signature.like(step), [table])
    >>> with hr.SequenceWriter(replay, "t", length=3, period=2, end=hr.EndOfEpisode.LAST) as writer:
    ...     writer.add_first(np.float32(0))
    ...     for t in range(5):
    ...         keys = writer.add(t, 1.0, t == 4, False, np.float32(t + 1))
    >>> replay.sample("t", 3).data["observation"].tolist()
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0], [3.0, 4.0, 5.0]]
    >>> replay.close()
    """

    def __init__(
        self,
        replay: ReplayLike,
        table: str,
        length: int,
        period: int,
        end: EndOfEpisode,
        *,
        priority: float | PriorityFunction | None = None,
        lanes: int | None = None,
        autoreset: Any = None,
        env: Any = None,
        timeout: float | None = None,
    ) -> None:
        rule = ItemRule(table, length, period, end, priority)
        super().__init__(replay, [rule], lanes=lanes, autoreset=autoreset, env=env, timeout=timeout)


class EpisodeWriter(StepWriter):
    """Makes one item of the T + 1 rows of each episode when it ends.

    Args:
        replay: see `StepWriter`.
        table: the table's name.
        max_length: largest number of transitions; an environment's time limit is the right number.
        overflow: treatment of a longer episode: "raise", "drop" or "split" (`EpisodeRule`).
        priority: of every item; or a function of its rows. None: `Table.new_priority`.
        lanes, autoreset, env, timeout: see `StepWriter`.

    >>> import headrace as hr
    >>> import numpy as np
    >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9)
    >>> replay = hr.Replay(hr.Signature.like(step), [table])
    >>> with hr.EpisodeWriter(replay, "t", max_length=200) as writer:
    ...     writer.add_first(np.float32(0))
    ...     for t in range(2):
    ...         keys = writer.add(t, 1.0, t == 1, False, np.float32(t + 1))
    >>> replay.sample("t", 1).data["observation"].tolist()
    [[0.0, 1.0, 2.0]]
    >>> replay.close()
    """

    def __init__(
        self,
        replay: ReplayLike,
        table: str,
        max_length: int,
        *,
        overflow: str = "raise",
        priority: float | PriorityFunction | None = None,
        lanes: int | None = None,
        autoreset: Any = None,
        env: Any = None,
        timeout: float | None = None,
    ) -> None:
        rule = EpisodeRule(table, max_length, overflow, priority)
        super().__init__(replay, [rule], lanes=lanes, autoreset=autoreset, env=env, timeout=timeout)
