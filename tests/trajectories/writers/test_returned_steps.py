"""Step writers that are given an environment take steps as it returns them, and find the starts of episodes."""

import warnings
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing.envs import CounterEnv, counter_observation, counter_transitions, counter_vector_env

MODES = ["disabled", "same_step", "next_step"]
LENGTHS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)
FIFO = {"sampler": hr.selectors.Fifo(), "remover": hr.selectors.Fifo(), "max_times_sampled": 1}


def new_replay(env, *names):
    tables = [hr.Table(name, **FIFO, max_size=10_000) for name in names or ["t"]]
    return hr.Replay.for_env(env, tables, seed=0)


def drive(env, write, actions, reset=lambda step: False):
    """The loop of a user: it calls write with what the environment returns, and resets it where that is its part."""
    disabled = env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.DISABLED
    observation, _ = env.reset()
    for step, action in enumerate(actions):
        following, reward, terminated, truncated, info = env.step(action)
        write(observation, action, reward, terminated, truncated, following, info)
        observation = following
        ended = terminated | truncated
        if reset(step):
            observation, _ = env.reset()
        elif disabled and ended.any():
            observation, _ = env.reset(options={"reset_mask": ended})


def transitions(replay, views, table="t"):
    """The sampled transitions of each environment."""
    size = len(replay.table(table))
    data = replay.sample(table, size, views=views).data if size else {}
    copies = data["observation"][:, 0] if size else np.zeros(0)
    return {
        int(copy): {name: column[copies == copy] for name, column in data.items()}
        for copy in np.unique(copies)
    }


def random_actions(steps, lanes):
    return np.random.default_rng(0).integers(0, 4, (steps, lanes))


@settings(max_examples=25, deadline=None)
@given(mode=st.sampled_from(MODES), lengths=LENGTHS, ending=st.sampled_from(["terminated", "truncated"]))
def test_every_transition_is_there_in_every_mode(mode, lengths, ending):
    env = counter_vector_env(lengths, mode, ending=ending)
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:
        keys = []
        drive(env, lambda *step: keys.extend(writer.add(*step)), random_actions(12, len(lengths)))
        keys += writer.reset()
        assert len(keys) == len(replay.table("t"))
        found = transitions(replay, writer.views)
        assert sorted(found) == list(range(len(lengths)))
        for copy, rows in found.items():
            count = len(rows["reward"])
            # A call of the mode next_step that resets a lane is no transition of it.
            assert count == 12 if mode != "next_step" else count <= 12
            closed = counter_transitions(lengths[copy], count)
            for n in range(count):
                episode, step, last = (int(closed[name][n]) for name in ("episode", "step", "last"))
                assert rows["observation"][n].tolist() == counter_observation(copy, episode, step).tolist()
                assert (
                    rows["next_observation"][n].tolist()
                    == counter_observation(copy, episode, step + 1).tolist()
                )
                assert rows["terminated"][n] == (last and ending == "terminated")
                assert rows["truncated"][n] == (last and ending == "truncated")
                assert rows["reward"][n] // 4 == step
    env.close()


@settings(max_examples=25, deadline=None)
@given(mode=st.sampled_from(MODES), lengths=LENGTHS)
def test_it_is_the_writer_with_lanes_and_mode(mode, lengths):
    """The same rows and items as those of `add_first` and `add`, where the environment alone resets itself."""
    rules = [
        hr.NStepRule("t", 3, 0.9),
        hr.ItemRule("w", 3, 2, hr.EndOfEpisode.PAD),
        hr.ItemRule("c", 3, 1, hr.EndOfEpisode.CONTINUE),
        hr.EpisodeRule("e", 20),
    ]
    names, actions = [rule.table for rule in rules], random_actions(12, len(lengths))
    env, twin = counter_vector_env(lengths, mode), counter_vector_env(lengths, mode)
    with new_replay(env, *names) as one, new_replay(twin, *names) as other:
        with hr.StepWriter(one, rules, env=env) as writer:
            drive(env, writer.add, actions)
        with hr.StepWriter(other, rules, lanes=len(lengths), autoreset=mode) as writer:
            observation, _ = twin.reset()
            writer.add_first(observation)
            for action in actions:
                *step, info = twin.step(action)
                following, reward, terminated, truncated = step
                ended = terminated | truncated
                final = info.get("final_obs") if mode == "same_step" else None
                writer.add(action, reward, terminated, truncated, following, None, final)
                if mode == "disabled" and ended.any():
                    observation, _ = twin.reset(options={"reset_mask": ended})
                    writer.add_first(observation, mask=ended)
        for name in names:
            count = len(other.table(name))
            assert len(one.table(name)) == count
            if count:
                expected, got = other.sample(name, count), one.sample(name, count)
                for column in expected.data:
                    np.testing.assert_array_equal(got[column], expected[column])
    env.close()
    twin.close()


