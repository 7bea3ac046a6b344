"""A table as large as its store, with every number of lanes (replay C2, C4)."""

import threading
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of


@pytest.mark.parametrize(("capacity", "lanes"), [(1000, 1), (1000, 64), (200, 8), (100, 4), (640, 7)])
def test_a_table_as_large_as_the_capacity_goes_on_for_ever(capacity: int, lanes: int):
    signature = hr.Signature.like({"number": np.int64(0)})
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=capacity)
    with hr.Replay(signature, [table], capacity=capacity, seed=0) as replay:
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(3 * capacity // lanes):
                writer.append({"number": number if lanes == 1 else np.full(lanes, number)})
        assert len(replay.table("t")) == capacity


def one_in_a_table(name: str = "t") -> hr.Table:
    fifo = hr.selectors.Fifo()
    return hr.Table(name, sampler=fifo, remover=fifo, max_size=1)


NUMBER = hr.Signature.like({"number": np.int64(0)})


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("final", [True, False])
def test_a_writer_holds_nothing_of_episodes_that_no_item_can_reach(lanes: int, final: bool):
    """C4: however long its history may be, a lane's later items lie in its current episode."""
    shape = () if lanes == 1 else (lanes,)
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=600, seed=0) as replay:
        with replay.writer(lanes=lanes, history=100_000) as writer:
            for episode in range(300):
                length = 1 + episode % 40
                for number in range(length):
                    writer.append({"number": np.full(shape, 100 * episode + number)})
                writer.end_episode({"number": np.full(shape, -1)} if final else None)
                # Until the lane goes on the whole episode is in reach.
                writer.create_item("t", length + final, lane=lanes - 1)
                numbers = np.ravel(replay.sample("t", 1).data["number"])
                expected = list(range(100 * episode, 100 * episode + length)) + [-1] * final
                assert numbers.tolist() == expected
            assert replay.statistics().store.pages <= 12


def test_an_ended_episode_stays_in_reach_while_its_lane_does_not_go_on():
    """A step that is refused at the turn of a page takes nothing away."""
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=320, seed=0) as replay:
        with replay.writer(history=100_000) as writer:
            page_rows = 10
            for number in range(3 * page_rows):
                writer.append({"number": number})
            assert replay.statistics().store.pages == 3
            writer.end_episode()
            with pytest.raises(hr.SpecError):
                writer.append({"number": "one"})
            with replay.writer() as other:  # Takes what is free.
                for _ in range(page_rows):
                    other.append({"number": -1})
            writer.create_item("t", 3 * page_rows)
            assert replay.sample("t", 1).data["number"][0].tolist() == list(range(3 * page_rows))


def test_lanes_that_go_on_hold_what_is_theirs():
    """One lane's episodes are short, another's is one long one."""
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=4000, seed=0) as replay:
        with replay.writer(lanes=2, history=100_000) as writer:
            for number in range(500):
                writer.append({"number": np.array([number, number])})
                if number % 7 == 6:
                    writer.end_episode(lane=0)
            writer.create_item("t", 500, lane=1)
            assert replay.sample("t", 1).data["number"][0].tolist() == list(range(500))


def test_windows_over_the_ends_of_episodes_keep_their_rows():
    rule = hr.ItemRule("t", 200, 1, hr.EndOfEpisode.CONTINUE)
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=1000, seed=0) as replay:
        with replay.writer(items=[rule]) as writer:
            for number in range(1000):
                writer.append({"number": number})
                if number % 5 == 4:
                    writer.end_episode()
                if number >= 199:
                    found = replay.sample("t", 1).data["number"][0]
                    assert found.tolist() == list(range(number - 199, number + 1))


def test_room_may_be_asked_for_before_something_else_is_changed():
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=32, seed=0) as replay:
        with replay.writer(history=100_000) as writer:
            with pytest.raises(hr.StoreFull):  # noqa: PT012
                while True:
                    writer._rows.make_room()
                    writer.append({"number": 1})
        with pytest.raises(hr.Closed):
            writer._rows.make_room()


def test_room_for_several_steps_is_room_that_steps_and_ends_find():
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=64, seed=0) as replay:
        with replay.writer(history=100_000) as writer:
            rows, appended = writer._rows, 0
            with pytest.raises(hr.StoreFull):  # noqa: PT012
                while True:
                    rows.make_room(3)
                    writer.append({"number": 1})
                    appended += 1
            for _ in range(2):
                writer.append({"number": 1})
            with pytest.raises(hr.StoreFull):
                writer.append({"number": 1})
            assert appended > 50
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=64, seed=0) as replay:
        with replay.writer(history=100_000) as writer:
            rows = writer._rows
            with pytest.raises(hr.StoreFull):  # noqa: PT012
                while True:
                    rows.make_room(2)
                    writer.append({"number": 1})
            writer.end_episode({"number": 2})


def test_an_episode_that_fills_the_store_can_be_dropped():
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=64, seed=0) as replay:
        with replay.writer(history=100_000) as writer:
            for _ in range(3):
                with pytest.raises(hr.StoreFull):  # noqa: PT012
                    while True:
                        writer.append({"number": 1})
                writer._rows.drop_open_lanes()
                with pytest.raises(ValueError, match="the last 1 rows"):
                    writer.create_item("t", 1)
            writer.append({"number": 7})
            writer.create_item("t", 1)
            assert replay.sample("t", 1).data["number"].tolist() == [7]


