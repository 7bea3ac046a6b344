"""Writers: steps in, rows and items out (replay I1, I2, I6 to I8, C1 to C4)."""

from typing import NamedTuple

import numpy as np
import pytest
from marked_steps import append_marked

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.selectors import Fifo, Lifo

SIGNATURE = hr.Signature.like(
    {"observation": np.zeros(2, np.float32), "reward": np.float32(0), "n": np.int64(0)}
)


def step(number, lanes=None):
    number = np.asarray(number)
    assert number.shape == (() if lanes is None else (lanes,))
    return {
        "observation": np.stack([number, -number], -1).astype(np.float32),
        "reward": np.asarray(number / 4, np.float32),
        "n": number.astype(np.int64),
    }


def new_replay(*tables, signature=SIGNATURE, **settings):
    tables = tables or [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=100_000, max_times_sampled=1)]
    return hr.Replay(signature, tables, seed=0, **settings)


def all_items(replay, table="t"):
    """The items in their order as lists of `n`; checks that the other columns of their rows agree or are zeros."""
    found = []
    for _ in range(len(replay.table(table))):
        batch = replay.sample(table, 1)
        n = np.atleast_1d(batch.data["n"][0])
        observation = batch.data["observation"].reshape(-1, 2)
        assert (observation[:, 0] == -observation[:, 1]).all()
        rows = n != 0
        assert (observation[rows, 0] == n[rows]).all()
        assert (batch.data["reward"].reshape(-1) == np.where(rows, n / 4, 0)).all()
        found.append([int(a) if a else int(b) for a, b in zip(n, 1000 * observation[:, 0], strict=True)])
    return found


# ---- steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 3, 64])
def test_many_lanes_are_appended_together(lanes):
    with new_replay() as replay:
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 2)]) as writer:
            assert writer.lanes == lanes
            for number in range(1, 6):
                writer.append(step(np.arange(lanes) * 100 + number, lanes))
        assert all_items(replay) == [
            [lane * 100 + number, lane * 100 + number + 1] for number in range(1, 5) for lane in range(lanes)
        ]


class Meddling:
    """A value that does something when it is read."""

    def __init__(self, value, meddle):
        self.value, self.meddle = value, meddle

    def __array__(self, dtype=None, copy=None):
        self.meddle()
        return self.value


def fill_its_page(writer, lanes):
    kernel = writer._rows._only_lanes
    while not kernel.is_full():
        writer.append(step(*lanes))


