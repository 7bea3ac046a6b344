"""A system that gives no memory for more items: StoreFull, and nothing that was there is lost (replay C3)."""

import mmap

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import Queue
from headrace.tables.description.selectors import Fifo, Uniform

SIGNATURE = hr.Signature.like({"x": 0})


@pytest.fixture
def refuse(monkeypatch):
    """From its call on the system has no memory to map; what it returns ends that."""

    def begin():
        def no_memory(*arguments, **options):
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr(mmap, "mmap", no_memory)
        return monkeypatch.undo

    return begin


def make(**options):
    return hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=5000, **options)], seed=0
    )


def stored(replay):
    live = core_of(replay).live_table("t")
    rows = live.ring.arrays.rows[live.ring._live_slots()]
    return core_of(replay).store.columns["x"][rows].tolist()


@pytest.mark.parametrize("lanes", [1, 7])
def test_c3_steps_whose_items_find_no_memory(refuse, lanes):
    """The items that went in before are counted, the others are not there, and the writer goes on."""
    with make() as replay:
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        writer = replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)])
        values = np.arange(capacity // lanes * lanes).reshape(-1, lanes)
        for row in values:
            writer.append({"x": row if lanes > 1 else row[0]})
        end = refuse()
        with pytest.raises(hr.StoreFull, match=r"expected room for \d+ bytes.*Cannot allocate") as caught:
            writer.append({"x": np.full(lanes, 9000) if lanes > 1 else 9000})
        assert isinstance(caught.value.__cause__, OSError)
        expected = [*values.reshape(-1).tolist(), *[9000] * (capacity - values.size)]
        assert stored(replay) == expected
        counts = replay.table("t").statistics()
        assert (counts.size, counts.inserts, counts.deletes) == (capacity, capacity, 0)
        end()
        writer.append({"x": np.full(lanes, 9001) if lanes > 1 else 9001})
        assert stored(replay) == expected + [9001] * lanes
        assert replay.table("t").statistics().inserts == capacity + lanes
        writer.close()


@pytest.mark.parametrize("ends", [False, True])
def test_c3_windows_that_find_no_memory_hold_no_pages(refuse, ends):
    """A step that is stored, and an episode that is over, stay so; the windows that were not made hold nothing."""
    step = {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=5000)
    with hr.Replay(hr.Signature.like(step), [table], seed=0) as replay:
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        rule = hr.ItemRule("t", length=2, stride=1, end=hr.EndOfEpisode.TRUNCATE)
        writer = hr.StepWriter(replay, [rule], lanes=3, autoreset="disabled")
        writer.add_first(np.zeros(3, np.int64))

        def add(terminated):
            flags = np.full(3, terminated), np.zeros(3, np.bool_)
            writer.add(np.zeros(3, np.int64), np.zeros(3), *flags, np.zeros(3, np.int64))

        while len(replay.table("t")) <= capacity - 3:
            add(False)
        room = capacity - len(replay.table("t"))
        end = refuse()
        # A last step of three lanes makes three more, of the ends.
        missing = 3 - room + 3 * ends
        with pytest.raises(
            hr.StoreFull, match=f"The step itself was stored.* {missing} items of it were not"
        ):
            add(ends)
        end()
        counts = replay.table("t").statistics()
        assert (counts.size, counts.inserts) == (capacity, capacity)
        writer.reset()
        writer.close()
        everything = replay.sample("t", 1).info.keys  # The rows of what is there can be read.
        assert len(everything) == 1
        assert replay.delete("t", np.arange(counts.inserts + 100, dtype=np.uint64)) >= capacity
        assert replay.statistics().store.pages == 0


def item_rules(count):
    return [hr.ItemRule(name, 1) for name in ("t", "u")[:count]]


def two_tables(columns):
    tables = [hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=5000) for name in ("t", "u")]
    return hr.Replay(hr.Signature.like(columns), tables, seed=0)


