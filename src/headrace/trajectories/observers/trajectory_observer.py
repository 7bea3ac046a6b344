"""Fixed windows of frames, within one episode each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.checks import check_count
from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import ItemRule, Rule
from headrace.trajectories.observers.frame_reader import FIRST, Columns
from headrace.trajectories.observers.observer import Observer
from headrace.trajectories.windows import closing_windows, rows_in_no_window

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike


class AddTrajectoryObserver(Observer):
    """Writes windows of `sequence_length` frames, one every `stride_length`, that lie in one episode each.

    Call it with each frame of one environment. A frame is stored once for all windows and tables. It is a context
    manager: leaving it closes it, and an unfinished episode is written as if it ended there.

    The windows at the end of an episode of M frames (its boundary included; `trajectories.windows` lists them):

    | pad_end_of_episodes | tile_end_of_episodes | windows |
    |---|---|---|
    | False | None or False | DROP: only full ones; a shorter episode is dropped |
    | True | None or True | TILE: one from every stride on, filled up with invented boundary frames |
    | True | False | as DROP, but an episode shorter than a window becomes one that is filled up |

    Args:
        py_client: a `Replay`, or an object with its interface (`ReplayLike`); its signature is that of one frame, a
            `Trajectory`.
        table_name: one name, or several: every item is made in each of them.
        sequence_length: frames of a window, its invented ones included.
        stride_length: frames from the start of one window to that of the next.
        priority: of every item.
        pad_end_of_episodes, tile_end_of_episodes: see above.
        timeout: seconds that a call may wait when 1000 items of this observer wait for full tables; None waits for
            ever.

    Raises:
        SpecError: the signature is not that of a frame.
        KeyError: no such table.
        ValueError: a number out of range, a name twice, `tile_end_of_episodes` without `pad_end_of_episodes`.
        TypeError: an argument of another kind.

    >>> import headrace as hr
    >>> import numpy as np
    >>> def frame(t, step_type, next_step_type):
    ...     return hr.Trajectory(step_type, np.float32(t), 0, (), next_step_type, 1.0, 1.0)
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=100)
    >>> replay = hr.Replay(hr.Signature.like(frame(0, 0, 1)), [table])
    >>> with hr.AddTrajectoryObserver(replay, "t", sequence_length=2, pad_end_of_episodes=True) as observer:
    ...     [len(observer(frame(t, *kind))) for t, kind in enumerate([(0, 1), (1, 2), (2, 0)])]
    [0, 1, 2]
    >>> replay.sample("t", 1).data.observation.tolist()
    [[0.0, 1.0]]
    >>> replay.close()
    """

    def __init__(
        self,
        py_client: ReplayLike,
        table_name: str | Sequence[str],
        sequence_length: int,
        stride_length: int = 1,
        priority: float = 1,
        pad_end_of_episodes: bool = False,
        tile_end_of_episodes: bool | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(py_client, table_name, priority, timeout)
        self._length = check_count("sequence_length", sequence_length, 1)
        self._stride = check_count("stride_length", stride_length, 1)
        self._end, self._pads_short = _mode(pad_end_of_episodes, tile_end_of_episodes)
        self._num_alike = len(self._tables)
        self._writer = self._new_writer()

    def _item_rules(self) -> list[Rule]:
        return [
            ItemRule(table, self._length, self._stride, self._end, self._priority) for table in self._tables
        ]

    def _take(self, writer: WriterLike, columns: Columns, next_step_type: int) -> None:
        writer.append(columns)
        self._counters.steps_written += 1
        self._cached += 1
        if next_step_type == FIRST:
            self._end_run(writer)

    def _end_run(self, writer: WriterLike) -> str:
        if not self._cached:
            return ""
        pads = self._pads_short and self._cached < self._length
        cached, dropped = self._cached, 0 if pads else self._rows_in_no_window(self._end)
        writer.cut_open_lanes(EndOfEpisode.PAD if pads else self._end)
        self._run_ended(dropped)
        if not dropped:
            return ""
        return (
            f"{dropped} of {cached} frames of an unfinished episode are in no item; dropped. {self._advice()}"
        )

    def _drop_run(self, writer: WriterLike) -> None:
        if self._cached:
            writer.drop_open_lanes()
            self._run_ended(self._rows_in_no_window(EndOfEpisode.DROP))

    def _rows_in_no_window(self, end: EndOfEpisode) -> int:
        return rows_in_no_window(self._cached, self._length, self._stride, end)

    def _num_unwritten(self) -> int:
        closing = closing_windows(self._cached, self._length, self._stride, self._end)
        return max(self._rows_in_no_window(EndOfEpisode.DROP), self._cached - closing[0][0] if closing else 0)

    def _advice(self) -> str:
        """Names the settings that would keep every frame."""
        keeping = []
        if self._end is not EndOfEpisode.TILE:
            keeping.append("tile_end_of_episodes=True" if self._pads_short else "pad_end_of_episodes=True")
        if self._stride > self._length:
            keeping.append(f"a stride_length of at most sequence_length={self._length}")
        return f"To keep them: {' and '.join(keeping)}"

    def __repr__(self) -> str:
        return self._describe(
            sequence_length=self._length,
            stride_length=self._stride,
            pad_end_of_episodes=self._pads_short or self._end is EndOfEpisode.TILE,
            tile_end_of_episodes=self._end is EndOfEpisode.TILE,
        )


def _mode(pad: bool, tile: bool | None) -> tuple[EndOfEpisode, bool]:
    """Returns the end for the two settings, and whether an episode shorter than a window is padded nevertheless."""
    if not isinstance(pad, bool):
        raise TypeError(f"pad_end_of_episodes: expected True or False, got {pad!r}")
    if tile is not None and not isinstance(tile, bool):
        raise TypeError(f"tile_end_of_episodes: expected True, False or None, got {tile!r}")
    if tile and not pad:
        raise ValueError(
            "tile_end_of_episodes: expected None or False with pad_end_of_episodes=False, got True: the windows at the "
            "end are padded. Set pad_end_of_episodes=True"
        )
    if not pad:
        return EndOfEpisode.DROP, False
    return (EndOfEpisode.DROP, True) if tile is False else (EndOfEpisode.TILE, False)
