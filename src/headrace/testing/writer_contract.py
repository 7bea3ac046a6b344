"""The rules of writers of rows, through their interface alone: of this process, on disk, of a client, and yours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.errors import Closed, DeadlineExceeded, SpecError, StoreFull
from headrace.replay.intake.selection import Selection
from headrace.replay.interface import ReplayLike, WriterLike
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.spec import Signature
from headrace.tables.description.rules import ItemRule, PatternWindow, Rule
from headrace.tables.description.selectors import Fifo
from headrace.tables.description.table import Table
from headrace.testing.pytest_hypothesis import given_contract, hypothesis, pytest, strategies
from headrace.testing.replay_contract import assert_has_interface
from headrace.trajectories.windows import windows
from headrace.views import View

_NUMBERS = Signature.like({"n": 0, "x": np.zeros(2, np.float32)})
_NO_LANES = np.zeros(0, np.int64)
_ACROSS = 10.0  # Seconds after which a call that should have returned hangs.


class WriterContract(ABC):
    """Tests of a replay's writers. Derive from it and say how the replay is made; pytest does the rest.

    >>> from headrace.replay import Replay
    >>> class TestMine(WriterContract):
    ...     def make(self, signature, tables, capacity=None):
    ...         return Replay(signature, tables, capacity=capacity)
    >>> TestMine().test_a_step_that_does_not_fit_is_not_stored()
    """

    @abstractmethod
    def make(self, signature: Signature, tables: Sequence[Table], capacity: int | None = None) -> ReplayLike:
        """Returns a fresh replay, which stores at least `capacity` steps."""

    def new(self, *tables: Table, capacity: int | None = None) -> ReplayLike:
        """Returns a replay of the steps `{"n": int, "x": float32[2]}`; without tables it has one, "t"."""
        return self.make(_NUMBERS, tables or (_table(),), capacity)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def test_it_has_the_interface(self) -> None:
        """All members are there, and calls take the same arguments."""
        with self.new() as replay, replay.writer(lanes=3) as writer:
            rows = replay.row_writer(lanes=3)
            assert_has_interface(WriterLike, rows)
            assert (rows.lanes, writer.lanes, rows.pending, rows.policy_version) == (3, 3, 0, 0)
            rows.policy_version = 7
            assert rows.policy_version == 7
            rows.close()

    def test_a_step_that_does_not_fit_is_not_stored(self) -> None:
        """The error says where; the writer goes on."""
        # Rules: replay I7
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 1)])
            writer.append(_step(0))
            for bad in ({"n": 1}, {"n": 1.5, "x": np.zeros(2)}, {"n": 1, "x": np.zeros(3)}):
                with pytest.raises(SpecError, match="n|x"):
                    writer.append(bad)
            writer.append(_step(1))
            writer.close()
            assert _items(replay) == [[0], [1]]

    def test_checked_steps_are_stored_as_others(self) -> None:
        """In whatever way a step is written: one lane has no axis, several have one."""
        for lanes in (1, 3):
            with self.new() as replay:
                writer = replay.row_writer(lanes=lanes, items=[ItemRule("t", 1)])
                for n in range(4):
                    step = _lane_steps(n, lanes) if lanes > 1 else _checked(n)
                    before = writer.steps
                    (writer.append_checked if n % 2 else writer.append)(step)
                    assert writer.steps > before
                writer.make_room()
                writer.append_ends(_lane_steps(4, lanes), np.zeros(lanes, np.bool_), _NO_LANES, {})
                writer.close()
                assert _items(replay) == [[lane * 100 + n] for n in range(5) for lane in range(lanes)]

    def test_staged_arrays_are_of_the_next_step(self) -> None:
        """Values that are put into `staged` are stored as if they were copied, step after step."""
        with self.new() as replay:
            writer = replay.row_writer(lanes=2, items=[ItemRule("t", 1)])
            for n in range(300):
                step = _lane_steps(n, 2)
                for name, array in writer.staged.items():
                    array[...] = step[name]
                    step[name] = array
                writer.append_checked(step)
            writer.close()
            assert _items(replay) == [[lane * 100 + n] for n in range(300) for lane in range(2)]

    def test_a_full_store_loses_nothing(self) -> None:
        """The step is not stored, and the writer goes on when items leave."""
        # Rules: replay C2, C3
        with self.new(capacity=100) as replay:
            writer = replay.row_writer(items=[ItemRule("t", 1)])
            stored = 0
            with pytest.raises(StoreFull):
                for n in range(1000):
                    writer.append(_step(n))
                    stored += 1
            before = writer.steps
            with pytest.raises(StoreFull):
                writer.append_checked(_checked(-1))
            assert writer.steps == before
            assert stored >= 100
            assert _items(replay) == [[n] for n in range(stored)]
            replay.reset("t")
            writer.append(_step(-2))
            writer.close()
            assert _items(replay) == [[-2]]

    @hypothesis.settings(given_contract, max_examples=10)
    @hypothesis.given(
        strategies.lists(strategies.integers(1, 60), min_size=1, max_size=5), strategies.booleans()
    )
    def test_many_rows_are_appended_as_one_by_one(self, episodes: list[int], ends: bool) -> None:
        """They make the same items, and are stored from call to call until the last one is."""
        rows = np.arange(sum(episodes))
        final = np.isin(rows, np.cumsum(episodes)[: None if ends else -1] - 1)
        columns: dict[str, NDArray[np.generic]] = {
            "n": rows,
            "x": np.where(final, 0, [rows, rows]).T.astype(np.float32),
        }
        hypothesis.assume(not final[0] and not (final[1:] & final[:-1]).any())
        with self.new() as replay:
            writer, stored = replay.row_writer(items=[ItemRule("t", 3, 2, EndOfEpisode.TILE)]), 0
            writer.declare_final_columns(["n"])
            while stored < len(rows):
                steps = writer.steps
                count = writer.append_rows(
                    {name: column[stored:] for name, column in columns.items()}, final[stored:]
                )
                assert 1 <= count <= len(rows) - stored
                assert writer.steps > steps
                stored += count
            writer.cut_open_lanes()
            writer.close()
            begins = np.cumsum([0, *episodes[:-1]]).tolist()
            assert _items(replay) == [
                list(range(begin + start, begin + start + length))
                for begin, count in zip(begins, episodes, strict=True)
                for start, length, _ in windows(count, 3, 2, EndOfEpisode.TILE)
            ]

    def test_a_full_store_has_a_place_for_the_final_row(self) -> None:
        """Of an episode that it cuts."""
        with self.new(capacity=100) as replay:
            writer, stored = replay.row_writer(items=[ItemRule("t", 1)]), 0
            writer.declare_final_columns(["n"])
            rows = np.arange(1000)
            columns: dict[str, NDArray[np.generic]] = {"n": rows, "x": np.zeros((1000, 2), np.float32)}
            with pytest.raises(StoreFull):
                while True:
                    stored += writer.append_rows(
                        {name: column[stored:] for name, column in columns.items()},
                        np.zeros(1000 - stored, np.bool_),
                    )
            assert stored >= 99
            end = {"n": np.array([stored]), "x": np.zeros((1, 2), np.float32)}
            assert writer.append_rows(end, np.ones(1, np.bool_)) == 1
            writer.close()
            assert _items(replay) == [[n] for n in range(stored)]

    # ---- windows and ends of episodes ------------------------------------------------------------------------------

    @hypothesis.settings(given_contract, max_examples=30)
    @hypothesis.given(
        strategies.integers(2, 4),
        strategies.integers(1, 5),
        strategies.sampled_from([end for end in EndOfEpisode if end is not EndOfEpisode.CONTINUE]),
        strategies.lists(strategies.integers(1, 9), min_size=1, max_size=4),
    )
    def test_rules_make_their_windows(
        self, length: int, stride: int, end: EndOfEpisode, episodes: list[int]
    ) -> None:
        """Of every episode, its final row included, as `trajectories.windows` lists them."""
        hypothesis.assume(stride <= length or end not in (EndOfEpisode.TRUNCATE, EndOfEpisode.PAD))
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", length, stride, end)])
            expected, first = [], 0
            for steps in episodes:
                for n in range(first, first + steps):
                    writer.append(_step(n))
                writer.end_episode({"n": first + steps})
                for start, rows, _ in windows(steps + 1, length, stride, end):
                    expected.append([first + start + row for row in range(rows)])
                first += 100
            writer.close()
            assert _items(replay) == expected

    def test_an_end_needs_an_episode(self) -> None:
        """Of a lane that there is."""
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 2)])
            for lane in (None, 0, 1):
                with pytest.raises(ValueError, match="lane|episode"):
                    writer.end_episode(lane=lane)
            writer.append(_step(0))
            with pytest.raises(SpecError, match="n"):
                writer.end_episode({"n": 1.5})
            writer.end_episode({"n": 1})
            writer.close()
            assert _items(replay) == [[0, 1]]

    def test_lanes_end_in_one_call_with_their_step(self) -> None:
        """A lane that is idle stores nothing."""
        with self.new() as replay:
            writer = replay.row_writer(lanes=3, items=[ItemRule("t", 2)])
            no, one = np.zeros(3, np.bool_), np.array([False, True, False])
            writer.append_ends(_lane_steps(0, 3), no, np.array([1]), {"n": np.array([199])})
            assert replay.final_columns == {"n"}
            assert writer.open_lanes.tolist() == [True, False, True]
            writer.append_ends(_lane_steps(1, 3), one, _NO_LANES, {})
            writer.append_ends(_lane_steps(2, 3), no, _NO_LANES, {})
            assert writer.open_lanes.all()
            writer.end_lanes(np.array([0, 2]), {"n": np.array([77, 277])})
            assert writer.open_lanes.tolist() == [False, True, False]
            writer.close()
            expected = [[0, 1], [1, 2], [2, 77], [100, 199], [200, 201], [201, 202], [202, 277]]
            assert sorted(_items(replay)) == expected

    def test_cut_and_dropped_episodes(self) -> None:
        """A cut makes what is left by another end, if one is given; a drop makes nothing more."""
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 3)])
            for end in (EndOfEpisode.TRUNCATE, None):
                for n in range(2):
                    writer.append(_step(n))
                writer.cut_open_lanes(end)
                assert not writer.open_lanes.any()
            writer.append(_step(5))
            assert writer.open_lanes.all()
            writer.drop_open_lanes()
            assert not writer.open_lanes.any()
            for n in range(6, 9):
                writer.append(_step(n))
            writer.drop_open_lanes(np.array([0]))
            writer.cut_open_lanes(EndOfEpisode.PAD)
            writer.close()
            assert _items(replay) == [[0, 1], [6, 7, 8]]

    def test_streams_go_on_over_ends_until_they_are_ended(self) -> None:
        """Of rules with `EndOfEpisode.CONTINUE`."""
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 3, end=EndOfEpisode.CONTINUE)])
            for n in range(6):
                writer.append(_step(n))
                if n == 1:
                    writer.end_lanes(np.array([0]), None)
                if n == 3:
                    writer.cut_open_lanes()
            writer.end_streams()
            writer.append(_step(6))
            writer.close()
            assert _items(replay) == [[0, 1, 2], [1, 2, 3]]

    def test_final_rows_have_the_version_of_the_step_before(self) -> None:
        """Also if another version was set since: no action follows in them."""
        # Rules: collectors CV2
        for lanes in (1, 3):
            with self.new() as replay:
                writer = replay.row_writer(lanes=lanes, items=[ItemRule("t", 2)])
                for version, ended in ((7, 0), (8, None)):
                    writer.policy_version = version
                    writer.append(_lane_steps(version, lanes) if lanes > 1 else _step(version))
                    writer.policy_version = 20 + version
                    count = lanes if ended is None else 1
                    writer.end_episode(
                        {"n": np.full(count, 99) if count > 1 else 99}, lane=None if lanes == 1 else ended
                    )
                writer.close()
                expected = [[7, 7], [8, 8]] + [[7, 8], [8, 8]] * (lanes - 1)
                assert _versions(replay) == sorted(expected)

    def test_a_final_row_before_other_rows_has_the_version_of_the_step_before(self) -> None:
        """Of a call that stores many rows."""
        # Rules: collectors CV2
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 2)])
            writer.declare_final_columns(["n"])
            writer.policy_version = 7
            writer.append(_step(0))
            writer.policy_version = 9
            rows: dict[str, NDArray[np.generic]] = {
                "n": np.arange(1, 4),
                "x": np.array([[0, 0], [2, 2], [3, 3]], np.float32),
            }
            stored = 0
            while stored < 3:
                final = np.arange(stored, 3) == 0
                stored += writer.append_rows({name: column[stored:] for name, column in rows.items()}, final)
            writer.close()
            assert _versions(replay) == [[7, 7], [9, 9]]

    def test_final_rows_hold_the_same_columns(self) -> None:
        """Once they are declared."""
        with self.new() as replay:
            writer = replay.row_writer()
            assert replay.final_columns == frozenset()
            writer.declare_final_columns(["n"])
            writer.declare_final_columns(("n",))
            with pytest.raises(SpecError, match="x"):
                writer.declare_final_columns(["n", "x"])
            assert replay.final_columns == {"n"}
            writer.append(_step(0))
            with pytest.raises(SpecError, match="n"):
                writer.end_lanes(np.array([0]), {"x": np.zeros((1, 2), np.float32)})
            writer.close()

    def test_padded_rows_hold_what_was_declared(self) -> None:
        """And zeros in other columns."""
        with self.new() as replay:
            writer = replay.row_writer(items=[ItemRule("t", 3, end=EndOfEpisode.PAD)])
            writer.declare_padding("t", {"n": 9})
            with pytest.raises(KeyError, match="'t'"):
                writer.declare_padding("u", {})
            for bad in ({"y": 1}, {"n": 0.5}):
                with pytest.raises(SpecError, match="y|n"):
                    writer.declare_padding("t", bad)
            writer.append(_step(1))
            writer.cut_open_lanes()
            writer.close()
            data = replay.sample("t", 1).data
            assert (data["n"].tolist(), data["x"].tolist()) == ([[1, 9, 9]], [[[1, 1], [0, 0], [0, 0]]])

    # ---- items -----------------------------------------------------------------------------------------------------

    def test_items_of_the_last_rows(self) -> None:
        """Of one episode, and in reach."""
        # Rules: replay I1, I2, K1, K2, P1
        with self.new() as replay:
            writer = replay.row_writer(history=3)
            for n in range(5):
                writer.append(_step(n))
            keys = [writer.create_item("t", length) for length in (1, 3)]
            for length in (0, 4):
                with pytest.raises(ValueError, match="length"):
                    writer.create_item("t", length)
            for priority in (-1.0, float("nan")):
                with pytest.raises(ValueError, match="priority"):
                    writer.create_item("t", 1, priority)
            writer.end_episode()
            writer.append(_step(5))
            with pytest.raises(ValueError, match="length"):
                writer.create_item("t", 2)
            writer.close()
            assert len({*keys}) == len(replay.table("t")) == 2
            replay.table("t").configure(max_size=1)
            assert _items(replay) == [[2, 3, 4]]

    def test_priorities_and_windows_are_given_with_a_call(self) -> None:
        """In the order of its items, rule by rule."""
        rules: list[Rule] = [ItemRule("t", 1, priority=2.0), PatternWindow("u", 2)]
        with self.new(_table(), _table("u")) as replay:
            writer = replay.row_writer(lanes=2, items=rules)
            writer.record_items()
            none = np.zeros(2, np.bool_)
            for n, mask in enumerate([none, np.array([False, True]), none]):
                writer.give_priorities(
                    {0: np.array([n, n + 5.0]), 1: np.full(int(mask.sum()), 7.0)},
                    {0: np.arange(2), 1: np.flatnonzero(mask)},
                )
                writer.select_windows(Selection({1: mask}, {1: none}))
                writer.append_checked(_lane_steps(n, 2))
            made = [(rule, list(keys)) for rule, keys in writer.take_made()]
            writer.close()
            info = replay.sample("t", 6, timeout=0).info
            assert info.priorities.tolist() == [0, 5, 1, 6, 2, 7]
            assert [key for rule, keys in made if rule == 0 for key in keys] == info.keys.tolist()
            batch = replay.sample("u", 1, timeout=0)
            assert (batch.data["n"].tolist(), batch.info.priorities.tolist()) == ([100], [7])
            assert [keys for rule, keys in made if rule == 1] == [batch.info.keys.tolist()]

    def test_a_call_without_given_priorities_has_those_of_the_rule(self) -> None:
        """Priorities and windows are given for one call."""
        rules: list[Rule] = [ItemRule("t", 1, priority=2.0), PatternWindow("u", 1)]
        with self.new(_table(), _table("u")) as replay:
            writer = replay.row_writer(lanes=2, items=rules)
            for n in range(4):
                if n == 1:
                    writer.give_priorities({0: np.array([8.0, 9.0])})
                    writer.select_windows(Selection({1: np.array([True, False])}, {}))
                writer.append_checked(_lane_steps(n, 2))
            writer.close()
            assert replay.sample("t", 8, timeout=0).info.priorities.tolist() == [2, 2, 8, 9, 2, 2, 2, 2]
            assert replay.sample("u", 1, timeout=0).data["n"].tolist() == [1]
            assert len(replay.table("u")) == 0

    def test_items_are_recorded_once(self) -> None:
        """From `record_items` on, pending ones too."""
        with self.new(Table.queue("t", 1)) as replay:
            writer = replay.row_writer(items=[ItemRule("t", 1)])
            writer.append(_step(0))
            writer.record_items()
            assert writer.take_made() == []
            for n in range(1, 4):
                writer.append(_step(n))
            keys = [key for rule, keys in writer.take_made() for key in keys if rule == 0]
            assert writer.take_made() == []
            writer.raise_refused()
            assert [_take(replay).info.keys.tolist()[0] for _ in range(4)][1:] == keys
            writer.close()

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    def test_too_many_pending_items_hold_up_the_next(self) -> None:
        """By the writer's timeout. Steps that are checked never wait, nor does bad input for its error."""
        # Rules: replay I3, I4
        with self.new(Table.queue("t", 1)) as replay:
            writer = replay.row_writer(items=[ItemRule("t", 1)], history=9, max_pending=2, timeout=0)
            for n in range(3):
                writer.append(_step(n))
            with pytest.raises(DeadlineExceeded, match="'t'") as caught:
                writer.append(_step(-1))
            assert (caught.value.pending, writer.pending) == (2, 2)
            with pytest.raises(DeadlineExceeded):
                writer.create_item("t", 1)
            with pytest.raises(SpecError, match="n"):
                writer.append({"n": 0.5, "x": np.zeros(2, np.float32)})
            with pytest.raises(ValueError, match="lane"):
                writer.create_item("t", 1, lane=7)
            for length in (5, 10**20):
                with pytest.raises(ValueError, match="length"):
                    writer.create_item("t", length)
            writer.append_checked(_checked(3))
            assert writer.pending == 3
            assert [_take(replay).data["n"].tolist() for _ in range(4)] == [[n] for n in range(4)]
            writer.close()

    def test_numbers_that_no_machine_holds(self) -> None:
        """Lanes are refused before memory is taken; a bound that is too large is none."""
        with self.new(_table()) as replay:
            for lanes in (10**12, 10**20):
                with pytest.raises(ValueError, match=f"^lanes: .*, got {lanes} with steps of"):
                    replay.row_writer(lanes=lanes)
            writer = replay.row_writer(items=[ItemRule("t", 1)], history=10**20, max_pending=10**20)
            writer.append(_step(0))
            writer.close(_ACROSS)
            assert _take(replay).data["n"].tolist() == [0]

    def test_a_flush_returns_when_every_item_is_in(self) -> None:
        """Or says how many are not; they stay pending."""
        # Rules: replay I5, I6
        with self.new(Table.queue("t", 1)) as replay, ThreadPoolExecutor(1) as threads:
            writer = replay.row_writer(items=[ItemRule("t", 1)])
            for n in range(4):
                writer.append(_step(n))
            waits: list[Callable[[], None]] = [
                lambda: writer.flush(0),
                lambda: writer.close(0),
                lambda: writer.wait_pending(2, 0),
            ]
            for call in waits:
                with pytest.raises(DeadlineExceeded, match="3.*'t'") as caught:
                    call()
                assert caught.value.pending == writer.pending == 3
            _take(replay)
            writer.wait_pending(2, 0)
            flushing = threads.submit(writer.flush, _ACROSS)
            _take(replay)
            assert not flushing.done()
            _take(replay)
            flushing.result(_ACROSS)
            assert writer.pending == 0
            writer.close(0)
            writer.close(0)
            writer.flush(0)
            with pytest.raises(Closed):
                writer.append(_step(4))
            with pytest.raises(Closed):
                writer.make_room()

    def test_an_abandoned_writer_leaves_its_items(self) -> None:
        """With a warning that counts them; they go in later."""
        # Rules: replay I6
        with self.new(Table.queue("t", 1)) as replay:
            writer = replay.row_writer(items=[ItemRule("t", 1)])
            for n in range(3):
                writer.append(_step(n))
            with pytest.warns(ResourceWarning, match="2 items"):
                writer.abandon()
            assert [_take(replay).data["n"].tolist() for _ in range(3)] == [[0], [1], [2]]


