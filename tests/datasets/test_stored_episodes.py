"""The complete episodes of a replay (datasets G2), against lists that are kept beside it."""

import itertools
import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.datasets import episodes, load_npz, save_npz

STEP = {
    "observation": {"pose": np.zeros(2, np.float32)},
    "action": 0,
    "reward": 0.0,
    "terminated": False,
    "truncated": False,
}


def replay_of(step=STEP, capacity=None, max_size=10_000):
    tables = [
        hr.Table(name, sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=max_size)
        for name in ("t", "u")
    ]
    return hr.Replay(hr.Signature.like(step), tables, capacity=capacity, seed=0)


def pose(number):
    return {"pose": np.full(2, number, np.float32)}


def recorded(numbers, final, terminated=False, truncated=False):
    """The episode whose step k has observation, action and reward `numbers[k]`."""
    end = np.arange(len(numbers)) == len(numbers) - 1
    return hr.Episode(
        {"pose": np.repeat(np.array([*numbers, final], np.float32)[:, None], 2, axis=1)},
        np.array(numbers),
        np.array(numbers, float),
        end & terminated,
        end & truncated,
    )


class Lanes:
    """A writer of some lanes, and what it wrote as lists."""

    def __init__(self, replay, lanes, length):
        self.lanes, self.number = lanes, 0
        self.writer = replay.writer(
            lanes=lanes, items=[hr.ItemRule("t", 1, lookahead=1), hr.ItemRule("u", length)]
        )
        self.open = [[] for _ in range(lanes)]
        self.done = [[] for _ in range(lanes)]

    def step(self, ends):
        """One step of each lane; `ends`: by lane, None or (terminated, truncated)."""
        numbers = np.arange(self.number, self.number + self.lanes)
        self.number += self.lanes
        flags = np.array([each or (False, False) for each in ends]).reshape(self.lanes, 2)
        step = {
            "observation": {"pose": np.repeat(numbers[:, None], 2, axis=1).astype(np.float32)},
            "action": numbers,
            "reward": numbers.astype(float),
            "terminated": flags[:, 0],
            "truncated": flags[:, 1],
        }
        if self.lanes == 1:
            step = {
                "observation": pose(numbers[0]), "action": int(numbers[0]), "reward": float(numbers[0]),
                "terminated": bool(flags[0, 0]), "truncated": bool(flags[0, 1]),
            }  # fmt: skip
        self.writer.append(step)
        for lane, number in enumerate(numbers.tolist()):
            self.open[lane].append(number)
        for lane, end in enumerate(ends):
            if end is not None:
                self.writer.end_episode({"observation": pose(-self.number)}, lane=lane)
                self.done[lane].append(recorded(self.open[lane], -self.number, *end))
                self.open[lane] = []


ENDS = st.none() | st.none() | st.none() | st.tuples(st.booleans(), st.booleans())


@settings(max_examples=40)
@given(data=st.data(), lanes=st.integers(1, 3), length=st.integers(1, 4))
def test_lane_by_lane_oldest_first_and_each_once(data, lanes, length):
    """Datasets G2: whatever tables and items refer to the steps; unfinished ones are counted."""
    with replay_of() as replay:
        written = [Lanes(replay, lanes, length), Lanes(replay, 1, length)]
        for _ in range(data.draw(st.integers(0, 25))):
            for each in written:
                each.step([data.draw(ENDS) for _ in range(each.lanes)])
        found = episodes(replay)
        assert list(found) == [episode for each in written for lane in each.done for episode in lane]
        assert found.left_out == sum(bool(lane) for each in written for lane in each.open)
        assert list(found) == []
        for each in written:
            each.writer.close()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(50, 500),
    lanes=st.integers(1, 3),
    max_size=st.integers(20, 200),
)
def test_what_was_overwritten_is_left_out(seed, steps, lanes, max_size):
    """Datasets G2: an episode whose first rows are gone is not given; those given are whole and the newest."""
    random = np.random.default_rng(seed)
    with replay_of(capacity=2 * max_size, max_size=max_size) as replay:
        written = Lanes(replay, lanes, 1)
        for _ in range(steps):
            written.step([(True, False) if random.random() < 0.1 else None for _ in range(lanes)])
        found = episodes(replay)
        given = list(found)
        # Lane by lane, in an order of lanes that is the store's.
        runs = [
            (lane, list(run)) for lane, run in itertools.groupby(given, lambda each: each.actions[0] % lanes)
        ]
        assert len({lane for lane, _ in runs}) == len(runs)
        for lane, run in runs:
            assert run == written.done[lane][-len(run) :]
        # One table keeps the newest `max_size` rows: what began among them is there.
        oldest_step = steps - max_size // lanes
        for lane in written.done:
            for each in lane:
                assert each in given or each.actions[0] // lanes < oldest_step
        # In each lane at most one episode has lost its first rows, and one is not finished.
        assert found.left_out <= 2 * lanes
        written.writer.close()


