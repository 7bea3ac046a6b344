"""Postprocessing, callbacks and errors of a `RolloutWorker` (views-rollouts P4, R6, R14, C1, C2)."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import Recurrent, by_step, counters, steps_of, worker

import headrace as hr
from headrace.rollouts import Callbacks
from headrace.testing.envs import CounterEnv


class Postprocessed:
    """Acts with the number of the step and keeps the pieces that it was given."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def compute_actions(self, input_dict):
        return by_step(input_dict["observation"])

    def postprocess_trajectory(self, batch, other_agents, episode):
        assert other_agents == {}
        self.pieces.append((episode.episode_id, batch["t"].tolist()))
        batch["return"] = np.cumsum(batch["reward"][::-1])[::-1]


# ---- postprocessing --------------------------------------------------------------------------------------------------


def test_pieces_end_with_fragments_and_episodes():
    # R6
    policy = Postprocessed()
    with worker(counters(7), policy, rollout_fragment_length=10) as made:
        batches = [made.sample(), made.sample()]
    assert [len(rows) for _, rows in policy.pieces] == [7, 3, 4, 6]
    assert [episode for episode, _ in policy.pieces] == [0, 1, 1, 2]
    assert batches[0]["return"][6] == batches[0]["reward"][6]
    assert batches[0]["return"].dtype == np.float32


def test_pieces_of_several_environments_come_environment_by_environment():
    # R5, R6
    with worker(counters(4, 3), Postprocessed(), num_envs=2) as made:
        batch = made.sample()
    assert steps_of(batch) == sorted(steps_of(batch))
    assert batch["env_id"].tolist() == [0] * 6 + [1] * 6


def test_postprocessing_gets_every_view_and_training_only_its_own():
    # P4, R6
    names: list[set[str]] = []

    class Policy(Postprocessed):
        def postprocess_trajectory(self, batch, other_agents, episode):
            names.append(set(batch))
            batch["next_observation"] = batch["next_observation"] + 1
            return batch

    views = {"hidden": hr.View("reward", used_for_training=False, mask=True)}
    with worker(counters(4), Policy(), views=views) as made:
        batch = made.sample()
    assert {"hidden", "hidden_mask", "episode_id", "next_observation"} <= names[0]
    assert not {"hidden", "hidden_mask"} & set(batch)
    assert batch["next_observation"][0].tolist() == [1, 1, 2]


def test_sequences_reach_postprocessing_unpadded():
    # P4, R11
    lengths: list[Any] = []

    class Policy(Recurrent):
        def postprocess_trajectory(self, batch, other_agents, episode):
            lengths.append((batch.seq_lens.tolist(), batch["state_in_0"].tolist()))

    with worker(counters(5), Policy(), max_seq_len=2) as made:
        batch = made.sample()
    assert lengths == [([2, 2, 1], [0, 2, 4]), ([1], [0])]
    assert batch.seq_lens.tolist() == [2, 2, 1, 1]
    assert batch.max_seq_len == 2


def test_the_number_of_rows_must_stay():
    # P4
    class Policy(Postprocessed):
        def postprocess_trajectory(self, batch, other_agents, episode):
            return batch[:1]

    with worker(counters(4), Policy()) as made, pytest.raises(hr.SpecError, match="expected 4 rows"):
        made.sample()


# ---- callbacks -------------------------------------------------------------------------------------------------------


class Told(Callbacks):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_episode_start(self, *, worker, episode, env_index):
        episode.user_data["steps"] = 0
        self.told.append(("start", env_index))

    def on_episode_step(self, *, worker, episode, env_index):
        episode.user_data["steps"] += 1

    def on_episode_end(self, *, worker, episode, env_index):
        assert worker.envs[env_index].step_count == episode.length == episode.user_data["steps"]
        assert episode.agent_rewards == {"agent0": episode.total_reward}
        self.told.append(("end", env_index, episode.total_reward))

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches
    ):
        assert policies == worker.policy_map
        assert policy_id == "default_policy"
        assert list(original_batches) == [agent_id] == ["agent0"]
        postprocessed_batch["reward"] *= 2
        assert 2 * original_batches[agent_id]["reward"].sum() == postprocessed_batch["reward"].sum()
        postprocessed_batch["added"] = np.arange(len(postprocessed_batch))
        self.told.append(("rows", len(postprocessed_batch)))

    def on_sample_end(self, *, worker, samples):
        self.told.append(("sample", samples.count))


def test_callbacks_are_told_in_order():
    # C1, C2
    told = Told()
    with worker(counters(4), callbacks=told) as made:
        batch = made.sample()
    rewards = [5.0 * step for step in range(4)]
    assert told.told == [
        ("start", 0), ("rows", 4), ("end", 0, sum(rewards)), ("start", 0), ("rows", 2), ("sample", 6),
    ]  # fmt: skip
    assert batch["reward"].tolist() == [0, 10, 20, 30, 0, 10]
    assert batch["added"].tolist() == [0, 1, 2, 3, 0, 1]


