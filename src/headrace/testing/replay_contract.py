"""The rules of tables, through the interface of a replay alone: of this process, on disk, of a client, and yours."""

from __future__ import annotations

import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from headrace.errors import Closed, DeadlineExceeded, ItemNotFound
from headrace.replay.interface import ReplayLike
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.spec import Signature
from headrace.tables.description.rate_limiters import MinSize, SampleToInsertRatio
from headrace.tables.description.rules import ItemRule
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, Prioritized, Uniform
from headrace.tables.description.table import Table
from headrace.testing.pytest_hypothesis import pytest

_NUMBERS = Signature.like({"n": 0})
_ACROSS = 10.0  # Seconds after which a call that should have returned hangs.


class ReplayContract(ABC):
    """Tests of a replay. Derive from it and say how one is made; pytest does the rest.

    Everything is asked through `ReplayLike`, and each test closes the replays that it made.

    >>> from headrace.replay import Replay
    >>> class TestMine(ReplayContract):
    ...     def make(self, signature, tables, seed=0):
    ...         return Replay(signature, tables, seed=seed)
    >>> TestMine().test_the_remover_picks_one_of_too_many()
    """

    @abstractmethod
    def make(self, signature: Signature, tables: Sequence[Table], seed: int = 0) -> ReplayLike:
        """Returns a fresh replay without a capacity, whose draws come from this seed."""

    def new(self, *tables: Table, seed: int = 0) -> ReplayLike:
        """Returns a replay of the steps `{"n": int}`."""
        return self.make(_NUMBERS, tables, seed)

    # ---- interface and tables --------------------------------------------------------------------------------------

    def test_it_has_the_interface(self) -> None:
        """All members are there, and calls take the same arguments."""
        with self.new(_table()) as replay:
            assert_has_interface(ReplayLike, replay)

    def test_tables_are_known_by_their_names(self) -> None:
        """Any other name is a `KeyError` that lists them."""
        # Rules: replay T3
        with self.new(_table("one"), _table("two")) as replay:
            assert replay.signature == _NUMBERS
            assert replay.table_names == ("one", "two")
            assert [replay.table(name).name for name in replay.table_names] == ["one", "two"]
            writer = replay.writer()
            writer.append({"n": 0})
            for call in (
                lambda: replay.table("three"),
                lambda: replay.sample("three", 1, timeout=0),
                lambda: replay.delete("three", [1]),
                lambda: replay.reset("three"),
                lambda: replay.update_priorities("three", [1], [1.0]),
                lambda: replay.can_insert("three"),
                lambda: replay.can_sample("three"),
                lambda: replay.writer(items=[ItemRule("three", 1)]),
                lambda: writer.create_item("three", 1),
            ):
                with pytest.raises(KeyError, match=r"'one'.*'two'"):
                    call()
            writer.close()

    def test_the_only_table_needs_no_name(self) -> None:
        """In `sample`; where there are several, the error lists them and nothing is counted."""
        with self.new(Table.queue("t", 9)) as replay:
            put(replay, 4)
            found = [
                replay.sample(1),
                replay.sample(None, 1),
                replay.sample(batch_size=1),
                replay.sample("t", 1),
            ]
            assert [batch["n"].tolist() for batch in found] == [[0], [1], [2], [3]]
            with pytest.raises(TypeError, match="expected a batch size, got only the table 't'"):
                replay.sample("t")
            with pytest.raises(TypeError, match="expected a batch size, got nothing"):
                replay.sample()
            with pytest.raises(ValueError, match="0"):
                replay.sample(0)
        with self.new(_table("one"), _table("two")) as replay:
            put(replay, 1, table="one")
            with pytest.raises(ValueError, match=r"'one'.*'two'"):
                replay.sample(1)
            with pytest.raises(ValueError, match=r"'one'.*'two'"):
                replay.sample(batch_size=1)
            assert replay.table("one").statistics().samples == 0

    def test_the_remover_picks_one_of_too_many(self) -> None:
        """The new item goes in first, and may be the one that is removed."""
        # Rules: replay T5
        with self.new(Table("t", sampler=Fifo(), remover=Lifo(), max_size=2)) as replay:
            keys = put(replay, 5)
            found = replay.table("t").statistics()
            assert (found.size, found.inserts, found.deletes) == (2, 5, 3)
            assert replay.sample("t", 1).info.keys.tolist() == keys[:1]

    def test_an_item_leaves_after_its_last_sample(self) -> None:
        """In the same instant, and the batch shows it all the same."""
        # Rules: replay T6, B3, L5
        for batches in ([6], [1] * 6, [2, 4]):
            with self.new(_table(max_times_sampled=3)) as replay:
                keys = put(replay, 2)
                draws: list[tuple[int, int, int]] = []
                for size in batches:
                    info = replay.sample("t", size, timeout=0).info
                    columns = info.keys, info.times_sampled, info.table_size
                    draws += zip(*(column.tolist() for column in columns), strict=True)
                first, second = keys
                assert draws == [(first, n, 2) for n in (1, 2, 3)] + [(second, n, 1) for n in (1, 2, 3)]
                found = replay.table("t").statistics()
                counts = (found.size, found.inserts, found.samples, found.deletes, found.unique_samples)
                assert counts == (0, 2, 6, 2, 2)

    def test_items_are_looked_at_without_a_sample(self) -> None:
        """`items` and `get` return items by their keys; nothing is counted or removed."""
        with self.new(_table(max_times_sampled=1)) as replay:
            put(replay, 9)
            batches = list(replay.items("t", 4))
            keys = np.concatenate([batch.info.keys for batch in batches])
            found = dict(
                zip(keys.tolist(), [n for batch in batches for n in batch["n"].tolist()], strict=True)
            )
            assert sorted(found.values()) == list(range(9))
            assert replay.get("t", keys[[3, 0, 3]])["n"].tolist() == [
                found[int(key)] for key in keys[[3, 0, 3]]
            ]
            assert replay.statistics().tables["t"].samples == 0
            replay.delete("t", keys[:1])
            with pytest.raises(ItemNotFound):
                replay.get("t", keys[:2])
            assert len(replay.get("t", keys[1:])["n"]) == 8

    def test_deletes_are_counted(self) -> None:
        """Also those of items that were gone."""
        # Rules: replay T7
        with self.new(_table()) as replay:
            keys = put(replay, 4)
            assert replay.delete("t", [keys[1], 1 << 60, keys[1]]) == 1
            assert replay.delete("t", []) == 0
            found = replay.table("t").statistics()
            assert (found.size, found.deletes, found.ignored_deletes) == (3, 1, 2)
            assert replay.sample("t", 4).data["n"].tolist() == [0] * 4

    def test_reset_empties_one_table(self) -> None:
        """Its counts begin again; keys do not."""
        # Rules: replay T8, K1
        with self.new(_table("t"), _table("u")) as replay:
            before = put(replay, 3) + put(replay, 2, table="u")
            replay.sample("t", 2)
            replay.reset("t")
            found = replay.table("t").statistics()
            assert (found.size, found.inserts, found.samples, found.deletes, found.unique_samples) == (0,) * 5
            assert replay.table("u").statistics().inserts == 2
            after = put(replay, 2)
            assert len({*before, *after}) == 7

    def test_a_smaller_table_removes_at_once(self) -> None:
        """And a limiter that could never open is refused."""
        # Rules: replay T9
        with self.new(_table()) as replay:
            put(replay, 5)
            replay.table("t").configure(max_size=2)
            assert len(replay.table("t")) == 2
            assert replay.sample("t", 1).data["n"].tolist() == [3]
            with pytest.raises(ValueError, match="3"):
                replay.table("t").configure(rate_limiter=MinSize(3))
            with pytest.raises(TypeError, match="expected one such as MinSize"):
                replay.table("t").configure(rate_limiter=3)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="max_size"):
                replay.table("t").configure(max_size="2")  # type: ignore[arg-type]
            assert replay.can_sample("t")

    # ---- rate limiters ---------------------------------------------------------------------------------------------

    def test_pending_items_go_in_by_their_order(self) -> None:
        """When a sample or a delete opens the table, without a further call of the writer."""
        # Rules: replay I3, L7
        with self.new(Table.queue("t", 2)) as replay:
            writer = replay.writer(items=[ItemRule("t", 1)])
            for n in range(6):
                assert replay.can_insert("t") == (n < 2)
                writer.append({"n": n})
            assert replay.table("t").statistics().pending_inserts == writer.pending == 4
            assert replay.sample("t", 2).data["n"].tolist() == [0, 1]
            assert (len(replay.table("t")), writer.pending) == (2, 2)
            assert replay.sample("t", 1).data["n"].tolist() == [2]
            assert replay.sample("t", 2).data["n"].tolist() == [3, 4]
            writer.close(timeout=0)
            assert replay.sample("t", 1).data["n"].tolist() == [5]

    def test_a_batch_is_served_whole_or_not_at_all(self) -> None:
        """A refusal takes and counts nothing."""
        # Rules: replay L5, L6, L7, L9
        with self.new(Table.queue("t", 4)) as replay:
            put(replay, 2)
            before = replay.table("t").statistics()
            assert not replay.can_sample("t", 3)
            with pytest.raises(DeadlineExceeded, match="'t'"):
                replay.sample("t", 3, timeout=0)
            after = replay.table("t").statistics()
            assert (after.size, after.samples, after.waiting_samples) == (before.size, 0, 0)
            assert replay.can_sample("t", 2)
            assert replay.sample("t", 2, timeout=0).data["n"].tolist() == [0, 1]

    def test_numbers_of_items_are_checked(self) -> None:
        """A number that is too large is no error, because the answer is known."""
        # Rules: replay L7
        with self.new(Table.queue("t", 4)) as replay:
            for ask in (replay.can_insert, replay.can_sample):
                for wrong in (0, -1):
                    with pytest.raises(ValueError, match=f"^n: expected an integer >= 1, got {wrong}$"):
                        ask("t", wrong)
                others: list[Any] = [None, 1.5, "3", True, float("inf"), np.array([1, 2])]
                for other in others:
                    with pytest.raises(TypeError):
                        ask("t", other)
                assert ask("t", 10**30) is False
            with pytest.raises(ValueError, match="max_size: expected at most"):
                replay.table("t").configure(max_size=10**20)
            nine: Any = np.int64(9)
            replay.table("t").configure(max_size=nine)
            assert type(replay.table("t").statistics().max_size) is int

    def test_a_batch_that_can_never_be_served_is_refused_at_once(self) -> None:
        """Waiting for it would never end."""
        # Rules: replay L10
        limiter = SampleToInsertRatio(2, 3, 4)
        with self.new(_table(rate_limiter=limiter)) as replay:
            for size in (0, -1, 9):
                with pytest.raises(ValueError, match=str(size)):
                    replay.sample("t", size, timeout=0)
            assert not replay.can_sample("t", 9)

    def test_a_waiting_sample_is_served_by_an_insert(self) -> None:
        """Within milliseconds; in order of arrival."""
        # Rules: replay L11
        with self.new(Table.queue("t", 9)) as replay, ThreadPoolExecutor(2) as threads:
            waiting: list[Future[Any]] = []
            for _ in range(2):
                waiting.append(threads.submit(replay.sample, "t", 1, timeout=_ACROSS))
                _until(lambda: replay.table("t").statistics().waiting_samples == len(waiting))
            put(replay, 2)
            assert [each.result(_ACROSS).data["n"].tolist() for each in waiting] == [[0], [1]]

    # ---- batches ---------------------------------------------------------------------------------------------------

    def test_batches_have_the_shapes_of_their_items(self) -> None:
        """One step: no axis of time. Longer ones are filled up with zeros, which the mask tells from rows."""
        # Rules: replay B1, B2, B3
        with self.make(
            Signature.like({"a": np.zeros((2, 3), np.float32), "n": 0}), [_table(), _table("u")]
        ) as replay:
            with replay.writer() as writer:
                for n in range(1, 4):
                    writer.append({"a": np.full((2, 3), n), "n": n})
                    writer.create_item("t", 1)
                    writer.create_item("u", n)
            batch = replay.sample("t", 4)
            assert batch.mask is None
            assert (batch.data["a"].shape, batch.data["a"].dtype) == ((4, 2, 3), np.float32)
            info = batch.info
            assert [each.dtype for each in (info.keys, info.probabilities, info.table_size)] == [
                np.uint64,
                np.float64,
                np.int64,
            ]
            assert info.priorities.tolist() == [1.0] * 4
            replay.table("u").configure(max_size=1)
            batch = replay.sample("u", 2)
            assert batch.mask is None
            assert batch.data["n"].tolist() == [[1, 2, 3]] * 2
        with self.new(Table.queue("u", 9)) as replay:
            with replay.writer() as writer:
                for n in range(1, 4):
                    writer.append({"n": n})
                    writer.create_item("u", n)
            batch = replay.sample("u", 3)
            assert batch.data["n"].tolist() == [[1, 0, 0], [1, 2, 0], [1, 2, 3]]
            assert batch.mask is not None
            assert batch.mask.tolist() == [[n < length for n in range(3)] for length in (1, 2, 3)]

    def test_a_batch_is_a_copy(self) -> None:
        """It never changes, and the store does not change with it."""
        # Rules: replay B4
        with self.new(_table()) as replay:
            put(replay, 1)
            batch = replay.sample("t", 1)
            batch.data["n"][:] = 77
            put(replay, 50, first=100)
            assert batch.data["n"].tolist() == [77]
            assert replay.sample("t", 1).data["n"].tolist() == [0]

    def test_a_batch_comes_in_the_arrays_that_are_asked_for(self) -> None:
        """Where these cannot be, nothing is drawn."""
        with self.new(Table.queue("t", 9)) as replay:
            put(replay, 3)
            with pytest.raises(ValueError, match="'numpy', 'torch', 'jax'"):
                replay.sample("t", 1, to="cupy")  # type: ignore[call-overload]
            with pytest.raises(ValueError, match="device"):
                replay.sample("t", 1, device="cpu")  # type: ignore[call-overload]
            torch = pytest.importorskip("torch")
            with pytest.raises(ValueError, match="device"):
                replay.sample("t", 1, to="torch", device="nowhere")
            assert replay.table("t").statistics().samples == 0
            batch = replay.sample(3, to="torch", device="cpu")
            assert (batch["n"].tolist(), batch["n"].dtype) == ([0, 1, 2], torch.int64)
            assert batch.info.keys.dtype == np.uint64

    def test_the_same_seed_gives_the_same_batches(self) -> None:
        """For the same calls."""
        # Rules: replay S10
        found = []
        for _ in range(2):
            with self.new(_table(sampler=Prioritized()), seed=3) as replay:
                put(replay, 20, priorities=range(20))
                found.append([replay.sample("t", 5).data["n"].tolist() for _ in range(5)])
        assert found[0] == found[1]
        assert any(batch != found[0][0] for batch in found[0])

    def test_probabilities_are_reported(self) -> None:
        """Of each draw."""
        # Rules: replay S3, S4, S7
        with self.new(
            _table(sampler=Prioritized(0.5)), _table("u", sampler=Uniform(replacement=False))
        ) as replay:
            put(replay, 3, priorities=[1, 4, 9])
            batch = replay.sample("t", 60)
            np.testing.assert_allclose(batch.info.probabilities, (batch.data["n"] + 1) / 6, rtol=1e-9)
            assert set(batch.data["n"].tolist()) == {0, 1, 2}
            put(replay, 4, table="u")
            assert sorted(replay.sample("u", 4).data["n"].tolist()) == [0, 1, 2, 3]
            assert not replay.can_sample("u", 5)

    def test_threads_get_each_item_once_and_whole(self) -> None:
        """However they and the writers interleave."""
        # Rules: replay B5
        with self.make(Signature.like({"n": np.zeros(64, np.int64)}), [Table.queue("t", 50)]) as replay:
            found: list[int] = []

            def write(first: int) -> None:
                with replay.writer(items=[ItemRule("t", 1)]) as writer:
                    for n in range(first, first + 200):
                        writer.append({"n": np.full(64, n)})

            def read() -> None:
                for _ in range(40):
                    rows = replay.sample("t", 5, timeout=_ACROSS).data["n"]
                    assert (rows == rows[:, :1]).all(), "a row is of two steps"
                    found.extend(rows[:, 0].tolist())

            with ThreadPoolExecutor(4) as threads:
                calls = [threads.submit(write, first) for first in (0, 200)]
                calls += [threads.submit(read) for _ in range(2)]
                for call in calls:
                    call.result(6 * _ACROSS)
            assert sorted(found) == list(range(400))

    # ---- priorities ------------------------------------------------------------------------------------------------

    def test_updates_reach_the_items_that_are_there(self) -> None:
        """The last of two wins; keys that are gone are counted."""
        # Rules: replay P2, P3
        with self.new(_table(sampler=MaxHeap())) as replay:
            keys = put(replay, 3)
            replay.delete("t", keys[:1])
            assert replay.update_priorities("t", [keys[1], keys[0], keys[1]], [9.0, 99.0, 5.0]) == 2
            batch = replay.sample("t", 1)
            assert (batch.data["n"].tolist(), batch.info.priorities.tolist()) == ([1], [5.0])
            found = replay.table("t").statistics()
            assert (found.updates, found.ignored_updates) == (2, 1)

    def test_new_items_get_the_largest_priority_so_far(self) -> None:
        """Where the table says so, and the writer gives none; it is 1 at first, and after `reset`."""
        table = _table(sampler=Lifo(), new_priority="largest")
        with self.new(table) as replay, replay.writer(items=[ItemRule("t", 1)]) as writer:

            def newest() -> ReplaySample:
                writer.flush(timeout=_ACROSS)
                return replay.sample("t", 1)

            def appended() -> float:
                writer.append({"n": 0})
                return float(newest().info.priorities[0])

            assert appended() == 1.0
            for priority in (8.0, 0.5):
                assert replay.update_priorities("t", newest().info.keys, [priority]) == 1
            assert appended() == 8.0
            for given, expected in ((16.0, 16.0), (2.0, 2.0), (None, 16.0)):
                writer.create_item("t", 1, given)
                assert newest().info.priorities[0] == expected
            replay.reset("t")
            assert appended() == 1.0

    def test_bad_priorities_change_nothing(self) -> None:
        """Not those beside them either."""
        # Rules: replay P1, P2
        with self.new(_table(sampler=MaxHeap())) as replay:
            keys = put(replay, 2, priorities=[1, 2])
            for bad in (-1.0, float("nan"), float("inf")):
                with pytest.raises(ValueError, match="priorit"):
                    replay.update_priorities("t", keys, [3.0, bad])
            with pytest.raises(ValueError, match="1"):
                replay.update_priorities("t", keys, [3.0])
            assert replay.sample("t", 1).info.priorities.tolist() == [2.0]
            assert replay.table("t").statistics().updates == 0

    def test_keys_are_integers_of_64_bits(self) -> None:
        """Also in lists of which NumPy makes floats; others are refused by their place and value."""
        # Rules: replay K1
        with self.new(_table(sampler=MaxHeap())) as replay:
            keys = put(replay, 2)
            largest = (1 << 64) - 1
            assert replay.update_priorities("t", [keys[1], largest], [5.0, 7.0]) == 1
            assert replay.delete("t", [largest, keys[0]]) == 1
            with pytest.raises(ItemNotFound, match="no items with 1"):
                replay.get("t", [keys[1], largest])
            for bad in (-1, largest + 1):
                message = rf"keys\[1\].*{bad}"
                with pytest.raises(ValueError, match=message):
                    replay.update_priorities("t", [keys[1], bad], [1.0, 1.0])
                with pytest.raises(ValueError, match=message):
                    replay.delete("t", [keys[1], bad])
                with pytest.raises(ValueError, match=message):
                    replay.get("t", [keys[1], bad])
            assert replay.sample("t", 1).info.priorities.tolist() == [5.0]

    # ---- statistics and closing ------------------------------------------------------------------------------------

    def test_statistics_are_of_one_instant(self) -> None:
        """A record does not change when the replay does. A row that two items share is stored once."""
        # Rules: replay I8, part 9
        with self.new(_table("t"), _table("u")) as replay:
            rules = [ItemRule("t", 1), ItemRule("u", 4)]
            with replay.writer(items=rules) as writer:
                for n in range(10):
                    writer.append({"n": n})
            record = replay.statistics()
            assert record.tables["t"] == replay.table("t").statistics()
            assert (record.tables["t"].size, record.tables["u"].size, record.store.rows) == (10, 7, 10)
            put(replay, 3)
            assert record.tables["t"].size == 10
            with pytest.raises((AttributeError, TypeError)):
                record.tables["t"].size = 3  # type: ignore[misc]

    def test_closing_ends_everything(self) -> None:
        """Waits and later calls raise `Closed`; writers tell what was refused."""
        # Rules: replay, part 12
        replay = self.new(Table.queue("t", 1), Table.queue("empty", 1))
        assert not replay.is_closed
        replay.check_open()
        table = replay.table("t")
        writer = replay.writer(items=[ItemRule("t", 1)])
        for n in range(3):
            writer.append({"n": n})
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(replay.sample, "empty", 1, timeout=_ACROSS)
            _until(lambda: replay.table("empty").statistics().waiting_samples == 1)
            replay.close()
            assert isinstance(waiting.exception(_ACROSS), Closed)
        with pytest.raises(Closed, match="2"):
            writer.close()
        replay.close()
        assert getattr(replay, "is_closed")  # noqa: B009 - a type checker takes it for what it was above
        for call in _calls_of(replay):
            with pytest.raises(Closed):
                call()
        with pytest.raises(Closed):
            table.statistics()
        assert (replay.signature, replay.table_names) == (_NUMBERS, ("t", "empty"))

    def test_flush_tells_that_the_replay_is_closed(self) -> None:
        """Also where every item was applied before; then the writer is closed without an error."""
        # Rules: server CL3
        replay = self.new(Table.queue("t", 5))
        writer = replay.writer(items=[ItemRule("t", 1)])
        writer.append({"n": 0})
        writer.flush()
        writer.flush()
        replay.close()
        for _ in range(2):
            with pytest.raises(Closed, match="^the replay is closed$"):
                writer.flush()
        writer.close()