@pytest.mark.parametrize("meddle", ["append", "fill its page", "close"])
@pytest.mark.parametrize("lengths", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_value_that_uses_the_writer_is_refused(meddle, lengths, lanes):
    """The row that the step was to have is another's then, or no longer the writer's: beside it may be anybody's."""
    tables = [hr.Table(f"t{length}", sampler=Fifo(), remover=Fifo(), max_size=10_000) for length in (1, 2)]
    with new_replay(*tables, capacity=4_000) as replay:
        items = [hr.ItemRule(f"t{length}", length) for length in lengths]
        writer, zeros = replay.writer(lanes=lanes, items=items), np.zeros(lanes) if lanes > 1 else 0.0
        given = (zeros, None if lanes == 1 else lanes)
        for _ in range(2):
            writer.append(step(*given))
        actions = {
            "append": lambda: writer.append(step(*given)),
            "fill its page": lambda: fill_its_page(writer, given),
            "close": writer.close,
        }
        with pytest.raises(RuntimeError, match="used or closed while it read a step"):
            writer.append(step(*given) | {"n": Meddling(step(*given)["n"], actions[meddle])})
        sizes, stored = [len(replay.table(table.name)) for table in tables], replay.statistics().store.rows
        assert stored <= core_of(replay).store.arrays.page_rows
        if meddle == "append":
            assert stored == 3 * lanes
            assert sizes == [(3 if 1 in lengths else 0) * lanes, (2 if 2 in lengths else 0) * lanes]
        if meddle != "close":
            writer.append(step(*given))
            assert replay.statistics().store.rows == stored + lanes


def test_more_lanes_than_a_page_has_rows():
    # Several blocks: pages of 4 rows and 10 lanes
    with new_replay(capacity=4 * 32) as replay:
        assert core_of(replay).store.arrays.page_rows == 4
        with replay.writer(lanes=10, items=[hr.ItemRule("t", 3)], history=5) as writer:
            for number in range(1, 5):
                writer.append(step(np.arange(10) * 100 + number, 10))
            writer.end_episode(lane=9)
            writer.end_episode({"observation": np.float32([7, -7])}, lane=4)
            writer.append(step(np.arange(10) * 100 + 5, 10))
            assert writer.create_item("t", 5, lane=8) > 0
            with pytest.raises(ValueError, match="length"):
                writer.create_item("t", 2, lane=9)
        items = all_items(replay)
        assert sorted(items[:20]) == sorted(
            [lane * 100 + number + k for k in range(3)] for number in (1, 2) for lane in range(10)
        )
        assert items[20] == [403, 404, 7000]
        others = [lane for lane in range(10) if lane not in (4, 9)]
        assert sorted(items[21:-1]) == [[lane * 100 + 3 + k for k in range(3)] for lane in others]
        assert items[-1] == [801, 802, 803, 804, 805]


class Pair(NamedTuple):
    left: object
    right: object


def test_nested_signatures():
    tree = {
        "a": (np.int32(0), {"b": np.zeros((2, 2), np.float64)}),
        "pair": Pair(np.uint8(0), np.bool_(False)),
    }
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10, max_times_sampled=1)
    with hr.Replay(hr.Signature.like(tree), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(3):
                writer.append(
                    {"a": (number, {"b": np.full((2, 2), number)}), "pair": Pair(number, bool(number))}
                )
            with pytest.raises(hr.SpecError, match="a/1/b"):
                writer.append({"a": (1, {"b": np.zeros(2)}), "pair": Pair(1, True)})
        data = replay.sample("t", 3).data
        assert data["a"][0].tolist() == [0, 1, 2]
        assert data["a"][1]["b"].tolist() == [[[n, n], [n, n]] for n in (0.0, 1.0, 2.0)]
        assert type(data["pair"]).__name__ == "Pair"
        assert data["pair"].left.tolist() == [0, 1, 2]
        assert data["pair"].right.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"observation": np.zeros(3, np.float32)}, "observation"),
        ({"observation": "text"}, "observation"),
        ({"n": 2.5}, "n"),
        ({"n": None}, "n"),
        ({"reward": np.zeros(1, np.float32)}, "reward"),
        ({"reward": 1 + 2j}, "reward"),
    ],
)
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_step_that_does_not_fit_stores_nothing_and_the_writer_goes_on(wrong, path, lanes):
    # I7
    good = [step(number) if lanes == 1 else step(np.full(3, number), 3) for number in (1, 2)]
    with new_replay() as replay:
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 2)]) as writer:
            writer.append(good[0])
            before = replay.statistics()
            bad = {**good[1], **wrong}
            if lanes == 3 and isinstance(bad[path], np.ndarray):
                bad[path] = np.stack([bad[path]] * 3)
            with pytest.raises(hr.SpecError, match=path):
                writer.append(bad)
            assert replay.statistics() == before
            writer.append(good[1])
        assert all_items(replay) == [[1, 2]] * lanes


@pytest.mark.parametrize("missing", ["observation", "reward"])
def test_a_missing_or_unknown_column_is_a_spec_error(missing):
    # I7
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        bad = step(1)
        del bad[missing]
        with pytest.raises(hr.SpecError, match=missing):
            writer.append(bad)
        with pytest.raises(hr.SpecError, match="more"):
            writer.append({**step(1), "more": 1})
        writer.append(step(2))
        assert all_items(replay) == [[2]]


def test_what_was_appended_may_change_afterwards():
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        buffer = step(1)
        for number in range(1, 4):
            buffer["observation"][:] = number, -number
            buffer["reward"] = np.float32(number / 4)
            buffer["n"] = number
            writer.append(buffer)
        buffer["observation"][:] = 99
        assert all_items(replay) == [[1], [2], [3]]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_step_written_while_the_rows_move_is_whole(lanes, monkeypatch):
    """A collector shares the rows between a writer's copy and its lock: what was copied may have stayed behind."""
    with new_replay() as replay, replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(step(np.arange(lanes) if lanes > 1 else 1, lanes if lanes > 1 else None))
        write, written = writer._rows._write, []

        def write_and_move(row, values):
            write(row, values)
            written.append(row)
            if len(written) == 1:
                core_of(replay).store.share()
                for column in core_of(replay).store.columns.values():
                    column[row : row + lanes] = 0

        monkeypatch.setattr(writer._rows, "_write", write_and_move)
        numbers = 7 + np.arange(lanes)
        writer.append(step(numbers if lanes > 1 else 7, lanes if lanes > 1 else None))
        writer.append(step(numbers if lanes > 1 else 7, lanes if lanes > 1 else None))
        assert written[0] == written[1] != written[2]
        for row in {written[0], written[2]}:
            assert core_of(replay).store.columns["n"][row : row + lanes].tolist() == numbers.tolist()
            assert core_of(replay).store.columns["observation"][row, 0] == 7


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_checked_step_written_while_the_rows_move_is_whole(lanes, monkeypatch):
    """As above, on the way of step writers: a row is whole or not visible (replay B5)."""
    signature = hr.Signature.like(
        {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    )
    with hr.Replay(signature, [hr.Table.queue("t", 100)]) as replay:
        mode = {} if lanes == 1 else {"lanes": lanes, "autoreset": "next_step"}
        writer = hr.StepWriter(replay, [hr.ItemRule("t", 1)], **mode)
        every = np.zeros(lanes, np.int64) if lanes > 1 else 0
        writer.add_first(every + 5)
        rows = writer._writer._rows
        write, written = rows.put, []

        def write_and_move(row, values):
            write(row, values)
            written.append(row)
            if len(written) == 1:
                core_of(replay).store.share()
                for column in core_of(replay).store.columns.values():
                    column[row : row + lanes] = 0

        monkeypatch.setattr(rows, "put", write_and_move)
        for action in (7, 8):
            writer.add(every + action, every + 1.0, every != 0, every != 0, every + 6)
        assert written[0] == written[1] != written[2]
        data = replay.sample("t", 2 * lanes).data
        assert data["action"].tolist() == [7] * lanes + [8] * lanes
        assert data["observation"].tolist() == [5] * lanes + [6] * lanes
        assert data["reward"].tolist() == [1.0] * 2 * lanes
        writer.close()


def test_rows_written_while_the_rows_move_are_whole(monkeypatch):
    """As above, where many rows are appended at once; they have the writer's policy version (replay B5)."""
    with new_replay() as replay:
        writer = replay.row_writer(items=[hr.ItemRule("t", 1)])
        writer.policy_version = 7
        write, written = writer._put_steps, []

        def write_and_move(rows, *values):
            write(rows, *values)
            written.append(rows)
            if len(written) == 1:
                core_of(replay).store.share()
                for column in core_of(replay).store.columns.values():
                    column[rows] = 0

        monkeypatch.setattr(writer, "_put_steps", write_and_move)
        columns = {name: np.asarray(column) for name, column in step(np.arange(1, 4), 3).items()}
        assert writer.append_rows(columns, np.zeros(3, np.bool_)) == 3
        assert written[0] == written[1]
        batch = replay.sample("t", 3, views={"version": hr.View("policy_version"), "n": hr.View("n")})
        assert (batch.data["n"].tolist(), batch.data["version"].tolist()) == ([1, 2, 3], [7] * 3)
        writer.close()


def test_the_policy_version_goes_with_each_step():
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 1)], lanes=2) as writer:
        for number, version in enumerate([0, 3, 3, 8], 1):
            writer.policy_version = version
            assert writer.policy_version == version
            writer.append(step(np.full(2, number), 2))
        batch = replay.sample("t", 8, views={"version": hr.View("policy_version"), "n": hr.View("n")})
        assert batch.data["version"].tolist() == [0, 0, 3, 3, 3, 3, 8, 8]
        assert batch.data["n"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lanes": 0}, "lanes"),
        ({"max_pending": 0}, "max_pending"),
        ({"history": 0}, "history"),
        ({"history": 4, "items": [hr.ItemRule("t", 3, lookahead=2)]}, "history"),
    ],
)
def test_a_writer_that_cannot_work_is_refused(settings, message):
    with new_replay() as replay, pytest.raises(ValueError, match=message):
        replay.writer(**settings)


# ---- items ---------------------------------------------------------------------------------------------------


def test_create_item_takes_the_last_rows():
    # I1
    with new_replay() as replay, replay.writer(history=6) as writer:
        for number in range(1, 9):
            writer.append(step(number))
        for length in (1, 3, 6):
            writer.create_item("t", length)
        assert all_items(replay) == [[8], [6, 7, 8], [3, 4, 5, 6, 7, 8]]


