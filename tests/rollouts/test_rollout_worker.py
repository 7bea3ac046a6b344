"""`RolloutWorker` over environments with one agent (views-rollouts R1 to R12, R15, P1 to P4)."""

import functools
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_rollouts import Recurrent, by_step, counters, steps_of, worker
from gymnasium import spaces

import headrace as hr
from headrace.testing.envs import CounterEnv

BASE = {"observation", "action", "reward", "terminated", "truncated", "next_observation"}
BOOKKEEPING = {"episode_id", "t", "env_t", "fragment_id", "env_id", "agent_index"}


# ---- environments ----------------------------------------------------------------------------------------------------


def test_the_creator_is_called_for_each_environment_with_a_context_if_it_takes_one():
    # R1
    seen: list[Any] = []

    def create(context):
        seen.append((context.worker_index, context.env_index, context.get("level", 3)))
        return CounterEnv(2)

    with worker(create, num_envs=3) as made:
        assert len(made.envs) == 3
    assert seen == [(0, 0, 3), (0, 1, 3), (0, 2, 3)]
    with worker(create, worker_index=5):
        assert seen[3:] == [(5, 0, 3)]


@pytest.mark.parametrize(
    "create",
    [
        lambda: CounterEnv(2),
        lambda length=2: CounterEnv(length),
        functools.partial(CounterEnv, 2),
    ],
)
def test_a_creator_without_a_required_argument_gets_none(create: Any):
    # R1
    with worker(create) as made:
        assert made.sample().count == 6


def test_environments_are_closed_once_with_the_worker():
    with worker(counters(2), num_envs=2) as made:
        envs = made.envs
    made.close()
    assert [env.closed for env in envs] == [1, 1]
    with pytest.raises(hr.Closed):
        made.sample()


def test_environments_are_closed_if_the_worker_cannot_be_made():
    made: list[CounterEnv] = []

    def create():
        if len(made) == 2:
            raise LookupError("no third")
        made.append(CounterEnv(2))
        return made[-1]

    with pytest.raises(LookupError):
        worker(create, num_envs=3)
    assert [env.closed for env in made] == [1, 1]


# ---- truncate_episodes -----------------------------------------------------------------------------------------------


def test_a_fragment_has_its_length_of_steps_of_each_environment_in_order():
    # R2, R5
    with worker(counters(4, 3), num_envs=2) as made:
        first, second = made.sample(), made.sample()
    assert steps_of(first) == [
        *([0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 0], [0, 1, 1]),
        *([1, 0, 0], [1, 0, 1], [1, 0, 2], [1, 0, 3], [1, 1, 0], [1, 1, 1]),
    ]
    assert steps_of(second)[:6] == [[0, 1, 2], [0, 2, 0], [0, 2, 1], [0, 2, 2], [0, 2, 3], [0, 3, 0]]
    assert first["terminated"].tolist() == [False, False, False, True, False, False] * 2
    assert first["env_id"].tolist() == [0] * 6 + [1] * 6


def test_a_batch_has_base_columns_and_bookkeeping_of_these_dtypes():
    # R9, R10
    with worker(counters(4)) as made:
        batch = made.sample()
    assert set(batch) == BASE | BOOKKEEPING
    assert {name: batch[name].dtype for name in ("reward", "terminated", "truncated")} == {
        "reward": np.float32,
        "terminated": bool,
        "truncated": bool,
    }
    assert {batch[name].dtype for name in BOOKKEEPING} == {np.dtype("int64")}
    assert batch["t"].tolist() == batch["env_t"].tolist() == [0, 1, 2, 3, 0, 1]


def test_a_cut_sets_no_flag_and_the_next_observation_is_that_of_the_next_fragment():
    # R7
    with worker(counters(7), rollout_fragment_length=3) as made:
        parts = [made.sample() for _ in range(3)]
    for part, later in pairwise(parts):
        assert not part["terminated"][-1]
        assert not part["truncated"][-1]
        assert part["next_observation"][-1].tolist() == later["observation"][0].tolist()
    assert parts[2]["next_observation"][0].tolist() == [0, 0, 7]


def test_ids_go_on_across_fragments_and_differ_by_piece():
    # R8, R6: length 7, fragment 5: pieces of 5; 2 and 3; 4 and 1
    with worker(counters(7), rollout_fragment_length=5) as made:
        parts = [made.sample() for _ in range(3)]
    assert [part["t"].tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2], [3, 4, 5, 6, 0]]
    episodes = np.concatenate([part["episode_id"] for part in parts])
    assert len(set(episodes[:7])) == len(set(episodes[7:14])) == 1
    assert len(set(episodes)) == 3
    fragments = [len(set(part["fragment_id"])) for part in parts]
    assert fragments == [1, 2, 2]
    assert len(set(np.concatenate([part["fragment_id"] for part in parts]))) == 5