@settings(max_examples=20, deadline=None)
@given(mode=st.sampled_from(MODES), lengths=LENGTHS, resets=st.sets(st.integers(0, 10), max_size=4))
def test_a_reset_of_the_users_own_ends_the_episode_as_cut(mode, lengths, resets):
    """Also one that comes at an end, or in place of the environment's: no transition is lost, doubled or mixed."""
    env = counter_vector_env(lengths, mode)
    # In the mode next_step a call that resets a lane is no transition of it.
    resetting = np.zeros(len(lengths), np.bool_)
    expected = [[] for _ in lengths]
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:

        def write(observation, action, reward, terminated, truncated, following, info):
            ended = terminated | truncated
            for lane in np.flatnonzero(~resetting):
                after = info["final_obs"][lane] if mode == "same_step" and ended[lane] else following[lane]
                expected[lane].append((observation[lane].tolist(), after.tolist(), float(reward[lane])))
            resetting[:] = ended & (mode == "next_step")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                writer.add(observation, action, reward, terminated, truncated, following, info)

        def reset(step):
            if step in resets:
                resetting[:] = False
            return step in resets

        drive(env, write, random_actions(12, len(lengths)), reset)
        writer.reset()
        found = transitions(replay, writer.views)
        for lane, steps in enumerate(expected):
            rows = found[lane]
            got = zip(
                rows["observation"].tolist(),
                rows["next_observation"].tolist(),
                rows["reward"].tolist(),
                strict=True,
            )
            assert list(got) == steps
            # The value after a cut step counts.
            assert (rows["discount"] == np.where(rows["terminated"], 0, 0.99).astype(np.float32)).all()
    env.close()


def test_one_environment():
    env = CounterEnv([2, 3])
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:
        observation, _ = env.reset()
        for action in (0, 1, 2, 3, 0):
            following, *rest = env.step(action)
            writer.add(observation, action, rest[0], rest[1], rest[2], following, rest[3])
            observation = env.reset()[0] if rest[1] else following
        data = transitions(replay, writer.views)[0]
        assert data["observation"][:, 1:].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]]
        assert data["next_observation"][:, 1:].tolist() == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3]]
        assert writer.statistics().episodes == 2


def test_a_reset_in_an_episode_warns_once_and_not_after_reset():
    env = CounterEnv(9)
    with new_replay(env) as replay, hr.TransitionWriter(replay, n_step=3, env=env) as writer:

        def episode(steps):
            observation, _ = env.reset()
            for _ in range(steps):
                following, *rest = env.step(0)
                writer.add(observation, 0, *rest[:3], following)
                observation = following

        episode(2)
        assert len(writer.reset()) == 2
        episode(2)
        with pytest.warns(UserWarning, match="call reset.. of this writer first") as caught:
            episode(1)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            episode(1)
        assert writer.statistics().episodes == 3
        writer.reset()
        assert len(replay.table("t")) == 6
        assert not transitions(replay, writer.views)[0]["terminated"].any()