@pytest.mark.parametrize("lanes", [None, 3])
@pytest.mark.parametrize("rules", [1, 2])
@pytest.mark.parametrize("ends", [False, True])
def test_c3_a_step_writer_goes_on_after_the_step_that_is_stored(refuse, rules, ends, lanes):
    """The next row begins with the observation that followed that step, and each key is told that has an item."""
    columns = {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    with two_tables(columns) as replay:
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        mode = {} if lanes is None else {"lanes": lanes, "autoreset": "same_step"}
        writer = hr.StepWriter(replay, item_rules(rules), **mode)
        told, number = [], 0

        def every(value):
            return value if lanes is None else np.full(lanes, value)

        def add(terminated=False):
            nonlocal number
            last = {"final_observation": every(number + 1)} if lanes and terminated else {}
            number += 1
            told.extend(
                writer.add(every(number), every(0.0), every(terminated), every(False), every(number), **last)
            )

        writer.add_first(every(0))
        while len(replay.table("t")) + (lanes or 1) <= capacity:
            add()
        end = refuse()
        with pytest.raises(hr.StoreFull, match="The step itself was stored: do not send it again"):
            add(ends)
        end()
        if ends and lanes is None:
            writer.add_first(every(number))
        add()
        rows = (
            core_of(replay)
            .live_table("t")
            .ring.arrays.rows[core_of(replay).live_table("t").ring._live_slots()]
        )
        last = rows[-(lanes or 1) :]
        assert core_of(replay).store.columns["observation"][last].tolist() == [number - 1] * (lanes or 1)
        assert core_of(replay).store.columns["action"][last].tolist() == [number] * (lanes or 1)
        counts = [replay.table(rule.table).statistics() for rule in item_rules(rules)]
        assert len(set(told)) == len(told) == sum(each.inserts for each in counts)
        assert writer.statistics().items_written == len(told)
        keys = np.array(told, np.uint64)
        assert sum(replay.delete(rule.table, keys) for rule in item_rules(rules)) == len(told)
        writer.close()
        assert replay.statistics().store.pages == 0


@pytest.mark.parametrize("tables", ["t", ["t", "u"]])
def test_c3_an_observer_goes_on_after_the_frame_that_is_stored(refuse, tables):
    """O6: the frame that comes next continues it; a frame that was sent again would not."""
    frame = hr.Trajectory(0, 0.0, 0, (), 1, np.float32(0), np.float32(1))
    with two_tables(frame) as replay:
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        observer = hr.AddTrajectoryObserver(replay, tables, sequence_length=1)
        told = []

        def see(number):
            told.extend(observer(frame._replace(step_type=min(number, 1), observation=float(number))))

        for number in range(capacity):
            see(number)
        end = refuse()
        with pytest.raises(hr.StoreFull, match="The step itself was stored: do not send it again"):
            see(capacity)
        end()
        see(capacity + 1)
        assert observer.statistics().steps_written == capacity + 2
        inserts = sum(replay.table(name).statistics().inserts for name in ("t", "u"))
        assert len(set(told)) == len(told) == inserts == observer.statistics().items_written
        observer.close()


@pytest.mark.parametrize("tables", ["t", ["t", "u"]])
def test_c3_an_episode_that_finds_no_memory_is_over(refuse, tables):
    """E1: the next episode is recorded whole, and its frames stand in no other."""
    frame = hr.Trajectory(0, 0.0, 0, (), 2, np.float32(0), np.float32(1))
    with two_tables(frame) as replay:
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        observer = hr.AddEpisodeObserver(replay, tables, max_sequence_length=2)
        told = []

        def see(number):
            told.extend(observer(frame._replace(observation=float(number))))
            told.extend(observer(frame._replace(step_type=2, next_step_type=0, observation=number + 0.5)))

        for number in range(capacity):
            see(number)
        end = refuse()
        with pytest.raises(hr.StoreFull, match="The step itself was stored: do not send it again"):
            see(capacity)
        end()
        see(capacity + 1)
        for name in ("t", "u")[: len(tables)]:
            ring = core_of(replay).live_table(name).ring
            assert ring.window.tolist() == [2, 0, 0]
            assert not ring.has_windows
            rows = ring.arrays.rows[ring._live_slots()]
            expected = [*range(capacity), capacity + 1]
            assert core_of(replay).store.columns["observation"][rows].tolist() == expected
        assert len(set(told)) == len(told) == (capacity + 1) * len(tables)
        observer.close()


def test_c3_an_item_that_is_made_by_hand_is_refused_and_holds_nothing(refuse):
    with make() as replay:
        writer = replay.writer()
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        for x in range(capacity):
            writer.append({"x": x})
            writer.create_item("t", 1)
        held = core_of(replay).store.arrays.pages.copy()
        end = refuse()
        for _ in range(3):
            with pytest.raises(hr.StoreFull, match="Cannot allocate"):
                writer.create_item("t", 1)
        np.testing.assert_array_equal(core_of(replay).store.arrays.pages, held)
        end()
        writer.create_item("t", 1)
        assert len(replay.table("t")) == replay.table("t").statistics().inserts == capacity + 1
        writer.close()


def test_c3_pending_items_stay_pending(refuse):
    """Whoever opens the gate has its batch; what finds no memory waits on, and nothing is counted that is not there."""
    with make(rate_limiter=Queue(1024), max_times_sampled=0) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)], max_pending=5000)
        for x in range(2000):
            writer.append({"x": x})
        live = core_of(replay).live_table("t")
        assert (len(replay.table("t")), writer.pending) == (1024, 976)
        end = refuse()
        assert len(replay.sample("t", 500).info.keys) == 500
        counts = replay.table("t").statistics()
        assert counts.size == counts.inserts == 2000 - writer.pending
        assert counts.pending_inserts == writer.pending > 0
        end()
        with core_of(replay).lock:
            live.apply_pending()
        replay.sample("t", 1000)
        assert (len(replay.table("t")), writer.pending) == (2000, 0)
        assert stored(replay) == list(range(2000))
        writer.close()


def test_a_reservation_that_is_refused_says_for_what(refuse):
    end = refuse()
    with pytest.raises(
        hr.StoreFull, match=r"expected room for \d+ bytes, reserved for \d+ rows.*Cannot"
    ) as caught:
        make()
    assert isinstance(caught.value.__cause__, OSError)
    end()
