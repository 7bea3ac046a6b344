"""server CL3: step writers and observers make the same items over a client as in the server's process."""

import numpy as np
import pytest

import headrace as hr

STEP = {
    "observation": {"x": np.zeros(3, np.float32)},
    "action": np.int64(0),
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
TABLES = ("transitions", "windows", "episodes")


def new_replay():
    fifo = hr.selectors.Fifo()
    return hr.Replay(
        hr.Signature.like(STEP),
        [hr.Table(name, sampler=fifo, remover=fifo, max_size=1000, max_times_sampled=1) for name in TABLES],
    )


def rules():
    return [
        hr.NStepRule("transitions", n_step=2),
        hr.ItemRule("windows", 4, stride=2, end=hr.EndOfEpisode.PAD),
        hr.EpisodeRule("episodes", max_length=50),
    ]


def observation(*numbers):
    return {"x": np.stack([np.full(3, n, np.float32) for n in numbers])}


def by_steps(replay):
    """Episodes of different lengths; returns the number of keys of each step."""
    counts = []
    with hr.StepWriter(replay, rules()) as writer:
        for length in (1, 5, 9):
            writer.add_first({"x": np.zeros(3, np.float32)})
            for t in range(length):
                is_last = t == length - 1
                following = {"x": np.full(3, t + 1, np.float32)}
                keys = writer.add(t, t / 2, is_last and length == 5, is_last and length != 5, following)
                counts.append(len(keys))
        writer.flush(10)
        return counts, writer.statistics()


def by_lanes(replay):
    """Three environments with same-step autoreset, whose ends fall on different steps."""
    counts = []
    with hr.StepWriter(replay, rules(), lanes=3, autoreset="same_step") as writer:
        writer.add_first(observation(0, 100, 200))
        for t in range(1, 20):
            ends = np.array([t % 5 == 0, t % 7 == 0, False])
            keys = writer.add(
                np.full(3, t),
                np.full(3, t / 2, np.float32),
                ends,
                np.zeros(3, np.bool_),
                observation(t, 100 + t, 200 + t),
                final_observation=observation(-t, -100 - t, -200 - t),
            )
            counts.append(len(keys))
        writer.flush(10)
        return counts, writer.statistics()


def by_transitions(replay):
    with hr.TransitionWriter(replay, "transitions", n_step=3) as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        for t in range(10):
            writer.add(t, 1.0, t == 9, False, {"x": np.full(3, t, np.float32)})
        return writer.statistics()


def by_episodes(replay):
    with hr.EpisodeWriter(replay, "episodes", 5, overflow="split") as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        for t in range(12):
            writer.add(t, 1.0, False, t == 11, {"x": np.full(3, t, np.float32)})
        return writer.statistics()


def items(replay):
    found = {}
    for name in TABLES:
        count = len(replay.table(name))
        if count:
            batch = replay.sample(name, count, timeout=0)
            found[name] = batch.data, batch.mask, batch.info.priorities
    return found


@pytest.mark.parametrize("program", [by_steps, by_lanes, by_transitions, by_episodes])
def test_a_program_gives_the_same_over_a_client(program, tmp_path):
    with new_replay() as local, new_replay() as served:
        expected = program(local)
        with hr.Server({"r": served}, address=None, unix=tmp_path / "s") as server:
            with hr.Client(server.address) as client:
                remote = client.replay("r")
                assert program(remote) == expected
                np.testing.assert_equal(items(remote), items(local))


def test_an_observer_gives_the_same_over_a_client():
    frame = hr.Trajectory(
        step_type=hr.StepType.FIRST,
        observation=np.zeros(2, np.float32),
        action=np.int64(0),
        policy_info=(),
        next_step_type=hr.StepType.MID,
        reward=np.float32(0),
        discount=np.float32(1),
    )
    fifo = hr.selectors.Fifo()
    tables = [hr.Table("t", sampler=fifo, remover=fifo, max_size=100)]
    found = []

    def observe(replay):
        with hr.AddTrajectoryObserver(replay, "t", 3, stride_length=2) as observer:
            for n in range(11):
                types = [hr.StepType.FIRST, *[hr.StepType.MID] * 4, hr.StepType.LAST, hr.StepType.FIRST]
                observer(
                    frame._replace(
                        observation=np.full(2, n, np.float32),
                        step_type=types[n % 6],
                        next_step_type=types[n % 6 + 1],
                    )
                )
        batch = replay.sample("t", len(replay.table("t")))
        found.append((batch.data, batch.mask))

    signature = hr.Signature.like(frame)
    with hr.Replay(signature, tables) as local, hr.Replay(signature, tables) as served:
        observe(local)
        with hr.Server({"r": served}) as server, hr.Client(server.address) as client:
            observe(client.replay("r"))
    np.testing.assert_equal(*found)
