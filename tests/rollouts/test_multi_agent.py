"""`RolloutWorker` over environments with several agents (views-rollouts M1 to M9, R4, R5, R14, R16)."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import worker
from gymnasium import spaces
from scripted_agents import ScriptedEnv, Turn, by_time, rows_of

import headrace as hr
from headrace.rollouts import Callbacks

DEFAULT = "default_policy"


def sampled(env: Any, policy: Any = by_time, **options: Any) -> hr.SampleBatch:
    """Returns the rows of the default policy of one sample, of one environment."""
    with worker(lambda: env, policy, **options) as made:
        return made.sample()[DEFAULT]


def agent_rows(batch: hr.SampleBatch, agent: int) -> dict[str, list[Any]]:
    """Returns the columns of one agent's rows."""
    chosen = batch["observation"][:, 0] == agent
    return {name: column[chosen].tolist() for name, column in batch.items()}


# ---- acting, counting ------------------------------------------------------------------------------------------------


def test_agents_act_when_they_were_observed():
    # M1, M3
    env = ScriptedEnv("a", Turn("ab"), Turn("b", {"a": 0, "b": 1}), Turn("abc"), Turn("abc"))
    with worker(lambda: env, by_time, rollout_fragment_length=4) as made:
        batch = made.sample()
    assert isinstance(batch, hr.MultiAgentBatch)
    assert env.acted == [{"a": 0}, {"a": 1, "b": 11}, {"b": 12}, {"a": 3, "b": 13, "c": 23}]
    assert batch.env_steps() == 4
    assert batch.agent_steps() == 7
    rows = batch[DEFAULT]
    assert rows_of(rows) == [(0, 0, 0), (0, 0, 1), (0, 0, 3), (1, 0, 1), (1, 0, 2), (1, 0, 3), (2, 0, 3)]
    assert rows["env_t"].tolist() == [0, 1, 3, 1, 2, 3, 3]
    assert rows["t"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert rows["agent_index"].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert rows["next_observation"][:, 2].tolist() == [1, 3, 4, 2, 3, 4, 4]


@pytest.mark.parametrize(
    "last",
    [
        Turn("ab", None, "ab"),
        Turn("ab", None, "a", "b"),
        Turn("ab", None, "__all__"),
        Turn("ab", None, "", "__all__"),
    ],
)
def test_an_episode_ends_when_all_agents_have_ended(last: Turn):
    # M1
    env = ScriptedEnv("ab", Turn("ab"), last, endless=True)
    rows = sampled(env, rollout_fragment_length=4)
    assert [row[1] for row in rows_of(rows)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len(set(rows["episode_id"].tolist())) == 2
    assert env.episode == 1


def test_an_episode_ends_when_the_environment_has_no_agents():
    # M1, M5: nothing was said of the agents
    rows = sampled(ScriptedEnv("ab", Turn("ab"), Turn("ab")), rollout_fragment_length=2)
    assert rows["truncated"].tolist() == [False, True] * 2
    assert not rows["terminated"].any()


def test_fragments_may_count_the_steps_of_agents():
    # R4
    env = ScriptedEnv("ab", Turn("ab"), Turn("abc"), Turn("abc"), Turn("abc"), endless=True)
    with worker(lambda: env, by_time, rollout_fragment_length=5, count_steps_by="agent_steps") as made:
        batches = [made.sample() for _ in range(3)]
    assert [(batch.env_steps(), batch.agent_steps()) for batch in batches] == [(3, 7), (2, 5), (2, 6)]


def test_rows_come_by_policy_environment_episode_and_agent():
    # R5
    def create():
        return ScriptedEnv("ba", Turn("ab"), Turn("ab"))

    policies = {"even": by_time, "odd": by_time}
    with worker(
        create, policies, num_envs=2, rollout_fragment_length=3,
        policy_mapping_fn=lambda agent, episode: "odd" if agent == "b" else "even",
    ) as made:  # fmt: skip
        batch = made.sample()
    assert set(batch.policy_batches) == {"even", "odd"}
    assert rows_of(batch["odd"]) == [(1, 0, 0), (1, 0, 1), (1, 1, 0)] * 2
    assert rows_of(batch["even"]) == [(0, 0, 0), (0, 0, 1), (0, 1, 0)] * 2
    assert batch["odd"]["env_id"].tolist() == [0, 0, 0, 1, 1, 1]


def test_agents_of_one_policy_come_in_order_of_appearance():
    # R5, R10
    env = ScriptedEnv("c", Turn("ca"), Turn("ca"), possible=["a"])
    rows = sampled(env, rollout_fragment_length=2)
    assert rows_of(rows) == [(2, 0, 0), (2, 0, 1), (0, 0, 1)]
    assert rows["agent_index"].tolist() == [1, 1, 0]


def test_all_rows_of_a_policy_are_one_call():
    # P2
    shapes = []

    def policy(seen):
        shapes.append(seen.shape)
        return by_time(seen)

    with worker(lambda: ScriptedEnv("ab", Turn("ab"), Turn("ab")), policy, num_envs=3) as made:
        made.sample()
    assert set(shapes) == {(6, 3)}


def test_whole_episodes_of_several_agents():
    # R3
    env = ScriptedEnv("a", Turn("ab"), Turn("ab"), Turn("ab", None, "ab"))
    with worker(lambda: env, by_time, batch_mode="complete_episodes") as made:
        for episode in range(2):
            batch = made.sample()
            assert batch.env_steps() == 3
            assert rows_of(batch[DEFAULT]) == [
                (0, episode, 0), (0, episode, 1), (0, episode, 2), (1, episode, 1), (1, episode, 2)
            ]  # fmt: skip


def test_environments_with_several_agents_are_seeded():
    # R12
    made: list[ScriptedEnv] = []

    def create():
        made.append(ScriptedEnv("a", Turn("a"), Turn("a")))
        return made[-1]

    with worker(create, by_time, num_envs=2, seed=4) as one:
        one.sample()
    assert [env.seeds for env in made] == [[4, None, None], [5, None, None]]


# ---- mapping ---------------------------------------------------------------------------------------------------------


def test_agents_are_mapped_once_an_episode():
    # M2
    asked = []

    def mapping(agent, episode):
        asked.append((agent, episode.episode_id))
        return DEFAULT

    env = ScriptedEnv("a", Turn("ab"), Turn("ab"), Turn("ab"))
    sampled(env, policy_mapping_fn=mapping)
    assert asked == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_an_unknown_policy_is_refused_with_the_agent():
    # M2
    env = ScriptedEnv("a", Turn("ab"), Turn("ab"))
    with (
        worker(lambda: env, {"x": by_time, "y": by_time}, policy_mapping_fn=lambda *_: "z") as made,
        pytest.raises(ValueError, match="agent 'a'.*'x', 'y'.*'z'"),
    ):
        made.sample()


# ---- rewards and ends ------------------------------------------------------------------------------------------------


def turns_between() -> ScriptedEnv:
    """B acts at env step 0, gets .5, .25, .25, and is observed again after env step 2."""
    return ScriptedEnv(
        "ab",
        Turn("a", {"a": 1, "b": 0.5}),
        Turn("a", {"a": 1, "b": 0.25}),
        Turn("ab", {"a": 1, "b": 0.25}),
        Turn("ab"),
        endless=True,
    )


def test_rewards_between_turns_are_added_up():
    # M4
    rows = sampled(turns_between(), rollout_fragment_length=4)
    b = agent_rows(rows, 1)
    assert b["reward"] == [1.0, 1.0]
    assert b["env_t"] == [0, 3]
    assert [seen[2] for seen in b["next_observation"]] == [3, 4]


@pytest.mark.parametrize("fragment", [1, 2, 3])
def test_an_open_step_comes_whole_in_the_batch_in_which_it_completes(fragment: int):
    # M4
    with worker(turns_between, by_time, rollout_fragment_length=fragment) as made:
        batches = [made.sample() for _ in range(12 // fragment)]
    rows = hr.SampleBatch.concat([batch[DEFAULT] for batch in batches])
    b = agent_rows(rows, 1)
    assert b["env_t"] == [0, 3, 4, 7, 8, 11]
    assert b["t"] == list(range(6))
    assert b["reward"] == [1.0] * 6
    assert sum(batch.agent_steps() for batch in batches) == 18


def test_flags_are_the_agents_own():
    # M5
    env = ScriptedEnv("abc", Turn("abc", None, "", "a"), Turn("bc", None, "b"))
    rows = sampled(env, rollout_fragment_length=2)
    ends = {
        agent: (agent_rows(rows, agent)["terminated"], agent_rows(rows, agent)["truncated"])
        for agent in range(3)
    }
    assert ends == {
        0: ([False], [True]),
        1: ([False, True], [False, False]),
        2: ([False, False], [False, True]),
    }


def test_an_open_step_at_the_end_is_truncated():
    # M5
    env = ScriptedEnv("ab", Turn("a", {"a": 1, "b": 2}), Turn("a", {"a": 1, "b": 3}, "a"))
    rows = sampled(env, rollout_fragment_length=2)
    b = agent_rows(rows, 1)
    assert (b["reward"], b["terminated"], b["truncated"]) == ([5.0], [False], [True])


def test_an_end_without_an_observation_keeps_the_last_known_one():
    # M6
    env = ScriptedEnv("ab", Turn("ab"), Turn("a", {"a": 1, "b": 7}, "b"), Turn("a"))
    views = {"following": hr.View("observation", shift=1, mask=True)}
    b = agent_rows(sampled(env, views=views, rollout_fragment_length=3), 1)
    assert b["reward"] == [1.0, 7.0]
    assert [seen[2] for seen in b["next_observation"]] == [1, 1]
    assert b["following_mask"] == [True, False]
    assert b["terminated"] == [False, True]


def test_an_agent_that_is_done_in_its_first_observation_has_no_rows():
    # M6
    env = ScriptedEnv("a", Turn("ab", None, "b"), Turn("a"), Turn("a"))
    rows = sampled(env, rollout_fragment_length=3)
    assert {row[0] for row in rows_of(rows)} == {0}


@pytest.mark.parametrize(
    ("second", "third", "told"),
    [
        (Turn("ab", None, "b"), Turn("ab"), "agent 'b'.*env step 1"),
        (Turn("ab", None, "b"), Turn("a", {"a": 1, "b": 1}), "agent 'b'.*env step 1"),
        (Turn("ab", {"a": 1}), Turn("ab"), "agent 'b'.*reward at env step 0"),
    ],
)
def test_wrong_data_name_the_agent_and_the_step(second: Turn, third: Turn, told: str):
    # M7
    with (
        worker(lambda: ScriptedEnv("ab", second, third, endless=True), by_time) as made,
        pytest.raises(hr.SpecError, match=told),
    ):
        made.sample()


def test_a_reward_with_the_first_observation_belongs_to_no_row():
    # M7
    totals = []

    class Tell(Callbacks):
        def on_episode_end(self, *, worker, episode, env_index):
            totals.append(dict(episode.agent_rewards))

    env = ScriptedEnv("a", Turn("ab", {"a": 1, "b": 9}), Turn("ab", {"a": 1, "b": 2}))
    b = agent_rows(sampled(env, callbacks=Tell, rollout_fragment_length=2), 1)
    assert b["reward"] == [2.0]
    assert totals == [{"a": 2.0, "b": 11.0}]


# ---- postprocessing --------------------------------------------------------------------------------------------------


class Pieces:
    """Keeps the pieces that it was given, and changes them in place."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def compute_actions(self, input_dict):
        return by_time(input_dict["observation"])

    def postprocess_trajectory(self, batch, other_agents, episode):
        others = {agent: rows["reward"].tolist() for agent, rows in other_agents.items()}
        self.told.append((int(batch["observation"][0, 0]), batch["t"].tolist(), others))
        batch["reward"] += 100


def test_each_agent_is_postprocessed_with_the_rows_of_the_others():
    # M8, P4
    policy = Pieces()
    env = ScriptedEnv("ab", Turn("ab"), Turn("ab"), Turn("ab"), endless=True)
    rows = sampled(env, policy, rollout_fragment_length=2)
    assert policy.told == [(0, [0, 1], {"b": [1, 1]}), (1, [0, 1], {"a": [1, 1]})]
    assert rows["reward"].tolist() == [101.0] * 4


def test_an_agent_that_ended_early_is_postprocessed_with_its_episode():
    # M8
    policy = Pieces()
    env = ScriptedEnv("ab", Turn("ab", None, "b"), Turn("a"), Turn("a"))
    with worker(lambda: env, policy, rollout_fragment_length=3) as made:
        made.sample()
    assert [(agent, rows) for agent, rows, _ in policy.told] == [(0, [0, 1, 2]), (1, [0])]
    assert policy.told[0][2] == {"b": [1.0]}


# ---- views of others -------------------------------------------------------------------------------------------------


def test_actions_of_another_agent_are_aligned_by_environment_step():
    # M9: B acts at env steps 0 and 3
    views = {
        "theirs": hr.View("action", agent="b", mask=True),
        "all": hr.View("observation", shift="-1:0", agent=["b", "c"], mask=True),
    }
    rows = sampled(turns_between(), views=views, rollout_fragment_length=5)
    a = agent_rows(rows, 0)
    assert a["theirs_mask"] == [True, False, False, True, True]
    assert a["theirs"] == [10, 0, 0, 13, 14]
    assert rows["all"].shape == (len(rows), 2, 2, 3)
    assert np.array(a["all_mask"])[:, 0, 1].tolist() == [True, False, False, True, True]
    assert not np.array(a["all_mask"])[:, 1].any()


@pytest.mark.parametrize("fragment", [1, 2, 3, 6])
@pytest.mark.parametrize("postprocess", [False, True])
def test_what_an_agent_saw_of_others_is_what_the_batch_has(fragment: int, postprocess: bool):
    # M9, V14, R8
    seen: list[dict[str, Any]] = []

    class Policy(Pieces):
        views = {  # noqa: RUF012
            "last": hr.View("action", shift=-1, agent="b", mask=True),
            "stack": hr.View("observation", shift="-2:0", agent=["a", "b"], fill="edge", mask=True),
        }

        def compute_actions(self, input_dict):
            first = input_dict["observation"][:, 0] == 0
            seen.extend(
                {name: column[first] for name, column in input_dict.items()} for _ in [0] if first.any()
            )
            return super().compute_actions(input_dict)

    if not postprocess:
        Policy.postprocess_trajectory = None
    env = ScriptedEnv(
        "ab", Turn("a", {"a": 1, "b": 0}), Turn("ab"), Turn("a", {"a": 1, "b": 0}), Turn("a", {"a": 1, "b": 1}, "b"),
        Turn("a"), Turn("a"),
    )  # fmt: skip
    with worker(lambda: env, Policy(), rollout_fragment_length=fragment) as made:
        batches = [made.sample()[DEFAULT] for _ in range(12 // fragment)]
    rows = hr.SampleBatch.concat(batches)
    first = rows["observation"][:, 0] == 0
    for name in ("last", "last_mask", "stack", "stack_mask"):
        np.testing.assert_array_equal(np.concatenate([each[name] for each in seen])[:12], rows[name][first])
    assert rows["last_mask"][first].tolist() == [False, True, False, True, False, False] * 2
    assert rows["last"][first].tolist() == [0, 10, 0, 12, 0, 0] * 2


def test_rewards_of_others_that_are_still_open_are_not_data():
    # M9
    views = {"theirs": hr.View("reward", agent="b", mask=True)}
    with worker(turns_between, by_time, views=views, rollout_fragment_length=2) as made:
        a = agent_rows(made.sample()[DEFAULT], 0)
    assert a["theirs_mask"] == [False, False]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_view_of_an_agent_that_has_ended_may_be_added(length: int):
    # M9, R9: b ended before the view came, and c has its lane; nothing is known of b, and c is not shown in its place
    view = {"of b": hr.View("observation", shift="-1:0", agent="b", mask=True)}
    with worker(
        lambda: ScriptedEnv("ab", Turn("ab", None, "b"), *[Turn("ac")] * 9),
        by_time,
        rollout_fragment_length=length,
    ) as made:
        made.sample()
        made.views.update(view)
        rows = made.sample()[DEFAULT]
    assert rows.count == 2 * length
    assert not rows["of b_mask"].any()
    assert not rows["of b"].any()


def test_an_agent_that_there_is_not():
    views = {"theirs": hr.View("action", shift=-1, agent="nobody")}
    with pytest.raises(hr.SpecError, match="view 'theirs': agent: no agent 'nobody'; there are 'a', 'b'"):
        worker(turns_between, by_time, views=views)


def test_outputs_of_other_policies():
    # M9, V15
    class Valued(Pieces):
        def compute_actions(self, input_dict):
            return by_time(input_dict["observation"]), [], {"value": input_dict["observation"][:, 2] / 2}

        postprocess_trajectory = None

    views = {"theirs": hr.View("value", hr.ArraySpec((), "float64"), -1, agent="b")}
    reader = Pieces()
    reader.views = views  # type: ignore[attr-defined]
    reader.postprocess_trajectory = None  # type: ignore[assignment,method-assign]
    env = ScriptedEnv("ab", Turn("ab"), Turn("ab"), Turn("ab"), endless=True)
    with worker(
        lambda: env, {"reader": reader, "valued": Valued()}, rollout_fragment_length=4,
        policy_mapping_fn=lambda agent, _: "reader" if agent == "a" else "valued",
    ) as made:  # fmt: skip
        batch = made.sample()
    assert batch["reader"]["theirs"].tolist() == [0, 0, 0.5, 1.0]
    assert batch["valued"]["value"].tolist() == [0, 0.5, 1.0, 1.5]


# ---- horizons, errors, memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("soft", [False, True])
def test_a_horizon_cuts_all_agents(soft: bool):
    # H1
    env = ScriptedEnv("ab", Turn("ab"), endless=True)
    rows = sampled(env, horizon=3, soft_horizon=soft, rollout_fragment_length=5)
    a = agent_rows(rows, 0)
    assert a["t"] == [0, 1, 2, 0, 1]
    assert a["truncated"] == [False, False, not soft, False, False]
    assert [seen[1:] for seen in a["observation"]][3:] == ([[0, 3], [0, 4]] if soft else [[1, 0], [1, 1]])
    assert len(set(a["episode_id"])) == 2


@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_drops_the_episode_of_its_environment(broken: int):
    # R14
    class Failing(ScriptedEnv):
        failure: tuple[int, int] | None = (1, 1)

        def step(self, actions):
            if (self.episode, self.time) == self.failure:
                self.failure = None
                raise ArithmeticError("the arm broke")
            return super().step(actions)

    def create(context):
        kind = Failing if context.env_index == broken else ScriptedEnv
        return kind("ab", Turn("ab", None, "b"), Turn("a"), Turn("a"))

    with worker(create, by_time, num_envs=2) as made:
        with pytest.raises(ArithmeticError):
            made.sample()
        batch = made.sample()
        assert batch.env_steps() == 12
        later = made.sample()
    for index in range(2):
        episodes = [0, 2] if index == broken else [0, 1]
        rows = [
            row
            for row, env in zip(rows_of(batch[DEFAULT]), batch[DEFAULT]["env_id"], strict=True)
            if env == index
        ]
        assert rows == [
            row
            for episode in episodes
            for row in ((0, episode, 0), (0, episode, 1), (0, episode, 2), (1, episode, 0))
        ]
    assert later.env_steps() == 12


def test_memory_does_not_grow_with_agents_of_new_names():
    # R16
    class Namer(ScriptedEnv):
        possible_agents: Any

        def observation_space(self, agent):
            return spaces.Box(0, 10**6, (3,), np.int64)

        def _seen(self, names):
            return {(name, self.episode): row for name, row in super()._seen(names).items()}

        def step(self, actions):
            super().step({agent[0]: action for agent, action in actions.items()})
            seen = self._seen("ab")
            return seen, dict.fromkeys(seen, 1.0), dict.fromkeys(seen, not self.agents), {}, {}

    env = Namer("ab", Turn("ab"), Turn("ab"), Turn("ab"), possible=())
    views = {"stack": hr.View("observation", shift="-2:0")}
    with worker(lambda: env, by_time, views=views, rollout_fragment_length=5) as made:
        for _ in range(5):
            made.sample()
        lanes = made._loop._lanes._policies[DEFAULT]
        before = lanes.rows.arrays["observation"].nbytes
        for _ in range(100):
            made.sample()
        assert lanes.rows.arrays["observation"].nbytes == before
        assert len(made._loop._games[0].runs) <= 2


def test_a_pettingzoo_environment_whose_agents_join_and_leave():
    # M1, M3, M6
    generated = pytest.importorskip("pettingzoo.test.example_envs.generated_agents_parallel_v0")

    def policy(seen):
        return np.zeros(len(seen), np.int64)

    with worker(
        generated.parallel_env,
        {f"type{number}": policy for number in range(30)},
        batch_mode="complete_episodes",
        horizon=60,
        policy_mapping_fn=lambda agent, _: agent.partition("_")[0],
        seed=3,
    ) as made:
        batch = made.sample()
    assert batch.env_steps() == 60
    joined = 0
    for rows in batch.policy_batches.values():
        for agent in rows.split_by_episode():
            assert agent["t"].tolist() == list(range(len(agent)))
            assert agent["env_t"].tolist() == list(range(agent["env_t"][0], agent["env_t"][0] + len(agent)))
            assert (agent["terminated"] | agent["truncated"]).tolist() == [False] * (len(agent) - 1) + [True]
            joined += agent["env_t"][0] > 0
    assert joined > 5


def test_an_environment_needs_no_close():
    # M1
    class Open:
        def __init__(self):
            inner = ScriptedEnv("a", Turn("a"), Turn("a"))
            self.reset, self.step, self.possible_agents = inner.reset, inner.step, inner.possible_agents
            self.observation_space, self.action_space = inner.observation_space, inner.action_space

    assert not hasattr(Open(), "close")
    with worker(Open, by_time, rollout_fragment_length=2) as made:
        assert made.sample().env_steps() == 2