# ---- complete_episodes -----------------------------------------------------------------------------------------------


def test_whole_episodes_are_one_of_each_environment():
    # R3
    def create(context):
        return CounterEnv(2 if context.env_index == 0 else 50, copy=context.env_index)

    with worker(create, num_envs=2, batch_mode="complete_episodes") as made:
        for number in range(3):
            batch = made.sample()
            assert batch.count == 52
            assert batch["observation"][:, 1].tolist() == [number] * 52
            assert batch["terminated"].sum() == 2
        assert [env.step_count for env in made.envs] == [2, 50]


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_environments_are_seeded_at_their_first_reset():
    # R12
    with worker(counters(2), num_envs=3, seed=10) as made:
        made.sample()
        assert [env.seeds[:2] for env in made.envs] == [[10, None], [11, None], [12, None]]


def test_the_same_seed_gives_the_same_batches():
    # R12
    def sampled() -> Any:
        generator = np.random.default_rng(1)
        with worker(
            lambda: gymnasium.make("CartPole-v1"),
            lambda seen: generator.integers(2, size=len(seen)),
            num_envs=2,
            rollout_fragment_length=40,
            seed=5,
        ) as made:
            return [made.sample(), made.sample()]

    for one, other in zip(sampled(), sampled(), strict=True):
        assert set(one) == set(other)
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_mode": "whole"}, "'truncate_episodes', 'complete_episodes'"),
        ({"count_steps_by": "steps"}, "'env_steps', 'agent_steps'"),
        ({"rollout_fragment_length": 0}, "rollout_fragment_length"),
        ({"num_envs": 0}, "num_envs"),
        ({"worker_index": -1}, "worker_index"),
        ({"horizon": 0}, "horizon"),
        ({"max_seq_len": 0}, "max_seq_len"),
        ({"soft_horizon": True}, "horizon"),
        ({"policy": {"a": by_step, "b": by_step}}, "policy_mapping_fn"),
        ({"policy": {}}, "policy"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
    ],
)
def test_settings_that_are_not_legal(options: dict[str, Any], told: str):
    # R15
    def create():
        raise AssertionError("no environment is made")

    with pytest.raises(ValueError, match=told):
        worker(create, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": "7"}, "^seed: expected an integer >= 0, got '7'"),
        (
            {"callbacks": 5},
            "^callbacks: expected an object or a class with some of the methods on_episode_start, .*got 5",
        ),
        ({"callbacks": object}, "^callbacks"),
        (
            {"sample_collector": 5},
            "^sample_collector: expected a class derived from hr.SampleCollector, .*got 5",
        ),
        ({"views": 5}, "^views: expected a dict of View, got int"),
        ({"views": {5: hr.View("reward")}}, "^views: expected names that are strings, got 5"),
    ],
)
def test_settings_of_another_type(options: dict[str, Any], told: str):
    with pytest.raises(TypeError, match=told):
        worker(counters(2), **options)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Text(3), "^{}: expected a Box.*got Text"),
        (spaces.Dict(x=spaces.Text(3)), "^{}: x: expected a Box"),
    ],
)
def test_a_space_that_has_no_shape_is_named(name: str, space: Any, told: str):
    def create():
        env = CounterEnv(2)
        setattr(env, name, space)
        return env

    with pytest.raises(hr.SpecError, match=told.format(name)):
        worker(create)


def test_a_policy_must_act():
    with pytest.raises(TypeError, match="compute_actions"):
        worker(counters(2), 5)


# ---- policies and views ----------------------------------------------------------------------------------------------


def test_a_policy_gets_causal_views_and_its_states_alone():
    # P2
    policy = Recurrent({"stack": hr.View("observation", shift="-1:0")})
    views = {
        "prev": hr.View("action", shift=-1, mask=True),
        "next_action": hr.View("action", shift=1),
        "hidden": hr.View("reward", shift=-1, used_for_compute_actions=False),
    }
    with worker(counters(4), policy, num_envs=2, views=views) as made:
        batch = made.sample()
    assert set(policy.seen[0]) == {"observation", "stack", "prev", "prev_mask", "state_in_0", "state_in_1"}
    assert policy.seen[0]["stack"].shape == (2, 2, 3)
    assert set(batch) == BASE | BOOKKEEPING | {
        *("stack", "prev", "prev_mask", "next_action", "hidden", "doubled"),
        *("state_in_0", "state_in_1", "state_out_0", "state_out_1"),
    }


