"""Ready-made transitions (trajectories R5)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr

STEP = {
    "observation": {"a": np.float32(0), "b": np.zeros(2, np.int16)},
    "action": 0,
    "reward": 0.0,
    "terminated": False,
    "truncated": False,
}


def table(name="t", size=1000):
    return hr.Table(
        name, sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=size, max_times_sampled=1
    )


def new_replay(step=STEP, **options):
    return hr.Replay(hr.Signature.like(step), [table()], seed=0, **options)


def observation(numbers):
    numbers = np.asarray(numbers)
    return {"a": numbers.astype(np.float32), "b": np.stack([numbers, -numbers], -1).astype(np.int16)}


def transitions(now, later, terminated=(), truncated=(), **more):
    """Arguments of `extend`: the observations are numbers, and so is the action."""
    count = len(now)
    flags = [np.isin(np.arange(count), places) for places in (terminated, truncated)]
    return {
        "observation": observation(now),
        "action": np.arange(count),
        "reward": np.arange(count) + 1.0,
        "terminated": flags[0],
        "truncated": flags[1],
        "next_observation": observation(later),
        **more,
    }


def sampled(replay, writer, count):
    return replay.sample("t", count, views=writer.views, timeout=0).data


def test_rows_that_go_on_share_their_observations():
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=2, gamma=0.5) as writer:
        keys = writer.extend(**transitions([0, 1, 2, 10, 20], [1, 2, 3, 11, 21], terminated=[3]))
        assert keys == [*range(keys[0], keys[0] + 5)]
        assert replay.statistics().store.rows == 5 + 3
        data = sampled(replay, writer, 5)
        assert data["observation"]["a"].tolist() == [0, 1, 2, 10, 20]
        assert data["next_observation"]["a"].tolist() == [2, 3, 3, 11, 21]
        assert data["reward"].tolist() == [1 + 1, 2 + 1.5, 3, 4, 5]
        assert data["discount"].tolist() == [0.25, 0.25, 0.5, 0, 0.5]
        statistics = writer.statistics()
        assert (statistics.steps_written, statistics.items_written, statistics.episodes) == (8, 5, 3)


def test_every_bit_counts():
    nan = float("nan")
    one = {**STEP, "observation": np.float32(0)}
    with new_replay(one) as replay, hr.TransitionWriter(replay, "t", n_step=2) as writer:
        # NaN goes on with NaN; 0 does not go on with -0; 0.1 is compared as it is stored.
        now, later = np.array([nan, nan, -0.0, 0.1]), np.array([nan, 0.0, np.float32(0.1), 1])
        writer.extend(now, [0] * 4, [1.0] * 4, [False] * 4, [False] * 4, later)
        assert sampled(replay, writer, 4)["n"].tolist() == [2, 1, 2, 1]


def test_calls_never_continue_each_other():
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=3) as writer:
        writer.extend(**transitions([0], [1]))
        writer.extend(**transitions([1, 2], [2, 3]))
        data = sampled(replay, writer, 3)
        assert data["n"].tolist() == [1, 2, 1]
        assert data["next_observation"]["a"].tolist() == [1, 3, 3]


def test_no_rows():
    with new_replay() as replay, hr.TransitionWriter(replay, "t") as writer:
        assert writer.extend(**transitions([], [])) == []
        assert writer.extend([], [], [], [], [], []) == []


def test_between_episodes_of_other_calls():
    with new_replay() as replay, hr.TransitionWriter(replay, "t") as writer:
        first = observation(0)
        writer.extend(**transitions([5], [6]))
        writer.add_first(first)
        with pytest.raises(ValueError, match="extend: the episode is unfinished"):
            writer.extend(**transitions([5], [6]))
        keys = writer.add(3, 1.0, True, False, observation(1))
        more = writer.extend(**transitions([7, 8], [8, 9]))
        assert more == [keys[-1] + 1, keys[-1] + 2]
        assert sampled(replay, writer, 4)["next_observation"]["a"].tolist() == [6, 1, 8, 9]


def test_lanes_are_refused():
    with new_replay() as replay, hr.TransitionWriter(replay, "t", lanes=2, autoreset="disabled") as writer:
        with pytest.raises(ValueError, match="extend: expected a writer without lanes"):
            writer.extend(**transitions([0], [1]))


def test_extras_belong_to_actions():
    step = {**STEP, "extras": {"logp": np.float32(0), "h": 0}}
    with new_replay(step) as replay:
        with hr.TransitionWriter(replay, "t") as writer:
            with pytest.raises(hr.SpecError, match="extras"):
                writer.extend(**transitions([0], [1]))
            extras = {"logp": np.array([0.5, 0.25]), "h": np.array([1, 2])}
            writer.extend(**transitions([0, 1], [1, 2]), extras=extras)
            assert sampled(replay, writer, 2)["extras"]["logp"].tolist() == [0.5, 0.25]
            with pytest.raises(hr.SpecError, match="extras"):
                writer.add_first(observation(0), extras={"h": 3})
    with new_replay(step) as replay, hr.TransitionWriter(replay, "t") as writer:
        writer.add_first(observation(0), extras={"h": 3})
        writer.add(0, 1.0, True, False, observation(1), extras={"h": 4, "logp": 0.5})
        with pytest.raises(hr.SpecError, match="add_first named extras/h"):
            writer.extend(**transitions([0, 1], [1, 2]), extras=extras)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"reward": 1.0}, "reward"),
        ({"reward": [[1.0, 2.0]]}, "reward"),
        ({"action": [0.5, 1.5]}, "action"),
        ({"terminated": [0.0, 1.0]}, "terminated"),
        ({"observation": observation([0])}, "observation/a"),
        ({"next_observation": observation([1, 2, 3])}, "^next_observation: observation/a: expected"),
        ({"next_observation": {"a": [1.0, 2.0]}}, "^next_observation: observation"),
        ({"extras": {"x": [1, 2]}}, "extras"),
    ],
)
def test_what_does_not_fit_stores_nothing(changes, path):
    with new_replay() as replay, hr.TransitionWriter(replay, "t") as writer:
        with pytest.raises(hr.SpecError, match=path):
            writer.extend(**(transitions([0, 1], [1, 2]) | changes))
        assert replay.statistics().store.rows == 0
        assert len(writer.extend(**transitions([0, 1], [1, 2]))) == 2


def test_priorities_by_a_function():
    seen = []

    def priority(rows):
        seen.append((rows["observation"]["a"].tolist(), rows["reward"].tolist()))
        return float(rows["reward"][0])

    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=2, priority=priority) as writer:
        writer.extend(**transitions([0, 1, 2, 9], [1, 2, 3, 10]))
        assert replay.sample("t", 4).info.priorities.tolist() == [1, 2, 3, 4]
        assert seen == [
            ([0, 1, 2], [1, 2, 3]), ([1, 2, 3], [2, 3, 0]), ([2, 3], [3, 0]), ([9, 10], [4, 0])
        ]  # fmt: skip


def test_a_wrong_priority_stores_nothing():
    def priority(rows):
        return -1.0 if rows["reward"][0] == 3 else 1.0

    with new_replay() as replay, hr.TransitionWriter(replay, "t", priority=priority) as writer:
        with pytest.raises(ValueError, match="table 't': priority"):
            writer.extend(**transitions([0, 1, 2], [1, 2, 3]))
        assert replay.statistics().store.rows == 0
        assert len(writer.extend(**transitions([0, 1], [1, 2]))) == 2


def room():
    """Number of rows that one writer can store in a replay of 64 steps."""
    stored = 0
    with new_replay(capacity=64) as replay, replay.writer(history=1000) as writer:
        with pytest.raises(hr.StoreFull):  # noqa: PT012
            for stored in itertools.count():  # noqa: B007
                writer.append(STEP)
    return stored


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 7, 1000])
@pytest.mark.parametrize("with_function", [False, True])
def test_a_full_store_keeps_whole_transitions(n_step, length, with_function):
    priority = (lambda rows: float(rows["reward"][0])) if with_function else 1.0
    with new_replay(capacity=64) as replay:
        writer = hr.TransitionWriter(replay, "t", n_step=n_step, priority=priority)
        now = np.arange(200) + np.arange(200) // length
        given = transitions(now, now + 1)
        with pytest.raises(hr.StoreFull) as caught:
            writer.extend(**given)
        stored = caught.value.stored
        rows = stored + -(-stored // length)
        assert rows in (room() - 1, room())
        assert len(replay.table("t")) == stored
        sample = replay.sample("t", stored, views=writer.views)
        data = sample.data
        assert data["observation"]["a"].tolist() == now[:stored].tolist()
        wanted = [
            one
            for _, group in itertools.groupby(range(stored), lambda row: row // length)
            for one in [list(group)]
        ]
        steps = [min(n_step, len(run) - place) for run in wanted for place in range(len(run))]
        assert data["n"].tolist() == steps
        np.testing.assert_array_equal(data["next_observation"]["a"], now[:stored] + steps)
        if with_function:
            assert sample.info.priorities.tolist() == (np.arange(stored) + 1.0).tolist()
        assert len(writer.extend(**transitions([1, 2], [2, 3]))) == 2
        writer.close()


def test_a_deadline_keeps_whole_transitions():
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 10)], seed=0) as replay:
        writer = hr.TransitionWriter(replay, "t", timeout=0)
        now = np.arange(3000)
        with pytest.raises(hr.DeadlineExceeded) as caught:
            writer.extend(**transitions(now, now + 1))
        stored = caught.value.stored
        assert 1000 < stored < 1020
        assert caught.value.pending > 0
        for place in range(0, stored, 10):
            data = sampled(replay, writer, min(10, stored - place))
            assert (
                data["next_observation"]["a"].tolist()
                == (now[place : place + 10][: stored - place] + 1).tolist()
            )
        keys = writer.extend(**transitions([1], [2]))
        assert len(keys) == 1
        assert sampled(replay, writer, 1)["n"].tolist() == [1]
        writer.close()


@pytest.mark.parametrize(
    ("method", "priority"), [("append_rows", 1.0), ("append_checked", lambda rows: float(rows["reward"][0]))]
)
def test_an_interrupt_ends_the_trajectory(monkeypatch, method, priority):
    with new_replay() as replay:
        writer = hr.TransitionWriter(replay, "t", n_step=2, priority=priority)
        rows = writer._writer
        taken = getattr(rows, method)
        calls = itertools.count()

        def interrupted(step, *final):
            if final:
                taken({name: column[:2] for name, column in step.items()}, final[0][:2])
                raise KeyboardInterrupt
            if next(calls) == 2:
                raise KeyboardInterrupt
            return taken(step)

        monkeypatch.setattr(rows, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.extend(**transitions([0, 1, 2, 3], [1, 2, 3, 4]))
        monkeypatch.undo()
        keys = writer.extend(**transitions([2, 3], [3, 4]))
        assert len(keys) == 2
        data = sampled(replay, writer, len(replay.table("t")))
        assert data["n"].tolist()[-2:] == [2, 1]
        assert data["observation"]["a"].tolist()[-2:] == [2, 3]
        writer.close()


def test_a_closed_writer():
    with new_replay() as replay:
        writer = hr.TransitionWriter(replay, "t")
        writer.close()
        with pytest.raises(hr.Closed):
            writer.extend(**transitions([0], [1]))


ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, None, None, "terminated", "truncated"])),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.integers(1, 4))
def test_like_a_writer_that_is_given_step_by_step(rows, n_step):
    numbers = itertools.count()
    now, later, number = [], [], next(numbers)
    for jumps, _ in rows:
        now.append(number)
        later.append(number + 1000 if jumps else next(numbers))
        number = next(numbers) if jumps else later[-1]
    flags = {
        name: [place for place, (_, flag) in enumerate(rows) if flag == name]
        for name in ("terminated", "truncated")
    }
    given_rows = transitions(now, later, **flags)
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step) as writer:
        keys = writer.extend(**given_rows)
        sample = replay.sample("t", len(rows), views=writer.views)
        found = sample.data
        assert sample.info.keys.tolist() == keys
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step) as writer:
        goes_on = False
        for place in range(len(rows)):
            if not goes_on:
                writer.reset()
                writer.add_first(observation(now[place]))
            terminated, truncated = (bool(given_rows[name][place]) for name in ("terminated", "truncated"))
            writer.add(place, place + 1.0, terminated, truncated, observation(later[place]))
            goes_on = (
                not (terminated or truncated) and place + 1 < len(rows) and later[place] == now[place + 1]
            )
        writer.reset()
        wanted = sampled(replay, writer, len(rows))
    for name in ("reward", "discount", "n", "action", "terminated", "truncated"):
        np.testing.assert_array_equal(found[name], wanted[name])
    for name in ("observation", "next_observation"):
        np.testing.assert_array_equal(found[name]["b"], wanted[name]["b"])