def test_create_item_of_a_lane():
    # I1
    with new_replay() as replay, replay.writer(lanes=3) as writer:
        for number in range(1, 4):
            writer.append(step(np.arange(3) * 100 + number, 3))
        writer.create_item("t", 2, lane=2)
        writer.create_item("t", 3, lane=0)
        assert all_items(replay) == [[202, 203], [1, 2, 3]]
        for lane in (-1, 3):
            with pytest.raises(ValueError, match="lane"):
                writer.create_item("t", 1, lane=lane)


def test_create_item_refuses_what_is_no_window_and_makes_nothing():
    # I1
    with new_replay() as replay, replay.writer(history=4) as writer:
        with pytest.raises(ValueError, match="length"):
            writer.create_item("t", 1)
        for number in range(1, 4):
            writer.append(step(number))
        for length in (0, -1, 4, 5):
            with pytest.raises(ValueError, match="length"):
                writer.create_item("t", length)
        writer.end_episode()
        writer.append(step(4))
        with pytest.raises(ValueError, match="length"):  # Across the end of the episode.
            writer.create_item("t", 2)
        for number in range(5, 9):
            writer.append(step(number))
        with pytest.raises(ValueError, match="length"):  # Out of reach.
            writer.create_item("t", 5)
        assert replay.table("t").statistics().inserts == 0
        assert writer.create_item("t", 4) == 1
        assert all_items(replay) == [[5, 6, 7, 8]]


def test_after_the_end_the_last_rows_of_the_episode_are_in_reach():
    # I1, I2: until the next step begins another episode; the final row is one of them
    with new_replay() as replay, replay.writer(history=3) as writer:
        writer.append(step(1))
        writer.append(step(2))
        writer.end_episode()
        writer.create_item("t", 2)
        writer.append(step(3))
        writer.end_episode({"observation": [4, -4]})
        writer.create_item("t", 2)
        writer.create_item("t", 1)
        assert all_items(replay) == [[1, 2], [3, 4000], [4000]]


@pytest.mark.parametrize(
    ("capacity", "lanes", "items", "reach"),
    [
        (None, 1, [], 1000),
        (800, 1, [], 200),
        (800, 4, [], 50),
        (100_000, 2, [], 1000),
        (800, 1, [hr.ItemRule("t", 3), hr.ItemRule("t", 2, lookahead=5)], 7),
    ],
)
def test_default_history(capacity, lanes, items, reach):
    # I2
    with new_replay(capacity=capacity) as replay, replay.writer(lanes=lanes, items=items) as writer:
        for number in range(reach + 10):
            writer.append(step(number) if lanes == 1 else step(np.full(lanes, number), lanes))
        writer.create_item("t", reach, lane=lanes - 1)
        with pytest.raises(ValueError, match=str(reach)):
            writer.create_item("t", reach + 1)


def test_a_row_is_stored_once_and_lives_as_long_as_it_is_held():
    # I8: many items over the same rows; they go with the last of them, the writer, and a view
    tables = [hr.Table(name, sampler=Lifo(), remover=Fifo(), max_size=100) for name in "ab"]
    with new_replay(*tables, capacity=640) as replay:
        rules = [hr.ItemRule("a", 5), hr.ItemRule("b", 3)]
        writer = replay.writer(items=rules)
        for number in range(1, 21):
            writer.append(step(number))
        assert replay.statistics().store.rows == 20
        writer.close()
        assert replay.statistics().store.rows == 20
        replay.reset("a")
        assert replay.statistics().store.rows == 20
        view = core_of(replay).store.block(0, "n")
        replay.reset("b")
        held = replay.statistics().store
        assert (held.rows, held.pages) == (20, 1)
        assert view[:, 0].tolist() == list(range(1, 21))
        del view
        assert replay.statistics().store.rows == 0


# ---- ends of episodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [{"observation": np.float32([5, -5])}, np.float32([5, -5]), [5.0, -5.0]])
def test_the_final_observation_alone_or_as_a_partial_step(final):
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 2)]) as writer:
        writer.append(step(1))
        writer.append(step(2))
        writer.end_episode(final)
        writer.append(step(3))
        assert all_items(replay) == [[1, 2], [2, 5000]]


def test_no_final_observation():
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 2)]) as writer:
        for episode in range(3):
            writer.append(step(10 * episode + 1))
            writer.append(step(10 * episode + 2))
            writer.end_episode()
        assert all_items(replay) == [[1, 2], [11, 12], [21, 22]]


def test_several_columns_of_a_final_row():
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 2)]) as writer:
        writer.append(step(1))
        writer.end_episode({"observation": [5, -5], "n": 5, "reward": 1.25})
        assert all_items(replay) == [[1, 5]]