def test_extras_come_along_and_keep_whose_they_are():
    """Datasets G2, trajectories A5: those of final rows belong to the observation and have T + 1 rows."""
    step = {**STEP, "extras": {"state": np.zeros(1), "log_prob": 0.0}, "value": np.float32(0)}
    with replay_of(step) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for n in range(3):
            writer.append({**step, "extras": {"state": np.full(1, n), "log_prob": -n}, "value": 10.0 * n})
        writer.end_episode({"observation": pose(9), "extras": {"state": np.full(1, 9.0), "log_prob": 7.0}})
        (both,) = episodes(replay)
        assert both.extras["log_prob"].tolist() == [0, -1, -2, 7]
    with replay_of(step) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for n in range(3):
            writer.append({**step, "extras": {"state": np.full(1, n), "log_prob": -n}, "value": 10.0 * n})
        writer.end_episode({"observation": pose(9)})
        (episode,) = episodes(replay)
    assert episode.extras["state"].shape == (3, 1)
    assert episode.extras["log_prob"].tolist() == [0, -1, -2]
    assert episode.extras["value"].tolist() == [0, 10, 20]  # What a collector stores beside the five.
    assert episode.extras["value"].dtype == np.float32
    assert (episode.terminated, episode.truncated) == (False, False)


@pytest.mark.parametrize("container", [list, deque])
def test_lists_of_arrays_are_tuples(container):
    step = {**STEP, "observation": container([np.zeros(2), np.zeros(3)])}
    with replay_of(step) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(step)
        writer.end_episode({"observation": container([np.ones(2), np.ones(3)])})
        (episode,) = episodes(replay)
    assert type(episode.observations) is tuple
    assert [each.shape for each in episode.observations] == [(2, 2), (2, 3)]


def frame(kind, following, number, discount, info=()):
    return hr.Trajectory(
        np.int32(kind),
        np.float32(number),
        number,
        info,
        np.int32(following),
        np.float32(number),
        np.float32(discount),
    )


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_frames(discount):
    """Datasets G2: the boundary has the last observation; `terminated` where the last discount is 0."""
    info = {"log_prob": np.float32(0.5)}
    with replay_of(frame(0, 1, 0, 0.0, info)) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("u", 2)]) as writer:
            writer.append(frame(1, 1, 7, 1.0, info))  # Its first frame was never there.
            writer.append(frame(2, 0, 8, 1.0, info))
            writer.end_episode()
            for each in (
                frame(0, 1, 1, 1.0, info),
                frame(1, 2, 2, discount, info),
                frame(2, 0, 3, 1.0, info),
            ):
                writer.append(each)
            writer.end_episode()
            writer.append(frame(0, 2, 4, discount, info))
            writer.append(frame(2, 0, 5, 0.5, info))
            writer.end_episode()
            writer.append(frame(2, 0, 5, 0.5, info))  # A lone boundary.
            writer.end_episode()
            writer.append(frame(0, 1, 6, 1.0, info))
            found = episodes(replay)
            one, two = found
        assert found.left_out == 3
    assert one.observations.tolist() == [1, 2, 3]
    assert one.actions.tolist() == one.rewards.tolist() == [1, 2]
    assert (
        (one.terminated, one.truncated) == (two.terminated, two.truncated) == (discount == 0, discount == 1)
    )
    assert (one.observations.dtype, one.rewards.dtype) == (np.float32, np.float32)
    assert one.extras["policy_info"]["log_prob"].tolist() == [0.5] * 3
    assert two.observations.tolist() == [4, 5]