def test_a_forgotten_writer_waits_for_nobody():
    """replay I8: a finalizer runs anywhere, also where another thread that holds the lock waits for this one."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"n": 0}), [table], capacity=4000) as replay:
        writers = [replay.writer(lanes=1000, items=[hr.ItemRule("t", 1)])]
        allowed = core_of(replay).store._row_budget
        writers[0].append({"n": np.zeros(1000, np.int64)})
        assert replay.statistics().store.pages > 1, "the lanes stand in several blocks"
        forgotten = threading.Thread(target=writers.clear, daemon=True)
        with core_of(replay).lock:
            forgotten.start()
            forgotten.join(10)
            assert not forgotten.is_alive()
        replay.reset("t")
        assert replay.statistics().store.pages == 0
        assert core_of(replay).store._row_budget < allowed


def write_episode(replay: hr.Replay, lanes: int, first: int, length: int = 3) -> None:
    with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
        for number in range(first, first + length):
            writer.append({"number": number if lanes == 1 else np.full(lanes, number)})
        for lane in range(lanes):
            writer.end_episode(lane=lane)


@pytest.mark.parametrize("lanes", [1, 3, 40])
def test_a_writer_an_episode_fills_a_store_as_one_writer_does(lanes: int):
    """C2: a writer that is closed leaves the rest of its page to the next one."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=fifo, max_size=1000)
    with hr.Replay(NUMBER, [table], capacity=1000, seed=0) as replay:
        for episode in range(3000 // 3 // lanes):
            write_episode(replay, lanes, 10 * episode)
        assert len(replay.table("t")) == min(1000, 3000 // 3 // lanes * 3 * lanes)


def test_no_view_looks_from_one_writer_to_the_next():
    """B5: episodes of several writers in one page are as far apart as those of one."""
    with hr.Replay(NUMBER, [hr.Table.uniform(1000, name="t")], capacity=1000, seed=0) as replay:
        for episode in range(20):
            write_episode(replay, 1, 10 * episode + 1)
        assert replay.statistics().store.pages <= 3
        views = {
            "here": hr.View("number"),
            "before": hr.View("number", shift=-1),
            "after": hr.View("number", shift=1),
        }
        data = replay.sample("t", 500, views=views).data
    here, step = data["here"], data["here"] % 10
    np.testing.assert_array_equal(data["before"], np.where(step == 1, 0, here - 1))
    np.testing.assert_array_equal(data["after"], np.where(step == 3, 0, here + 1))


def test_writers_beside_one_another_leave_their_pages_to_as_many():
    """C2"""
    with hr.Replay(NUMBER, [hr.Table.uniform(1000, name="t")], capacity=1000, seed=0) as replay:
        for number in range(100):
            writers = [replay.writer(items=[hr.ItemRule("t", 1)]) for _ in range(5)]
            for writer in writers:
                writer.append({"number": number})
            for writer in writers:
                writer.end_episode()
                writer.close()
        assert len(replay.table("t")) == 500


def test_a_page_that_windows_may_look_beyond_is_not_left():
    """I6, I7: windows go on over the ends of episodes."""
    window = hr.ItemRule("t", 2, end=hr.EndOfEpisode.CONTINUE)
    with hr.Replay(NUMBER, [hr.Table.uniform(1000, name="t")], capacity=1000, seed=0) as replay:
        for number in (1, 11):
            with replay.writer(items=[window]) as writer:
                writer.append({"number": number})
                writer.append({"number": number + 1})
                writer.end_episode()
        assert replay.statistics().store.pages == 2


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("way", ["closed", "left by an exception"])
def test_a_writer_closed_in_an_episode_leaves_its_page(lanes: int, way: str):
    """C2, B5: no view looks beyond its last row, although rows of later writers stand behind it in the page."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=1000)
    with hr.Replay(NUMBER, [table], capacity=1000) as replay:
        for life in range(50):
            with suppress(RuntimeError), replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
                for number in range(10 * life + 1, 10 * life + 4):
                    writer.append({"number": number if lanes == 1 else np.full(lanes, number)})
                if way != "closed":
                    raise RuntimeError
        assert replay.statistics().store.pages <= (50 * 3 * lanes) // 30 + 2
        views = {"number": hr.View("number", shift="-4:4")}
        found = [item["number"].reshape(-1).tolist() for item in replay.items("t", views=views)]
    for row in found:
        here = row[4]
        known = [here + shift if 1 <= here % 10 + shift <= 3 else 0 for shift in range(-4, 5)]
        assert row == known


def test_a_page_is_not_left_once_nothing_holds_it():
    """C4: its rows may be written over by others."""
    with hr.Replay(NUMBER, [one_in_a_table()], capacity=1000, seed=0) as replay:
        write_episode(replay, 1, 1)
        replay.reset("t")
        assert replay.statistics().store.pages == 0
        with replay.writer(items=[hr.ItemRule("t", 2)]) as writer:
            writer.append({"number": 5})
            write_episode(replay, 1, 11)
            writer.append({"number": 6})
            assert replay.sample("t", 1).data["number"].tolist() == [[5, 6]]