def _table(name: str = "t") -> Table:
    return Table(name, sampler=Fifo(), remover=Fifo(), max_size=2000, max_times_sampled=1)


def _take(replay: ReplayLike) -> ReplaySample:
    return replay.sample("t", 1, timeout=_ACROSS)


def _items(replay: ReplayLike) -> list[list[int]]:
    """The numbers in the rows of all items of the table "t", oldest first; they leave it."""
    count = len(replay.table("t"))
    if not count:
        return []
    batch = replay.sample("t", count, timeout=0)
    numbers = batch.data["n"].reshape(count, -1)
    masks = np.ones(numbers.shape, np.bool_) if batch.mask is None else batch.mask
    return [row[mask].tolist() for row, mask in zip(numbers, masks, strict=True)]


def _versions(replay: ReplayLike) -> list[list[int]]:
    """The versions of the rows of all items of two rows of the table "t", in order; they leave it."""
    views = {"version": View("policy_version")}
    batch = replay.sample("t", len(replay.table("t")), timeout=0, views=views)
    return sorted(batch.data["version"].reshape(-1, 2).tolist())


def _step(n: int) -> dict[str, object]:
    return {"n": n, "x": np.full(2, n, np.float32)}


def _checked(n: int) -> dict[str, NDArray[np.generic]]:
    return {"n": np.array(n), "x": np.full(2, n, np.float32)}


def _lane_steps(n: int, lanes: int) -> dict[str, NDArray[np.generic]]:
    """Lane i holds 100 i + n."""
    numbers = np.arange(lanes) * 100 + n
    return {"n": numbers, "x": np.repeat(numbers[:, None], 2, 1).astype(np.float32)}
