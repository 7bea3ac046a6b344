"""Windows over the seams of episodes (trajectories A10, W1 CONTINUE): every row of a lane, final rows included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_steps import append_marked
from plain_kernels import fewer

import headrace as hr
from headrace.spec import ArraySpec, Signature
from headrace.tables.description.selectors import Fifo
from headrace.trajectories.windows import windows

CONTINUE = hr.EndOfEpisode.CONTINUE
SIGNATURE = Signature({"number": ArraySpec((), np.int64), "observation": ArraySpec((), np.int64)})


def queue(capacity: int | None = None, max_size: int = 1000, times: int = 1) -> hr.Replay:
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=max_size, max_times_sampled=times)
    return hr.Replay(SIGNATURE, [table], capacity=capacity, seed=0)


def take_all(replay: hr.Replay) -> list[list[int]]:
    taken = []
    while len(replay.table("t")):
        batch = replay.sample("t", 1, timeout=0)
        assert batch.mask is None
        taken.append(np.atleast_1d(batch.data["observation"][0]).tolist())
    return taken


def step(number, lanes=None):
    value = number if lanes is None else np.asarray(number, np.int64)
    return {"number": value, "observation": value}


def test_the_example_of_the_specification():
    # A10: two episodes of 3 (second from 100), L = 5, P = 2
    with queue() as replay, replay.writer(items=[hr.ItemRule("t", 5, 2, CONTINUE)]) as writer:
        for begin, final in ((0, 3), (100, 103)):
            for number in range(begin, begin + 3):
                writer.append(step(number))
            writer.end_episode({"observation": final})
        assert take_all(replay) == [[0, 1, 2, 3, 100], [2, 3, 100, 101, 102]]


@settings(max_examples=fewer(60))
@given(
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(1, 4),
    st.sampled_from([None, *(32 * rows for rows in (4, 5, 7, 16))]),
    st.data(),
)
def test_random_streams(length: int, stride: int, lanes: int, capacity: int | None, data: st.DataObject):
    """A10, W5: final rows in the lane and beside it, lanes that wait, streams that end."""
    replay = queue(capacity)
    writer = replay.writer(lanes, items=[hr.ItemRule("t", length, stride, CONTINUE)])
    streams: list[list[int]] = [[] for _ in range(lanes)]
    made = [0] * lanes
    since_end = [0] * lanes
    waiting = [False] * lanes
    waited = [False] * lanes
    number = 0

    def due() -> list[list[int]]:
        fresh = []
        for lane, rows in enumerate(streams):
            # W6: a rule of one row has no window of a final row.
            whole = windows(len(rows), length, stride, CONTINUE)
            fresh += [rows[start : start + length] for start, _, _ in whole[made[lane] :]]
            made[lane] = len(whole)
        return fresh

    for _ in range(data.draw(st.integers(1, 24))):
        numbers = np.arange(number + 1, number + 1 + lanes)
        number += lanes
        # A lane of several may hold nothing in this step, or its own final row.
        idle = np.array([waiting[lane] and data.draw(st.booleans()) for lane in range(lanes)])
        final = np.array([since_end[lane] > 0 and data.draw(st.integers(0, 4)) == 0 for lane in range(lanes)])
        given = ("number", "observation")
        if lanes > 1 and (idle.any() or final.any()):
            append_marked(writer, step(numbers, lanes), final, idle, given)
        else:
            idle[:] = final[:] = False
            writer.append(step(numbers if lanes > 1 else int(numbers[0])))
        for lane in range(lanes):
            if idle[lane] and waited[lane]:
                streams[lane], made[lane] = [], 0  # It waits longer than for a reset.
            waited[lane] = bool(idle[lane])
            if idle[lane]:
                continue
            if not (final[lane] and length == 1):
                streams[lane].append(int(numbers[lane]))
            since_end[lane] = 0 if final[lane] else since_end[lane] + 1
            waiting[lane] = bool(final[lane])
        assert sorted(take_all(replay)) == sorted(due())
        for lane in range(lanes):
            if since_end[lane] and data.draw(st.integers(0, 3)) == 0:
                waiting[lane] = data.draw(st.booleans())
                if waiting[lane]:
                    number += 1
                    writer.end_episode(step(number), lane=lane)
                    if length > 1:
                        streams[lane].append(number)
                else:
                    writer.end_episode(lane=lane)
                since_end[lane] = 0
                assert take_all(replay) == due()
        if data.draw(st.integers(0, 9)) == 0:
            writer._rows.cut_open_lanes()
            for lane in range(lanes):
                if since_end[lane]:
                    streams[lane], made[lane], since_end[lane], waiting[lane] = [], 0, 0, True
            assert take_all(replay) == []
    writer.close()
    # Nothing that the items held stays behind.
    assert replay.statistics().store.pages == 0
    replay.close()


@pytest.mark.parametrize("lanes", [1, 3])
def test_rows_of_a_stream_stay_as_long_as_its_items(lanes: int):
    """Replay I8: the window spans pages of a small store, and the final row beside the lanes stays."""
    with queue(capacity=32 * lanes, max_size=5, times=0) as replay:
        with replay.writer(lanes, items=[hr.ItemRule("t", 4, 1, CONTINUE)]) as writer:
            for number in range(200):
                value = np.arange(lanes) * 1000 + number
                writer.append(step(value if lanes > 1 else int(value[0])))
                if number % 3 == 2:
                    final = value + 500
                    writer.end_episode(step(final if lanes > 1 else int(final[0])))
            data = replay.sample("t", 5).data["observation"]
            rows: list[int] = []
            for number in range(200):
                rows += [number] + ([number + 500] if number % 3 == 2 else [])
            ends = {tuple(rows[end - 4 : end]) for end in range(len(rows) - 5, len(rows) + 1)}
            assert {tuple(int(value) % 1000 for value in window) for window in data.tolist()} <= ends


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
def test_views_stop_at_the_seam():
    # A10: the window follows the lane past the end, views do not
    with queue() as replay, replay.writer(items=[hr.ItemRule("t", 4, 4, CONTINUE)]) as writer:
        for number in (1, 2):
            writer.append(step(number))
        writer.end_episode(step(3))
        writer.append(step(100))
        views = {
            "next": hr.View("observation", shift=1, fill=-1),
            "last": hr.View("observation", shift=-1, fill=-1),
        }
        batch = replay.sample("t", 1, views=views)
        assert batch.data["next"].tolist() == [[2, 3, -1, -1]]
        assert batch.data["last"].tolist() == [[-1, 1, 2, -1]]


def test_a_writer_waits_only_for_items_that_the_next_row_makes():
    # Replay I4
    table = hr.Table.queue("q", 1)
    with hr.Replay(SIGNATURE, [table]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 2, 2, CONTINUE)], max_pending=1, timeout=0.0) as writer:
            for number in range(4):
                writer.append(step(number))  # the second item is pending
            writer.append(step(4))
            with pytest.raises(hr.DeadlineExceeded):
                writer.append(step(5))
            assert replay.sample("q", 1).data["observation"].tolist() == [[0, 1]]
            writer.append(step(5))
            assert replay.sample("q", 1).data["observation"].tolist() == [[2, 3]]
            assert replay.sample("q", 1).data["observation"].tolist() == [[4, 5]]