def test_frames_without_policy_info():
    with replay_of(frame(0, 1, 0, 0.0)) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(frame(0, 2, 4, 1.0))
        writer.append(frame(2, 0, 5, 0.5))
        (episode,) = episodes(replay)
    assert episode.extras == {}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({"observation": 0.0, "action": 0}, "expected a replay with the columns observation, action, reward"),
        (np.zeros(3), "expected a replay with the columns"),
        ({**STEP, "reward": np.zeros(2)}, "reward: expected one number a step"),
        ({**STEP, "terminated": np.zeros(2)}, "terminated: expected one number a step"),
        ({**STEP, "extras": 1.0}, "extras: expected a mapping"),
        ({**STEP, "extras": {"a": 1.0}, "a": 1.0}, "extras: expected a mapping whose names"),
        (frame(0, 1, 0, 0.0)._replace(reward=np.zeros(2)), "reward: expected one number a step"),
    ],
)
def test_another_signature_is_refused(step, told):
    """Datasets G2."""
    with replay_of(step) as replay, pytest.raises(hr.SpecError, match=told):
        episodes(replay)


def test_final_rows_without_an_observation_are_refused():
    with replay_of() as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(STEP)
        writer.end_episode({"reward": 1.0})
        with pytest.raises(hr.SpecError, match="lack observation/pose"):
            list(episodes(replay))


def test_ended_without_a_final_row():
    with replay_of() as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(STEP)
        writer.end_episode()
        found = episodes(replay)
        assert (list(found), found.left_out) == ([], 1)


def test_episodes_are_copies():
    with replay_of() as replay:
        written = Lanes(replay, 1, 1)
        written.step([(True, False)])
        (one,) = episodes(replay)
        one.rewards[:] = 99
        (again,) = episodes(replay)
        assert again == written.done[0][0]
        written.writer.close()


def test_a_closed_replay_gives_nothing():
    replay = replay_of()
    written = Lanes(replay, 1, 1)
    for _ in range(2):
        written.step([(True, False)])
    written.writer.close()
    found = episodes(replay)
    next(found)
    replay.close()
    with pytest.raises(hr.Closed):
        next(found)
    with pytest.raises(hr.Closed):
        episodes(replay)


def test_an_iteration_that_pauses_holds_nothing():
    """A bounded replay goes on being written to in the same thread; what it overwrote is left out, never mixed up."""
    with replay_of(capacity=300, max_size=250) as replay:
        written = Lanes(replay, 2, 1)
        for n in range(100):
            written.step([(True, False) if n % 10 == 9 else None] * 2)
        found = episodes(replay)
        given = [next(found)]
        for n in range(1000):
            written.step([(True, False) if n % 10 == 9 else None] * 2)
        given += found
        assert given == written.done[0][: len(given)]
        assert len(given) + found.left_out == 20
        assert found.left_out >= 19
        written.writer.close()


def test_writers_go_on_while_episodes_are_read():
    """Every episode that is given is whole, whatever is written and overwritten meanwhile."""
    with replay_of(capacity=400, max_size=300) as replay:
        written = Lanes(replay, 2, 1)
        for n in range(150):
            written.step([(n % 2 == 0, True) if n % 7 == 6 else None] * 2)
        stop = threading.Event()

        def write():
            n = 0
            while not stop.is_set():
                written.step([(True, False) if n % 11 == 10 else None] * 2)
                n += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            given = [list(episodes(replay)) for _ in range(30)]
        finally:
            stop.set()
            thread.join()
        # An episode is known by its first action; both lanes together hold every number once.
        known = {episode.actions[0]: episode for lane in written.done for episode in lane}
        for round_ in given:
            for episode in round_:
                assert episode == known[episode.actions[0]]
        written.writer.close()


def test_a_replay_is_a_source(tmp_path):
    """Datasets G1."""
    with replay_of() as replay:
        written = Lanes(replay, 2, 1)
        for n in range(50):
            written.step([(True, False) if n % 10 == 9 else None] * 2)
        totals = []
        path = save_npz(replay, tmp_path / "x.npz", progress=lambda done, total: totals.append((done, total)))
        assert list(load_npz(path)) == written.done[0] + written.done[1]
        assert totals[-1] == (10, None)
        written.writer.close()


def test_a_replay_without_complete_episodes(tmp_path):
    """Datasets G7."""
    with replay_of() as replay, pytest.raises(ValueError, match="at least one episode"):
        save_npz(replay, tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []
