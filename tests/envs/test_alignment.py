"""Every stepper against the closed form of the counter environments, in each mode, with episodes of unequal length."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.envs import Autoreset, make_stepper, new_columns
from headrace.envs.adapters.gymnasium_single import SingleEnvStepper
from headrace.spec import ArraySpec
from headrace.testing.envs import (
    CounterEnv,
    counter_env_fns,
    counter_observation,
    counter_transitions,
    counter_vector_env,
    in_turn,
)

KINDS = ("copies", "disabled", "same_step", "next_step")


def make(kind: str, lengths: Sequence[int], **kwargs: Any):
    if kind == "copies":
        return make_stepper(in_turn(counter_env_fns(lengths, **kwargs)), num_envs=len(lengths))
    return make_stepper(counter_vector_env(lengths, kind, **kwargs))


def transitions(stepper, num_steps: int, actions) -> list[list[dict[str, Any]]]:
    """The documented loop. Per copy its transitions: trees observation and next_observation, reward, flags, action."""
    n = stepper.num_envs
    signature = stepper.observation_signature
    row = new_columns(signature, n)
    stepper.reset(row)
    collected: list[list[dict[str, Any]]] = [[] for _ in range(n)]

    def tree(columns, i):
        return signature.unflatten({name: c[i].copy() for name, c in columns.items()})["observation"]

    for t in range(num_steps):
        next_row = new_columns(signature, n)
        step = stepper.step({"action": actions[t]}, next_row)
        for i in range(n):
            if i in step.reset_steps:
                assert (step.reward[i], step.terminated[i], step.truncated[i]) == (0, False, False)
                continue
            after = step.last_observation if i in step.ended else next_row
            collected[i].append(
                {
                    "observation": tree(row, i),
                    "next_observation": tree(after, i),
                    "action": actions[t][i],
                    "reward": step.reward[i],
                    "terminated": step.terminated[i],
                    "truncated": step.truncated[i],
                }
            )
        if step.ended.size and stepper.autoreset is Autoreset.DISABLED:
            stepper.reset(next_row, envs=step.ended)
        row = next_row
    return collected


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert sorted(got) == sorted(expected)
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(got, expected)


def check(collected, lengths, ending: str = "terminated", layout: Any = "box") -> None:
    for copy, rows in enumerate(collected):
        closed = counter_transitions(lengths[copy], len(rows))
        for g, row in enumerate(rows):
            episode, step, last = (int(closed[name][g]) for name in ("episode", "step", "last"))
            assert_same(row["observation"], counter_observation(copy, episode, step, layout))
            assert_same(row["next_observation"], counter_observation(copy, episode, step + 1, layout))
            assert row["reward"] == 4 * step + row["action"]
            assert row["terminated"] == (last and ending != "truncated")
            assert row["truncated"] == (last and ending != "terminated")


def random_actions(num_steps: int, n: int):
    return np.random.default_rng(0).integers(0, 4, (num_steps, n))


@pytest.mark.parametrize("layout", ["box", "dict", "tuple", "image"])
@pytest.mark.parametrize("ending", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_closed_form(kind, ending, layout):
    """CE3, CE4: every transition is there, with its true last observation; flags are never merged (CB3)."""
    lengths = [1, 3, 4, 7]
    stepper = make(kind, lengths, ending=ending, layout=layout)
    collected = transitions(stepper, 25, random_actions(25, 4))
    check(collected, lengths, ending, layout)
    stepper.close()


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_closed_form_of_any_lengths(kind, lengths):
    """CE3, CE4, with episodes whose lengths change from one to the next."""
    stepper = make(kind, lengths)
    check(transitions(stepper, 15, random_actions(15, len(lengths))), lengths)
    stepper.close()


@pytest.mark.parametrize("kind", ["copies", "disabled", "same_step"])
def test_no_row_is_lost(kind):
    """CE3: a copy that ends is reset in the same step, so each step is a transition of each copy."""
    stepper = make(kind, [1, 2, 5])
    assert [len(rows) for rows in transitions(stepper, 10, random_actions(10, 3))] == [10, 10, 10]
    stepper.close()


def test_next_step_spends_one_step_on_each_reset():
    """CE4, section 15: period E + 1, of which the last is no transition."""
    stepper = make("next_step", [1, 2, 5])
    assert [len(rows) for rows in transitions(stepper, 12, random_actions(12, 3))] == [6, 8, 10]
    stepper.close()


def test_next_step_names_its_reset_steps():
    """CE4: the row on which a copy is reset is its final row: the last observation, nothing else."""
    stepper = make("next_step", [2, 3])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    actions = {"action": np.array([1, 1])}
    seen = []
    for _ in range(5):
        before = row["observation"].copy()
        step = stepper.step(actions, row)
        seen.append((step.ended.tolist(), step.reset_steps.tolist(), before[:, 2].tolist()))
    assert seen == [
        ([], [], [0, 0]),
        ([0], [], [1, 1]),
        ([1], [0], [2, 2]),
        ([], [1], [0, 3]),
        ([0], [], [1, 0]),
    ]
    # The environment never saw the actions of the reset steps.
    assert [len(env.actions) for env in stepper.environments[0].envs] == [4, 4]
    stepper.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_environments_in_processes(mode):
    """CE4: gymnasium's AsyncVectorEnv gives its infos in the same layout."""
    lengths = [2, 3]
    stepper = make_stepper(AsyncVectorEnv(counter_env_fns(lengths), autoreset_mode=mode, context="spawn"))
    check(transitions(stepper, 8, random_actions(8, 2)), lengths)
    stepper.close()