def test_trees_of_observations_are_compared_as_they_are_stored():
    """float64 that is stored as float32, NaN, and -0.0: an observation continues the one that has the same bits."""
    like = {"observation": {"x": np.float32(0), "y": np.zeros(2, np.float32)}, "action": 0, "reward": 0.0}
    like |= {"terminated": False, "truncated": False}
    env = CounterEnv(9)
    with (
        hr.Replay(hr.Signature.like(like), [hr.Table("t", **FIFO, max_size=99)]) as replay,
        hr.TransitionWriter(replay, env=env) as writer,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        values = [0.1, float("nan"), -0.0, 1e-9]
        for before, after in pairwise(values):
            first, second = ({"x": x, "y": np.array([x, 2 * x])} for x in (before, after))
            writer.add(first, 0, 0.0, False, False, second)
        assert writer.statistics().steps_written == 3
        with pytest.raises(UserWarning, match="not the next_observation"):
            writer.add({"x": 0.0, "y": np.zeros(2)}, 0, 0.0, False, False, second)


def test_a_next_observation_with_the_last_one_put_in():
    """CleanRL's loop gives the last observation of each ended lane in place of the next episode's first."""
    env = counter_vector_env([2, 3], "same_step")
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:

        def write(observation, action, reward, terminated, truncated, following, info):
            following = following.copy()
            for lane in np.flatnonzero(terminated | truncated):
                following[lane] = info["final_obs"][lane]
            writer.add(observation, action, reward, terminated, truncated, following, info)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drive(env, write, random_actions(7, 2))
        writer.reset()
        for copy, rows in transitions(replay, writer.views).items():
            assert len(rows["reward"]) == 7
            closed = counter_transitions([2, 3][copy], 7)
            assert rows["observation"][:, 1].tolist() == closed["episode"].tolist()
            assert rows["next_observation"][:, 2].tolist() == (closed["step"] + 1).tolist()
    env.close()


@pytest.mark.parametrize(
    "info", [None, {}, {"final_obs": np.zeros((2, 3), np.int64), "_final_obs": [True, False]}]
)
def test_a_last_observation_that_is_missing_takes_nothing(info):
    env = counter_vector_env([2, 2], "same_step")
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:
        zeros, ends, no = np.zeros((2, 3), np.int64), np.ones(2, np.bool_), np.zeros(2, np.bool_)
        step = zeros, np.zeros(2, np.int64), np.zeros(2)
        with pytest.raises(ValueError, match=r"final_observation: lanes \[.*1\] ended and have none"):
            writer.add(*step, ends, no, zeros, info)
        assert writer.statistics().steps_written == 0
        good = {"final_obs": zeros, "_final_obs": ends}
        assert len(writer.add(*step, ends, no, zeros, good)) == 2
    env.close()


def test_what_is_wrong_takes_nothing():
    env = CounterEnv(9)
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:
        first, second = np.array([0, 0, 0]), np.array([0, 0, 1])
        with pytest.raises(hr.SpecError, match="observation"):
            writer.add(np.zeros(4), 0, 0.0, False, False, second, {})
        with pytest.raises(hr.SpecError, match="reward"):
            writer.add(second, 0, "much", False, False, second, {})
        writer.add(first, 0, 0.0, False, False, second, {})
        with pytest.raises(hr.SpecError, match="observation"):
            writer.add(second, 0, 0.0, False, False, np.zeros(2), {})
        writer.add(second, 0, 0.0, True, False, first, {})
        assert transitions(replay, writer.views)[0]["observation"].tolist() == [[0, 0, 0], [0, 0, 1]]
    with pytest.raises(hr.Closed):
        writer.add(first, 0, 0.0, False, False, second, {})


def test_extras_belong_to_the_action():
    env = CounterEnv(2)
    extras = {"log_prob": hr.ArraySpec((), np.float32)}
    with hr.Replay.for_env(env, [hr.Table("t", **FIFO, max_size=9)], extras=extras) as replay:
        with hr.TransitionWriter(replay, env=env) as writer:
            for step in range(2):
                before, after = np.array([0, 0, step]), np.array([0, 0, step + 1])
                writer.add(before, 0, 0.0, step == 1, False, after, {}, extras={"log_prob": step})
        assert replay.sample(2, views=writer.views)["extras"]["log_prob"].tolist() == [0, 1]


def test_sequences_and_episodes_take_it_too():
    env = CounterEnv(2)
    with new_replay(env, "s", "e") as replay:
        writers = [
            hr.SequenceWriter(replay, "s", 2, 1, hr.EndOfEpisode.DROP, env=env),
            hr.EpisodeWriter(replay, "e", 2, env=env),
        ]
        for writer in writers:
            observation, _ = env.reset()
            for _ in range(2):
                following, reward, terminated, truncated, info = env.step(1)
                writer.add(observation, 1, reward, terminated, truncated, following, info)
                observation = following
            assert type(writer).__name__ in repr(writer)
            writer.close()
        assert (len(replay.table("s")), len(replay.table("e"))) == (2, 1)
        with pytest.raises(ValueError, match="'s', 'e'"):
            hr.TransitionWriter(replay, env=env)


def test_a_recorded_episode_is_added_as_by_other_writers():
    env = CounterEnv(2)
    with new_replay(env) as replay, hr.TransitionWriter(replay, env=env) as writer:
        observations = np.arange(9).reshape(3, 3)
        episode = hr.Episode(observations, [0, 1], [0.0, 1.0], [False, True], [False, False])
        assert len(writer.add_episode(episode)) == 2


def test_wrong_environments():
    env, undeclared = CounterEnv(2), counter_vector_env([2, 2], "same_step")
    with new_replay(env) as replay:
        with pytest.raises(ValueError, match="expected None beside env, which has them, got 2 and None"):
            hr.TransitionWriter(replay, env=env, lanes=2)
        with pytest.raises(
            TypeError, match="expected an environment or vector environment of gymnasium, got str"
        ):
            hr.TransitionWriter(replay, env="CartPole-v1")
        undeclared.metadata = {}
        with pytest.raises(ValueError, match="hr.envs.adapt"):
            hr.TransitionWriter(replay, env=undeclared)
        with hr.TransitionWriter(replay, env=hr.envs.adapt(undeclared, autoreset="same_step")) as writer:
            assert "2 lanes, same_step" in repr(writer)
        with pytest.raises(TypeError, match="expected a Replay"):
            hr.TransitionWriter("replay", env=env)
    undeclared.close()