def test_one_environment_gives_arrays_of_one_row():
    # P2
    policy = Recurrent()
    with worker(counters(4), policy) as made:
        made.sample()
    assert {key: array.shape for key, array in policy.seen[0].items()} == {
        "observation": (1, 3),
        "state_in_0": (1,),
        "state_in_1": (1, 2),
    }


def test_what_a_policy_saw_is_what_the_batch_has():
    # V14
    policy = Recurrent({"stack": hr.View("observation", shift="-2:0", fill="edge", mask=True)})
    names = ("observation", "stack", "stack_mask", "state_in_0", "state_in_1", "prev")
    with worker(counters(4), policy, views={"prev": hr.View("reward", shift=-1)}) as made:
        batches = [made.sample() for _ in range(3)]
    for name in names:
        seen = np.concatenate([row[name] for row in policy.seen])
        shown = np.concatenate([batch[name] for batch in batches])
        assert seen.dtype == shown.dtype
        np.testing.assert_array_equal(seen, shown)


def test_views_may_change_between_samples():
    # R9
    with worker(counters(4)) as made:
        assert "next_action" not in made.sample()
        made.views["next_action"] = hr.View("action", shift=1)
        batch = made.sample()
        assert batch["next_action"].tolist() == [3, 0, 1, 2, 3, 0]
        made.views["next_action"] = hr.View("action", shift=-1)
        assert made.sample()["next_action"].tolist() == [0, 0, 1, 2, 0, 0]


def test_a_base_column_can_be_replaced_and_removed():
    # R9
    views = {
        "next_observation": hr.View("observation", shift=1, used_for_training=False),
        "observation": hr.View("observation", shift="-1:0"),
    }
    shapes = []

    def policy(seen):
        shapes.append(seen.shape)
        return seen[:, 1, 2] % 4

    with worker(counters(4), policy, views=views) as made:
        batch = made.sample()
    assert "next_observation" not in batch
    assert batch["observation"].shape == (6, 2, 3)
    assert set(shapes) == {(1, 2, 3)}


@pytest.mark.parametrize(
    ("view", "error", "told"),
    [
        (hr.View("nothing"), hr.SpecError, "no column 'nothing'"),
        (hr.View("nothing", shift=-1), hr.SpecError, "no column 'nothing'"),
        (hr.View("action", used_for_compute_actions=True), ValueError, "used_for_compute_actions"),
        (hr.View("observation", every=3), ValueError, "max_seq_len"),
        (hr.View("observation", fill="a"), hr.SpecError, "fill"),
        ("observation", TypeError, "View"),
    ],
)
def test_views_that_cannot_be_shown_are_refused_at_construction(view: Any, error: Any, told: str):
    # V8, V9, V10
    made: list[CounterEnv] = []

    def create():
        made.append(CounterEnv(2))
        return made[-1]

    with pytest.raises(error, match=told):
        worker(create, views={"wrong": view})
    assert all(env.closed == 1 for env in made)


def test_a_view_of_bookkeeping_is_shown_and_its_name_is_kept_for_it():
    # R10, V2
    views = {"next_t": hr.View("t", shift=1), "time": hr.View("t")}
    seen = []

    class Policy:
        def compute_actions(self, input_dict):
            seen.append(int(input_dict["time"][0]))
            return input_dict["observation"][:, 2] % 4

    with worker(counters(4), Policy(), views=views, rollout_fragment_length=3) as made:
        batches = [made.sample(), made.sample()]
    assert [batch["next_t"].tolist() for batch in batches] == [[1, 2, 3], [4, 1, 2]]
    assert seen == [0, 1, 2, 3, 0, 1]
    for name in ("t", "seq_lens"):
        with pytest.raises(ValueError, match=f"view '{name}': .*bookkeeping"):
            worker(counters(4), views={name: hr.View("observation")})


def test_a_policy_output_read_before_the_first_call_needs_a_space():
    # V15
    view = hr.View("doubled", shift=-1)
    with pytest.raises(hr.SpecError, match="space"):
        worker(counters(4), Recurrent({"last": view}))
    policy = Recurrent({"last": view.replace(space=hr.ArraySpec((), "int64"))})
    with worker(counters(4), policy) as made:
        batch = made.sample()
    assert batch["last"].tolist() == [0, 0, 2, 4, 0, 0]
    assert [int(seen["last"][0]) for seen in policy.seen] == [0, 0, 2, 4, 0, 0]