def test_rules_of_length_1_make_no_item_of_a_final_row():
    # I1, trajectories W6
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(step(1))
        writer.end_episode([5, -5])
        writer.append(step(2))
        assert all_items(replay) == [[1], [2]]


def test_ending_all_lanes_or_one():
    with new_replay() as replay, replay.writer(lanes=3, items=[hr.ItemRule("t", 2)], history=4) as writer:
        writer.append(step(np.array([1, 101, 201]), 3))
        writer.end_episode(np.float32([[7, -7], [8, -8], [9, -9]]))
        assert all_items(replay) == [[1, 7000], [101, 8000], [201, 9000]]
        for number in (2, 3):
            writer.append(step(np.arange(3) * 100 + number, 3))
        all_items(replay)
        writer.end_episode(np.float32([6, -6]), lane=1)
        writer.append(step(np.arange(3) * 100 + 4, 3))
        assert all_items(replay) == [[103, 6000], [3, 4], [203, 204]]
        writer.create_item("t", 3, lane=2)
        with pytest.raises(ValueError, match="length"):
            writer.create_item("t", 2, lane=1)
        assert all_items(replay) == [[202, 203, 204]]
        writer.end_episode()
        writer.append(step(np.arange(3) * 100 + 5, 3))
        assert all_items(replay) == []


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_end_without_a_step_is_refused_and_changes_nothing(lanes):
    with new_replay() as replay, replay.writer(lanes=lanes, items=[hr.ItemRule("t", 2)]) as writer:
        with pytest.raises(ValueError, match="no step"):
            writer.end_episode()
        for number in (1, 2):
            writer.append(step(number) if lanes == 1 else step(np.full(lanes, number), lanes))
        if lanes > 1:
            writer.end_episode(lane=1)
            with pytest.raises(ValueError, match=r"lanes \[1\]"):
                writer.end_episode()  # Not one lane is ended.
            writer.append(step(np.full(lanes, 3), lanes))
            assert all_items(replay) == [[1, 2]] * 3 + [[2, 3]] * 2
        else:
            writer.end_episode()
            with pytest.raises(ValueError, match="no step"):
                writer.end_episode()
        for lane in (-1, lanes):
            with pytest.raises(ValueError, match="lane"):
                writer.end_episode(lane=lane)


@pytest.mark.parametrize(
    "final", [{"observation": np.zeros(3)}, {"n": 2.5}, np.zeros(5), {"nope": 1}, {"observation": "x"}]
)
def test_a_final_step_that_does_not_fit_changes_nothing(final):
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 2)]) as writer:
        writer.append(step(1))
        with pytest.raises(hr.SpecError):
            writer.end_episode(final)
        writer.append(step(2))
        assert all_items(replay) == [[1, 2]]


def test_a_step_holds_final_rows_and_lanes_that_wait():
    with new_replay() as replay, replay.writer(lanes=3, items=[hr.ItemRule("t", 2)], history=4) as writer:
        no = np.zeros(3, bool)
        append_marked(writer, step(np.array([1, 101, 201]), 3), no, no, ["observation"])
        # Lane 1 ends with this row, of which only the observation is kept; lane 2 goes on.
        marks = np.array([False, True, False])
        final = step(np.array([2, 9, 202]), 3)
        append_marked(writer, final, marks, no, ["observation"])
        assert all_items(replay) == [[1, 2], [101, 9000], [201, 202]]
        # Lane 1 waits: nothing is stored of it.
        append_marked(writer, step(np.array([3, 77, 203]), 3), no, marks, ["observation"])
        assert all_items(replay) == [[2, 3], [202, 203]]
        writer.create_item("t", 2, lane=1)
        assert all_items(replay) == [[101, 9000]]
        append_marked(writer, step(np.array([4, 110, 204]), 3), no, no, ["observation"])
        writer.append(step(np.array([5, 111, 205]), 3))
        assert all_items(replay) == [[3, 4], [203, 204], [4, 5], [110, 111], [204, 205]]


# ---- capacity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 5, 31, 64, 1000, 5000])
def test_capacity_rows_are_storable_and_hardly_more(capacity):
    # C2, C3
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10**6)
    with new_replay(table, capacity=capacity) as replay:
        assert core_of(replay).store.arrays.page_rows <= max(1, capacity / 32)
        writer = replay.writer(items=[hr.ItemRule("t", 1)])

        def fill():
            for number in range(2 * capacity + 100):
                writer.append(step(number))

        with pytest.raises(hr.StoreFull, match=rf"capacity {capacity} .*bytes.*'t'"):
            fill()
        stored = len(replay.table("t"))
        assert capacity <= stored <= capacity * 1.07 + 2


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_full_store_refuses_the_step_and_goes_on_when_items_leave(lanes):
    # C3
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10**6, max_times_sampled=1)
    with (
        new_replay(table, capacity=96) as replay,
        replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer,
    ):

        def append(number):
            writer.append(step(number) if lanes == 1 else step(np.arange(lanes) * 1000 + number, lanes))

        number, drawn, refused = 1, [], 0
        while len(drawn) < 1500:
            try:
                append(number)
                number += 1
            except hr.StoreFull:
                before = replay.statistics()
                with pytest.raises(hr.StoreFull):
                    append(number)
                assert replay.statistics() == before
                refused += 1
                drawn += replay.sample("t", 20).data["n"].tolist()
        assert refused > 10
        expected = [lane * 1000 + n for n in range(1, number) for lane in range(lanes)]
        assert drawn == expected[: len(drawn)]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("way", ["remover", "k", "delete"])
def test_items_that_leave_keep_a_bounded_store_running_for_ever(way, lanes):
    # C4, C1: sequences over pages, episodes with final rows, in a store a few times what the items hold
    table = hr.Table(
        "t", sampler=Fifo(), remover=Fifo(), max_size=40, max_times_sampled=1 if way == "k" else 0
    )
    random = np.random.default_rng(0)
    with new_replay(table, capacity=640) as replay:
        writer = replay.writer(lanes=lanes, items=[hr.ItemRule("t", 4, end=hr.EndOfEpisode.PAD)])
        for number in range(1, 3000):
            writer.append(step(number) if lanes == 1 else step(np.arange(lanes) * 10**6 + number, lanes))
            if random.random() < 0.1:
                writer.end_episode([1, -1], lane=int(random.integers(lanes)))
            size = len(replay.table("t"))
            if way == "k" and size > 20:
                batch = replay.sample("t", size)
                assert (np.diff(batch.data["n"][:, :2], axis=1)[batch.data["n"][:, 1] > 0] == 1).all()
            elif way == "delete" and size > 20:
                replay.delete("t", replay.sample("t", 1).info.keys)
        assert replay.statistics().store.rows <= 640 + 20
        writer.close()
        replay.reset("t")
        assert replay.statistics().store.pages == 0


def test_without_capacity_freed_pages_are_used_again():
    # C1
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=100)
    with new_replay(table) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        page_rows = core_of(replay).store.arrays.page_rows
        for number in range(6 * page_rows):
            writer.append(step(number))
        store = replay.statistics().store
        assert store.capacity is None
        assert store.pages + store.free_pages <= 3


# ---- closing -------------------------------------------------------------------------------------------------


def test_a_closed_writer_takes_no_more_calls():
    # I6
    with new_replay() as replay:
        with replay.writer() as writer:
            writer.append(step(1))
        for call in (
            lambda: writer.append(step(2)),
            lambda: writer.create_item("t", 1),
            writer.end_episode,
            lambda: writer._rows.append_ends(
                step(np.zeros(1), 1), np.zeros(1, bool), np.zeros(0, np.int64), {}
            ),
        ):
            with pytest.raises(hr.Closed):
                call()
        writer.close()
        assert replay.statistics().store.pages == 0


def test_flush_to_a_disk_that_is_not_there_is_refused():
    with new_replay() as replay, replay.writer() as writer:
        with pytest.raises(ValueError, match="durable"):
            writer.flush(durable=True)


def test_a_writer_tells_what_it_is():
    with new_replay() as replay, replay.writer(lanes=2, items=[hr.ItemRule("t", 3)]) as writer:
        assert "2 lanes, open" in repr(writer)
        assert "length=3" in repr(writer)


@pytest.mark.parametrize("wrong", [-1, 2**31, 1.5])
def test_a_version_that_a_row_cannot_hold_is_refused(wrong):
    with (
        hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("t", 9)]) as replay,
        replay.writer() as writer,
    ):
        writer.policy_version = 2**31 - 1
        with pytest.raises((TypeError, ValueError), match="policy_version"):
            writer.policy_version = wrong
        assert writer.policy_version == 2**31 - 1
