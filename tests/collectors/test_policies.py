"""Policies with `compute_actions` and with memory, in collectors (CP6, views-rollouts P1 to P3)."""

import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]
KINDS = ["single", "disabled", "same_step", "next_step"]
LENGTHS = [3, 5]


def environments(kind):
    """`create_env_fn` and its options."""
    if kind == "single":
        return in_turn(counter_env_fns(LENGTHS)), {"num_envs": 2}
    return lambda: counter_vector_env(LENGTHS, kind), {}


class Summing:
    """Remembers the sum of the steps that it saw in the episode, from 100 on, and how many they are."""

    def __init__(self, offset=0):
        self.offset = np.array(offset)

    def initial_state(self):
        return [np.array([100.0], np.float32), np.array(0)]

    def compute_actions(self, input_dict):
        assert set(input_dict) == {"observation", "state_in_0", "state_in_1"}
        total, count = input_dict["state_in_0"], input_dict["state_in_1"]
        step = input_dict["observation"][:, 2]
        result = (
            (step + self.offset) % 4,
            [total + step[:, None], count + 1],
            {"value": total[:, 0].copy()},
        )
        total[:] = -1  # The inputs are its own.
        return result

    def state_dict(self):
        return {"offset": self.offset}

    def load_state_dict(self, weights):
        self.offset = weights["offset"]


def check_memory(batches):
    """The states of `Summing` in the closed form of counters."""
    for batch in batches:
        mask = batch["mask"]
        step = batch["observation"][..., 2][mask]
        total = 100 + step * (step - 1) // 2
        np.testing.assert_array_equal(batch["state_in_0"][mask], total[:, None])
        np.testing.assert_array_equal(batch["state_in_1"][mask], step)
        np.testing.assert_array_equal(batch["state_out_0"][mask], (total + step)[:, None])
        np.testing.assert_array_equal(batch["state_out_1"][mask], step + 1)
        np.testing.assert_array_equal(batch["value"][mask], total)
        np.testing.assert_array_equal(batch["action"][mask], step % 4)
        assert batch["state_in_0"].dtype == batch["state_out_0"].dtype == np.float32
        assert not batch["state_out_1"][~mask].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_states_go_on_over_batches_and_begin_with_each_episode(collector_type, kind, take):
    create, options = environments(kind)
    with collector_type(create, Summing(), frames_per_batch=8, **options) as collector:
        batches = take(collector, 5)
    check_memory(batches)
    assert max(batch["t"].max() for batch in batches) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_states_begin_anew_where_an_episode_is_cut(kind, take):
    # CR5: a cut of the collector's is a reset too. CS2: `set_seed` is one of all environments.
    create, options = environments(kind)
    with hr.Collector(create, Summing(), frames_per_batch=6, max_frames_per_traj=2, **options) as collector:
        batches = take(collector, 3)
        collector.set_seed(3)
        batches += take(collector, 2)
    check_memory(batches)
    assert max(batch["t"].max() for batch in batches) == 1


def test_states_begin_anew_after_a_failure(take):
    # CX1: all environments are reset.
    class Failing(Summing):
        calls = 0

        def compute_actions(self, input_dict):
            self.calls += 1
            if self.calls == 9:
                raise KeyError("ninth")
            return super().compute_actions(input_dict)

    with hr.Collector(lambda: CounterEnv(50), Failing(), frames_per_batch=6) as collector:
        batches = take(collector, 1)
        with pytest.raises(KeyError, match="ninth"):
            collector.next()
        batches += take(collector, 2)
    check_memory(batches)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_random_steps_leave_the_state_alone(collector_type, take):
    # CR4: the policy is not called; its state at its first step is the initial one, in the middle of an episode.
    with collector_type(
        lambda: CounterEnv(50), Summing(), frames_per_batch=4, init_random_frames=4
    ) as collector:
        first, second = take(collector, 2)
    assert "state_in_0" not in first
    assert (first["policy_version"] == -1).all()
    np.testing.assert_array_equal(second["state_in_0"][0, :, 0], 100 + np.array([0, 4, 9, 15]))


def test_new_weights_at_the_first_step_leave_the_state_alone(take):
    # The first call, by which the columns become known, is repeated with the new weights, and with the same state.
    with hr.Collector(lambda: CounterEnv(9), Summing(), frames_per_batch=4) as collector:
        calls = []
        original = collector.policy.compute_actions

        def compute_actions(input_dict):
            calls.append(input_dict["state_in_1"].tolist())
            if len(calls) == 1:
                collector.update_policy_weights_(weights={"offset": np.array(1)})
            return original(input_dict)

        collector.policy.compute_actions = compute_actions
        (batch,) = take(collector, 1)
    assert calls == [[0], [0], [1], [2], [3]]
    np.testing.assert_array_equal(batch["action"], [[1, 2, 3, 0]])
    np.testing.assert_array_equal(batch["state_in_1"], [[0, 1, 2, 3]])


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_policy_without_memory(collector_type, take):
    class Stepping:
        version = 77  # CP6: the collector numbers versions itself.

        def compute_actions(self, input_dict):
            assert set(input_dict) == {"observation"}
            return input_dict["observation"][:, 2] % 4

    with collector_type(lambda: CounterEnv(9), Stepping(), num_envs=2, frames_per_batch=20) as collector:
        batch = take(collector, 1)[0]
    np.testing.assert_array_equal(batch["action"], batch["observation"][..., 2] % 4)
    assert (batch["policy_version"] == 0).all()
    assert list(batch)[-1] == "mask"


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_replay_with_states(collector_type, make_replay):
    signature = hr.collectors.signature(lambda: CounterEnv(3), Summing())
    assert {name: signature.columns[name] for name in ("state_in_0", "state_out_0", "state_in_1")} == {
        "state_in_0": hr.ArraySpec(1, "float32"),
        "state_out_0": hr.ArraySpec(1, "float32"),
        "state_in_1": hr.ArraySpec((), "int64"),
    }
    replay = make_replay(signature)
    with collector_type(
        lambda: CounterEnv(3), Summing(), frames_per_batch=12, total_frames=24, replay_buffer=replay
    ) as collector:
        check_memory(list(collector))
    views = {name: hr.View(name) for name in ("observation", "state_in_0")}
    data = replay.sample("t", 200, views=views, timeout=5).data
    step = data["observation"][:, 2]
    np.testing.assert_array_equal(data["state_in_0"][:, 0], 100 + step * (step - 1) // 2)


@pytest.mark.parametrize("collector_type", COLLECTORS)
@pytest.mark.parametrize("returned", [([0], [], {}), ([0], [[[1.0]], [2], [3]], {})])
def test_a_wrong_number_of_states(collector_type, returned, take):
    # P2.
    class Wrong(Summing):
        def compute_actions(self, input_dict):
            return returned

    with pytest.raises(hr.SpecError, match="policy: state_outs: expected 2"):
        with collector_type(lambda: CounterEnv(9), Wrong(), frames_per_batch=4) as collector:
            take(collector, 1)


@pytest.mark.parametrize("name", ["state_in_0", "state_out_1", "reward"])
def test_extras_named_like_other_columns(name, take):
    # P3.
    class Named(Summing):
        def compute_actions(self, input_dict):
            actions, state_outs, _ = super().compute_actions(input_dict)
            return actions, state_outs, {name: [0.0]}

    with pytest.raises(hr.SpecError, match=f"policy: the column '{name}' is .*give it another name"):
        with hr.Collector(lambda: CounterEnv(9), Named(), frames_per_batch=4) as collector:
            take(collector, 1)