@pytest.mark.parametrize("kind", ["copies", "disabled", "same_step", "next_step"])
def test_a_limit_is_a_reset_of_some_copies(kind):
    """CR5: what a collector does at the limit: keep the output, reset these copies."""
    stepper = make(kind, [10, 10])
    assert stepper.resets_by_mask
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    stepper.step({"action": np.zeros(2, np.int64)}, row)
    np.testing.assert_array_equal(row["observation"], [[0, 0, 1], [1, 0, 1]])
    stepper.reset(row, envs=np.array([1]))
    np.testing.assert_array_equal(row["observation"], [[0, 0, 1], [1, 1, 0]])
    stepper.step({"action": np.zeros(2, np.int64)}, row)
    np.testing.assert_array_equal(row["observation"], [[0, 0, 2], [1, 1, 1]])
    stepper.close()


def test_a_limit_at_the_end_of_a_next_step_episode():
    """CR5: a copy reset by mask in the step in which it ended has no reset step any more."""
    stepper = make("next_step", [2, 2])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    for _ in range(2):
        stepper.step({"action": np.zeros(2, np.int64)}, row)
    stepper.reset(row, envs=np.array([0]))
    step = stepper.step({"action": np.zeros(2, np.int64)}, row)
    assert step.reset_steps.tolist() == [1]
    np.testing.assert_array_equal(row["observation"], [[0, 1, 1], [1, 1, 0]])
    stepper.close()


@pytest.mark.parametrize("kind", ["copies", "disabled"])
def test_copies_that_wait(kind):
    """CR7: a copy that ended takes no part until it is reset; its rows are left alone."""
    stepper = make(kind, [1, 5])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    actions = {"action": np.zeros(2, np.int64)}
    assert stepper.step(actions, row).ended.tolist() == [0]
    row["observation"][0] = -1
    for k in (2, 3, 4):
        step = stepper.step(actions, row, active=np.array([1]))
        np.testing.assert_array_equal(row["observation"], [[-1, -1, -1], [1, 0, k]])
        assert step.ended.size == 0
        assert step.reward.tolist() == [0, 4 * (k - 1)]
        assert not step.terminated.any()
    stepper.reset(row, envs=np.array([0]))
    assert row["observation"][0].tolist()[2] == 0
    assert stepper.step(actions, row).ended.tolist() == [0, 1]
    stepper.close()


def test_waiting_single_environments_are_not_stepped():
    """CR7: nothing runs for a copy that waits."""
    stepper = make("copies", [1, 5])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    stepper.step({"action": np.zeros(2, np.int64)}, row)
    stepper.step({"action": np.zeros(2, np.int64)}, row, active=np.array([1]))
    assert [len(env.actions) for env in stepper.environments] == [1, 2]
    stepper.close()