def test_the_policy_version_is_a_column():
    # R10
    policy = Recurrent()
    policy.version = 3  # type: ignore[attr-defined]
    with worker(counters(4), policy) as made:
        assert made.sample()["policy_version"].tolist() == [3] * 6
        policy.version = 4  # type: ignore[attr-defined]
        assert made.sample()["policy_version"].tolist() == [4] * 6


def test_an_extra_must_not_have_the_name_of_a_base_column():
    # P3
    class Policy:
        def compute_actions(self, input_dict):
            return input_dict["observation"][:, 2] % 4, [], {"t": np.zeros(1)}

    with worker(counters(4), Policy()) as made, pytest.raises(hr.SpecError, match="default_policy.*'t'"):
        made.sample()


@pytest.mark.parametrize("wrong", ["actions", "states", "extras"])
def test_a_result_that_does_not_fit_names_the_policy(wrong: str):
    # P2, P3
    class Policy(Recurrent):
        def compute_actions(self, input_dict):
            actions, states, extras = super().compute_actions(input_dict)
            if wrong == "extras":
                # Integers in the first call, then fractions, which the column cannot hold.
                return actions, states, extras if len(self.seen) == 1 else {"doubled": states[0] / 2}
            return (actions[:0], states, extras) if wrong == "actions" else (actions, states[:1], extras)

    with (
        worker(counters(4), {"hopper": Policy()}) as made,
        pytest.raises(hr.SpecError, match="policy 'hopper'"),
    ):
        made.sample()


# ---- recurrent policies ----------------------------------------------------------------------------------------------


def test_sequences_are_cut_from_each_fragments_first_row():
    # R11
    with worker(counters(50), Recurrent(), rollout_fragment_length=10, max_seq_len=4) as made:
        first, second = made.sample(), made.sample()
    assert first.seq_lens.tolist() == [4, 4, 2]
    assert first.max_seq_len == 4
    assert first["state_in_0"].tolist() == [0, 4, 8]
    assert second["state_in_0"].tolist() == [10, 14, 18]
    assert first["state_out_0"].tolist() == list(range(1, 11))
    assert first.right_zero_pad(4)["doubled"].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 0, 0]


def test_sequences_end_with_episodes_and_environments():
    # R11
    with worker(counters(3), Recurrent(), rollout_fragment_length=4, max_seq_len=2, num_envs=2) as made:
        batch = made.sample()
    assert batch.seq_lens.tolist() == [2, 1, 1, 2, 1, 1]
    assert batch["state_in_0"].tolist() == [0, 2, 0, 0, 2, 0]
    assert batch["state_in_1"][:, 0].tolist() == [7, 8, 7, 7, 8, 7]


def test_without_sequences_every_row_has_its_state():
    # R11
    with worker(counters(4), Recurrent()) as made:
        batch = made.sample()
    assert batch.seq_lens is None
    assert batch["state_in_0"].tolist() == [0, 1, 2, 3, 0, 1]


def test_views_of_one_row_a_sequence():
    # V9
    views = {"begin": hr.View("observation", every=4)}
    with worker(counters(50), Recurrent(), rollout_fragment_length=10, max_seq_len=4, views=views) as made:
        assert made.sample()["begin"][:, 2].tolist() == [0, 4, 8]
        assert made.sample()["begin"][:, 2].tolist() == [10, 14, 18]


# ---- trees -----------------------------------------------------------------------------------------------------------


class TreeEnv(gymnasium.Env[Any, Any]):
    """Dict observations and Tuple actions; an episode ends after three steps."""

    observation_space = spaces.Dict(
        at=spaces.Box(0, 9, (), np.int32), eye=spaces.Box(0, 255, (2, 2), np.uint8)
    )
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,))))

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._seen(), {}

    def step(self, action):
        self._t += 1
        return self._seen(), float(action[0]), self._t == 3, False, {}

    def _seen(self):
        return {"at": np.int32(self._t), "eye": np.full((2, 2), self._t, np.uint8)}


def test_trees_stay_trees():
    # V5, P1
    class Policy:
        def compute_actions(self, input_dict):
            at = input_dict["observation"]["at"]
            return (at % 3, np.zeros((len(at), 2), np.float32)), [], {}

    views = {"eyes": hr.View("observation/eye", shift="-1:0"), "last": hr.View("action", shift=-1)}
    with worker(TreeEnv, Policy(), views=views, rollout_fragment_length=4) as made:
        batch = made.sample()
    assert batch["observation/at"].tolist() == [0, 1, 2, 0]
    assert batch["next_observation"]["at"].tolist() == [1, 2, 3, 1]
    assert batch["eyes"].shape == (4, 2, 2, 2)
    assert batch["last"][0].tolist() == [0, 0, 1, 0]
    assert batch["action"][1].shape == (4, 2)