def test_callbacks_may_be_any_object_with_some_of_the_methods():
    # C1
    class Ends:
        count = 0

        def on_episode_end(self, worker, episode, env_index):
            self.count += 1

    ends = Ends()
    with worker(counters(2), callbacks=ends) as made:
        made.sample()
    assert ends.count == 3


# ---- errors ----------------------------------------------------------------------------------------------------------


class Failing(CounterEnv):
    """Raises at one step of one episode, once."""

    failure: tuple[int, int] | None = (1, 1)

    def step(self, action):
        if (self.episode, self.step_count) == self.failure:
            self.failure = None
            raise ArithmeticError("the arm broke")
        return super().step(action)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_an_error_drops_the_episode_of_its_environment_and_others_go_on(broken: int):
    # R14
    def create(context):
        kind = Failing if context.env_index == broken else CounterEnv
        return kind(3, copy=context.env_index)

    with worker(create, num_envs=3) as made:
        with pytest.raises(ArithmeticError, match="the arm broke"):
            made.sample()
        first, second = made.sample(), made.sample()
    for i in range(3):
        rows = [row[1:] for row in steps_of(first) if row[0] == i]
        if i == broken:
            assert rows == [[0, 0], [0, 1], [0, 2], [2, 0], [2, 1], [2, 2]]
        else:
            assert rows == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert second.count == 18
    assert all(len(set(part["episode_id"])) == 1 for part in first.split_by_episode())


def test_an_error_in_a_whole_episode_begins_another_there():
    # R14, R3
    def create(context):
        return (Failing if context.env_index == 1 else CounterEnv)(3, copy=context.env_index)

    with worker(create, num_envs=2, batch_mode="complete_episodes") as made:
        assert made.sample().count == 6
        with pytest.raises(ArithmeticError):
            made.sample()
        assert steps_of(made.sample()) == [[0, 1, 0], [0, 1, 1], [0, 1, 2], [1, 2, 0], [1, 2, 1], [1, 2, 2]]


def test_an_error_in_the_middle_of_a_state_leaves_the_others_states():
    # R14
    def create(context):
        return (Failing if context.env_index == 1 else CounterEnv)(9, copy=context.env_index)

    with worker(create, Recurrent(), num_envs=3, rollout_fragment_length=11) as made:
        with pytest.raises(ArithmeticError):
            made.sample()
        batch = made.sample()
    assert batch["state_in_0"].tolist() == batch["t"].tolist()


def test_an_error_of_the_policy_drops_nothing():
    # R14
    calls = []

    def policy(seen):
        calls.append(1)
        if len(calls) == 3:
            raise ArithmeticError("no idea")
        return by_step(seen)

    with worker(counters(4), policy, num_envs=2) as made:
        with pytest.raises(ArithmeticError):
            made.sample()
        batch = made.sample()
    assert steps_of(batch)[:6] == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 0], [0, 1, 1]]


def test_an_error_of_a_reset_is_tried_again():
    # R14
    class FailingReset(CounterEnv):
        failures = 1

        def reset(self, **options):
            if self.episode == 0 and self.failures:
                self.failures = 0
                raise ArithmeticError("no reset")
            return super().reset(**options)

    with worker(lambda: FailingReset(3), num_envs=2) as made:
        for _ in made.envs:
            with pytest.raises(ArithmeticError):
                made.sample()
        assert made.sample()["t"].tolist() == [0, 1, 2] * 4


def test_an_error_of_postprocessing_leaves_the_worker_usable():
    # R14
    class Policy(Postprocessed):
        failures = 1

        def postprocess_trajectory(self, batch, other_agents, episode):
            if self.failures:
                self.failures = 0
                raise ArithmeticError("no value")

    with worker(counters(50), Policy()) as made:
        with pytest.raises(ArithmeticError):
            made.sample()
        assert made.sample()["t"].tolist() == [6, 7, 8, 9, 10, 11]


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fragment", [1, 3])
def test_memory_does_not_grow(fragment: int):
    # R16
    views = {"stack": hr.View("observation", shift="-3:0")}
    with worker(counters(2, 5), Recurrent(views), num_envs=2, rollout_fragment_length=fragment) as made:
        for _ in range(10):
            made.sample()
        before = made._loop._lanes.rows.arrays["observation"].nbytes
        for _ in range(200):
            made.sample()
        assert made._loop._lanes.rows.arrays["observation"].nbytes == before
        assert len(made._loop._pieces) <= 2
        assert not made._loop._fragments._closed
        assert not made._loop._fragments._ready