@pytest.mark.parametrize("kind", ["same_step", "next_step"])
def test_environments_that_reset_themselves_cannot_wait(kind):
    """CR7: with an environment that resets itself: ValueError."""
    stepper = make(kind, [1, 5])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    with pytest.raises(ValueError, match="resets itself"):
        stepper.step({"action": np.zeros(2, np.int64)}, row, active=np.array([1]))
    stepper.close()


def test_disabled_without_reset_is_an_error():
    """CE4: the next step of a DISABLED copy that ended needs a reset first."""
    stepper = make("disabled", [1, 2])
    row = new_columns(stepper.observation_signature, 2)
    stepper.reset(row)
    stepper.step({"action": np.zeros(2, np.int64)}, row)
    with pytest.raises(RuntimeError, match=r"environments \[0\] ended"):
        stepper.step({"action": np.zeros(2, np.int64)}, row)
    stepper.close()


@pytest.mark.parametrize("kind", KINDS)
def test_observations_go_into_the_callers_rows(kind):
    """CB4: one copy: the output arrays are the caller's, the rows of a [T, N] column for example."""
    stepper = make(kind, [4, 4])
    column = np.zeros((4, 2, 3), np.int64)
    stepper.reset({"observation": column[0]})
    for t in range(3):
        stepper.step({"action": np.zeros(2, np.int64)}, {"observation": column[t + 1]})
    np.testing.assert_array_equal(column[:, 1], [[1, 0, t] for t in range(4)])
    stepper.close()


@pytest.mark.parametrize("kind", KINDS)
def test_seeds(kind):
    """CS1, CS2: each copy is reset with its seed, later resets pass none; static seeds reach all copies."""
    stepper = make(kind, [1, 2, 3])
    row = new_columns(stepper.observation_signature, 3)
    stepper.reset(row, seeds=[5, 6, 7])
    stepper.reset(row, envs=np.array([1]))
    stepper.reset(row, seeds=[9, 9, 9])
    envs = stepper.environments if kind == "copies" else stepper.environments[0].envs
    assert [env.seeds for env in envs] == [[5, 9], [6, None, 9], [7, 9]]
    stepper.close()


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_and_closing(kind):
    """CQ4: attributes come from the first copy; closing twice closes once."""
    stepper = make(kind, [1, 2])
    assert stepper.get_attr("seeds") == []
    with pytest.raises(AttributeError):
        stepper.get_attr("nothing_of_that_name")
    envs = stepper.environments if kind == "copies" else stepper.environments[0].envs
    stepper.close()
    stepper.close()
    assert [env.closed for env in envs] == [1, 1]


def test_the_counter_refuses_steps_after_the_end():
    """The counter would show a stepper that forgets a reset."""
    env = CounterEnv(1)
    env.reset()
    env.step(0)
    with pytest.raises(RuntimeError, match="after the end"):
        env.step(0)


@pytest.mark.parametrize("layout", ["box", "dict"])
@pytest.mark.parametrize("active", [None, [1]])
def test_single_environments_write_into_the_rows_that_they_are_given(layout, active):
    # CE3: a rollout's rows, of which no other is touched
    counters = [CounterEnv(9, copy=i + 1, layout=layout) for i in range(2)]
    stepper = SingleEnvStepper(counters, {"count": ArraySpec((), np.int64)})
    specs = stepper.observation_signature.columns
    columns = {name: np.full((5, *spec.shape), -1, spec.dtype) for name, spec in specs.items()}
    stepper.reset(columns, rows=[3, 0])
    stepper.step({"action": np.zeros(2, np.int64)}, columns, active and np.array(active), rows=[4, 1])
    written = {3: (1, 0), 0: (2, 0), 1: (2, 1)} | ({4: (1, 1)} if active is None else {})
    for row in range(5):
        copy, step = written.get(row, (-1, -1))
        seen = columns["observation"][row] if layout == "box" else columns["observation/copy"][row]
        assert (seen[0], columns["count"][row]) == (copy, step)
    stepper.close()