def put(
    replay: ReplayLike,
    count: int,
    *,
    table: str = "t",
    first: int = 0,
    priorities: Sequence[float] | range = (),
) -> list[int]:
    """Makes items of one step each, `{"n": first}` and so on; returns their keys."""
    keys = []
    with replay.writer(history=1) as writer:
        for place in range(count):
            writer.append({"n": first + place})
            keys.append(writer.create_item(table, 1, priorities[place] if priorities else 1.0))
    return keys


def assert_has_interface(interface: type, found: object) -> None:
    """Fails if a public member is missing, or a call takes other arguments."""
    for name in dir(interface):
        if name.startswith("_"):
            continue
        assert hasattr(found, name), f"{type(found).__name__} has no {name}"
        wanted = getattr(interface, name)
        if not inspect.isfunction(wanted):
            continue
        expected = list(inspect.signature(wanted).parameters.values())[1:]
        takes = inspect.signature(getattr(found, name)).parameters
        for each in expected:
            assert each.name in takes, f"{name} takes no {each.name}"
            got = takes[each.name]
            assert (got.default, got.kind) == (each.default, each.kind), f"{name}: {got}, expected {each}"


def _table(name: str = "t", *, sampler: Any = None, max_size: int = 1000, **settings: Any) -> Table:
    return Table(name, sampler=sampler or Fifo(), remover=Fifo(), max_size=max_size, **settings)


def _calls_of(replay: ReplayLike) -> list[Callable[[], Any]]:
    return [
        replay.check_open,
        replay.writer,
        replay.row_writer,
        replay.statistics,
        lambda: replay.table("t"),
        lambda: replay.sample("t", 1),
        lambda: replay.update_priorities("t", [1], [1.0]),
        lambda: replay.delete("t", [1]),
        lambda: replay.get("t", [1]),
        lambda: replay.items("t"),
        lambda: replay.reset("t"),
        lambda: replay.can_insert("t"),
        lambda: replay.can_sample("t"),
    ]


def _until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread does; it cannot be asked to tell."""
    deadline = time.monotonic() + _ACROSS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        threading.Event().wait(0.001)
