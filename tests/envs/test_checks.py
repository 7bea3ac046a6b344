"""What does not fit the spaces is refused on the first step, with the environment and the path (collectors CE5)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorWrapper

import headrace.envs
from headrace.envs import adapt, make_stepper, new_columns
from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.testing.envs import CounterEnv, counter_env_fns, counter_vector_env, in_turn


class Faulty(gymnasium.Env[Any, Any]):
    """Gives what it is told to give."""

    def __init__(self, observation=None, reward=0.0, terminated=False, info=None, fail_at=None):
        self.observation_space = spaces.Dict(
            arm=spaces.Box(-1, 1, (2,)), eye=spaces.Box(0, 255, (2, 2), np.uint8)
        )
        self.action_space = spaces.Discrete(2)
        self.good = {"arm": np.zeros(2, np.float32), "eye": np.zeros((2, 2), np.uint8)}
        self.observation = self.good | (observation or {})
        self.outcome = reward, terminated
        self.info = {} if info is None else info
        self.fail_at, self.steps = fail_at, 0

    def reset(self, *, seed=None, options=None):
        return self.good, {"legal": np.ones(2, np.int8)}

    def step(self, action):
        self.steps += 1
        if self.steps == self.fail_at:
            raise KeyError("broken")
        return self.observation, *self.outcome, False, self.info


def faulty_second(faulty, **kwargs):
    return make_stepper(in_turn([Faulty, faulty]), num_envs=2, **kwargs)


def first_step(stepper):
    rows = new_columns(stepper.observation_signature, stepper.num_envs)
    stepper.reset(rows)
    actions = np.zeros(stepper.num_envs, np.int64)
    return stepper.step({"action": actions}, rows)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"observation": {"arm": np.zeros(3, np.float32)}},
            r"environment 1: observation/arm: .*\[2\].*\[3\]",
        ),
        ({"observation": {"eye": np.zeros((2, 2))}}, r"environment 1: observation/eye: .*uint8.*float64"),
        ({"observation": {"nose": 1}}, r"environment 1: observation: .*extra observation/nose"),
        ({"reward": "much"}, r"environment 1: reward: "),
        ({"reward": np.zeros(1)}, r"environment 1: reward: .*float32\[\].*\[1\]"),
        ({"terminated": 1.0}, r"environment 1: terminated: .*bool"),
        ({"info": []}, r"environment 1: info: expected a dict"),
    ],
)
def test_single_environments(fault, message):
    """CE5: shape and dtype on the first step, with the environment's index and the path."""
    stepper = faulty_second(lambda: Faulty(**fault))
    with pytest.raises(SpecError, match=message):
        first_step(stepper)


def test_the_first_reset_is_checked():
    """CE5: also what reset gives."""

    class Wrong(Faulty):
        def reset(self, *, seed=None, options=None):
            return {"arm": np.zeros(2), "eye": np.zeros(2, np.uint8)}, {}

    stepper = faulty_second(Wrong)
    with pytest.raises(SpecError, match=r"environment 1: observation/eye"):
        stepper.reset(new_columns(stepper.observation_signature, 2))


def test_float64_observations_are_cast():
    """CE5, accumulator A20: float64 goes into a float32 space, as everywhere."""
    stepper = faulty_second(lambda: Faulty({"arm": np.array([0.5, 0.25])}))
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    stepper.step({"action": np.zeros(2, np.int64)}, rows)
    assert rows["observation/arm"][1].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (4, r"step: expected the five values .* got 4 values .*the interface of gym before 0.26: "),
        (3, r"step: expected the five values .* got 3 values \(dict, float, bool\)(?!;)"),
        (None, r"step: expected the five values .* got NoneType; is a `return` missing\?"),
    ],
)
@pytest.mark.parametrize("is_vector", [False, True])
def test_what_step_returns(is_vector, returned, message):
    """CE5: an environment of the old gym, and other slips."""

    class Slipping(Faulty):
        def step(self, action):
            values = self.good, 0.0, False, {}
            return None if returned is None else values[:returned]

    class SlippingVector(VectorWrapper):
        def step(self, actions):
            observation, reward, terminated, _, info = self.env.step(actions)
            values = dict(enumerate(observation)), float(reward[0]), bool(terminated[0]), info
            return None if returned is None else values[:returned]

    stepper = make_stepper(
        SlippingVector(counter_vector_env([2, 3], "same_step")) if is_vector else Slipping()
    )
    with pytest.raises(SpecError, match=("^" if is_vector else "environment 0: ") + message):
        first_step(stepper)
    stepper.close()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            np.zeros(2),
            r"reset: expected the pair \(observation, info\), got ndarray; this is the interface of gym",
        ),
        (None, r"reset: expected the pair \(observation, info\), got NoneType; is a `return` missing\?"),
    ],
)
@pytest.mark.parametrize("is_vector", [False, True])
def test_what_reset_returns(is_vector, returned, message):
    """CE5: the old gym's `reset` gave the observation alone; one of two numbers is not a pair either."""

    class Slipping(Faulty):
        def reset(self, *, seed=None, options=None):
            return returned

    class SlippingVector(VectorWrapper):
        def reset(self, *, seed=None, options=None):
            return returned

    stepper = make_stepper(
        SlippingVector(counter_vector_env([2, 3], "same_step")) if is_vector else Slipping()
    )
    with pytest.raises(SpecError, match=message):
        first_step(stepper)
    stepper.close()


def test_an_exception_names_copy_step_and_action():
    """Section 17, CX1: every error about an environment names copy, step and the last action."""
    stepper = faulty_second(lambda: Faulty(fail_at=3))
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    for _ in range(2):
        stepper.step({"action": np.array([0, 1])}, rows)
    with pytest.raises(KeyError, match="broken") as caught:
        stepper.step({"action": np.array([0, 1])}, rows)
    (note,) = caught.value.__notes__
    assert note.startswith("raised by environment 1 at step 2 of its episode, action ")
    assert "1" in note.rpartition("action")[2]


class Corrupted(VectorWrapper):
    """Changes what a vector environment returns."""

    def __init__(self, env, change):
        super().__init__(env)
        self.change = change

    def step(self, actions):
        returned = list(self.env.step(actions))
        self.change(returned)
        return tuple(returned)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros((2, 4), np.int64), "environments 0 to 1: observation: "),
        (0, np.zeros((2, 3)), "environments 0 to 1: observation: .*int64"),
        (1, np.zeros(3), "environments 0 to 1: reward: "),
        (2, np.zeros(2), "environments 0 to 1: terminated: "),
    ],
)
def test_vector_environments(place, value, message):
    """CE5, for a whole batch."""

    def change(returned):
        returned[place] = value

    stepper = make_stepper(Corrupted(counter_vector_env([2, 3], "same_step"), change))
    with pytest.raises(SpecError, match=message):
        first_step(stepper)
    stepper.close()


def drop_final(returned):
    returned[4].pop("final_obs", None)


def drop_one_final(returned):
    if "final_obs" in returned[4]:
        returned[4]["final_obs"][1] = None


def unmark_final(returned):
    if "_final_obs" in returned[4]:
        returned[4]["_final_obs"][:] = False


@pytest.mark.parametrize("change", [drop_final, drop_one_final, unmark_final])
def test_same_step_without_final_observation(change):
    """CE4: an error at the first episode end, never a wrong observation."""
    stepper = make_stepper(Corrupted(counter_vector_env([3, 2], "same_step"), change))
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    stepper.step({"action": np.zeros(2, np.int64)}, rows)
    with pytest.raises(SpecError, match=r"environments \[1\]: final_obs: .*hr.envs.adapt"):
        stepper.step({"action": np.zeros(2, np.int64)}, rows)
    stepper.close()


@pytest.mark.parametrize("layout", ["box", "dict", "tuple"])
def test_final_observations_as_one_batch(layout):
    """CE4: final_obs may also be one tree of arrays [n, ...]."""

    def batch(returned):
        info = returned[4]
        if "final_obs" in info:
            whole = make.observation_signature.zeros(2)["observation"]
            one = info["final_obs"][1]
            if layout == "box":
                whole[1] = one
            else:
                for key in ("count", "copy") if layout == "dict" else (0, 1):
                    whole[key][1] = one[key]
            info["final_obs"] = whole

    make = make_stepper(Corrupted(counter_vector_env([3, 2], "same_step", layout=layout), batch))
    first_step(make)
    rows = new_columns(make.observation_signature, 2)
    step = make.step({"action": np.zeros(2, np.int64)}, rows)
    name = {"box": "observation", "dict": "observation/count", "tuple": "observation/0"}[layout]
    assert step.ended.tolist() == [1]
    assert step.last_observation[name][1].tolist()[-2:] == [0, 2]
    assert rows[name][1].tolist()[-2:] == [1, 0]
    make.close()


def test_final_observation_of_a_wrong_shape():
    """CE4, CE5."""

    def change(returned):
        if "final_obs" in returned[4]:
            returned[4]["final_obs"][0] = np.zeros(2, np.int64)

    stepper = make_stepper(Corrupted(counter_vector_env([1, 2], "same_step"), change))
    with pytest.raises(SpecError, match="environment 0: final_obs: observation: "):
        first_step(stepper)
    stepper.close()


def test_a_mode_that_is_not_declared():
    """CE4: not declared: ValueError which asks for hr.envs.adapt(env, autoreset=...)."""
    env = counter_vector_env([2, 2], "next_step")
    del env.metadata["autoreset_mode"]
    with pytest.raises(ValueError, match=r"hr\.envs\.adapt\(env, autoreset="):
        make_stepper(env)
    with pytest.raises(ValueError, match=r"hr\.envs\.adapt\(env, autoreset="):
        adapt(env)
    stepper = make_stepper(adapt(env, autoreset="next_step"))
    assert stepper.autoreset == "next_step"
    stepper.close()


def test_a_declared_mode_that_is_none():
    """CE4: the declaration is what is wrong, not an argument."""
    env = counter_vector_env([2, 2], "next_step")
    env.metadata["autoreset_mode"] = "always"
    for make in (make_stepper, adapt):
        with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\]: expected .* got 'always'"):
            make(env)
    env.close()


def test_a_mode_that_contradicts_the_declared_one():
    """CE4: what an environment does is asked, never guessed."""
    env = counter_vector_env([2, 2], "next_step")
    with pytest.raises(ValueError, match="'next_step'.*declares.*'same_step'"):
        adapt(env, autoreset="same_step")
    with pytest.raises(ValueError, match=r"autoreset: expected.*envs\.metadata\[\"autoreset_mode\"\]"):
        adapt(env, autoreset="sometimes")
    with pytest.raises(ValueError, match="single environment"):
        adapt(CounterEnv(1), autoreset="next_step")
    with pytest.raises(TypeError, match="expected a gymnasium"):
        adapt(object())
    env.close()


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_modes_by_gymnasiums_names(mode):
    """Trajectories V1: the enum member, its value and our names mean the same."""
    parse = headrace.envs.Autoreset.parse
    assert parse(mode) is parse(mode.value) is parse(mode.name.lower())


def test_an_environment_that_is_not_known_to_reset_by_mask():
    """CR5: a vector environment that resets itself and cannot reset by mask says so."""

    class OwnVectorEnv(gymnasium.vector.VectorEnv):
        num_envs = 2
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012
        single_observation_space = spaces.Box(-1, 1, (1,))
        single_action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            assert seed == 3
            return np.zeros((2, 1), np.float32), {}

    stepper = make_stepper(OwnVectorEnv())
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows, seeds=[3, 4])
    assert not stepper.resets_by_mask
    with pytest.raises(ValueError, match="reset by mask"):
        stepper.reset(rows, envs=np.array([0]))


INFO = {"count": ArraySpec((), np.int64)}


@pytest.mark.parametrize("kind", ["copies", "disabled", "same_step", "next_step"])
def test_info_columns(kind):
    """CE5: named infos are columns, each beside the observation it came with."""
    if kind == "copies":
        stepper = make_stepper(in_turn(counter_env_fns([2, 3])), num_envs=2, info_columns=INFO)
    else:
        stepper = make_stepper(counter_vector_env([2, 3], kind), info_columns=INFO)
    assert list(stepper.observation_signature.columns) == ["count", "observation"]
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    for _ in range(9):
        np.testing.assert_array_equal(rows["count"], rows["observation"][:, 2])
        step = stepper.step({"action": np.zeros(2, np.int64)}, rows)
        last = step.last_observation
        assert last["count"][step.ended].tolist() == [(2, 3)[i] for i in step.ended]
        assert last["observation"][step.ended, 2].tolist() == [(2, 3)[i] for i in step.ended]
        if stepper.autoreset == "disabled" and step.ended.size:
            stepper.reset(rows, envs=step.ended)
    stepper.close()


def test_a_missing_info_entry():
    """CE5: a missing entry is an error that names environment, step and name."""
    legal = {"legal": ArraySpec(2, np.int8)}
    with pytest.raises(
        SpecError, match=r"environment 0: legal: expected int8\[2\] in info at step 0.*empty info"
    ):
        first_step(make_stepper(Faulty, num_envs=2, info_columns=legal))
    stepper = make_stepper(SyncVectorEnv([Faulty, Faulty]), info_columns=legal)
    with pytest.raises(
        SpecError, match=r"environments \[0, 1\]: legal: expected int8\[2\] in info at step 0"
    ):
        first_step(stepper)
    stepper = make_stepper(lambda: CounterEnv(3), info_columns=legal)
    with pytest.raises(SpecError, match=r"environment 0: legal: expected int8\[2\] in info at reset"):
        first_step(stepper)
    stepper = make_stepper(counter_vector_env([3], "next_step"), info_columns=legal)
    with pytest.raises(SpecError, match=r"environments \[0\]: legal: expected int8\[2\] in info at reset"):
        first_step(stepper)


def test_info_columns_that_cannot_be():
    """CE5, CB3: names of the batch's own columns are taken."""
    with pytest.raises(SpecError, match="action"):
        make_stepper("CartPole-v1", info_columns={"action": ArraySpec((), bool)})
    with pytest.raises(SpecError, match="ArraySpec"):
        make_stepper("CartPole-v1", info_columns={"mine": np.int64})


class Later(Faulty):
    """Gives what it is told to give from its third step on, or at its second reset."""

    def __init__(self, observation=None, reward=0.0, terminated=False, at_reset=None, info=None):
        super().__init__()
        self.later, self.later_outcome = self.good | (observation or {}), (reward, terminated)
        self.second_reset, self.resets = self.good | (at_reset or {}), 0
        self.legal = np.ones(2, np.int8) if info is None else info

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return self.good if self.resets == 1 else self.second_reset, {"legal": np.ones(2, np.int8)}

    def step(self, action):
        self.steps += 1
        if self.steps < 3:
            return self.good, 0.0, False, False, {"legal": np.ones(2, np.int8)}
        return self.later, *self.later_outcome, False, {"legal": self.legal}


def third_step(stepper):
    rows = new_columns(stepper.observation_signature, stepper.num_envs)
    stepper.reset(rows)
    for _ in range(3):
        step = stepper.step({"action": np.zeros(stepper.num_envs, np.int64)}, rows)
    return rows, step


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"observation": {"arm": np.float32(7)}}, r"environment 1: observation/arm: .*\[2\].*float32\[\]"),
        ({"observation": {"arm": 7.0}}, r"environment 1: observation/arm: .*\[2\]"),
        ({"observation": {"arm": [7.0]}}, r"environment 1: observation/arm: .*\[2\].*\[1\]"),
        (
            {"observation": {"eye": np.zeros((1, 2), np.uint8)}},
            r"environment 1: observation/eye: .*\[2, 2\].*\[1, 2\]",
        ),
        ({"info": np.int8(1)}, r"environment 1: legal: .*\[2\]"),
    ],
)
def test_nothing_is_broadcast_later(fault, message):
    """CE5: an environment that changes its mind after the first step is refused, with its index and the step."""
    create = in_turn([Later, lambda: Later(**fault)])
    stepper = make_stepper(create, num_envs=2, info_columns={"legal": ArraySpec(2, np.int8)})
    with pytest.raises(SpecError, match=message) as raised:
        third_step(stepper)
    assert "environment 1 at step 2 of its episode" in raised.value.__notes__[0]


@pytest.mark.parametrize("fault", [{"reward": np.ones(2)}, {"terminated": np.ones(2, np.bool_)}])
def test_several_outcomes_of_one_environment(fault):
    stepper = make_stepper(in_turn([Later, lambda: Later(**fault)]), num_envs=2)
    with pytest.raises((TypeError, ValueError)) as raised:
        third_step(stepper)
    assert "environment 1 at step 2 of its episode" in raised.value.__notes__[0]


def test_nothing_is_broadcast_at_a_later_reset():
    stepper = faulty_second(lambda: Later(at_reset={"arm": np.float32(7)}))
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    with pytest.raises(SpecError, match=r"environment 1: observation/arm"):
        stepper.reset(rows, envs=np.array([1]))


@pytest.mark.parametrize(
    ("value", "fits"),
    [(3, True), (np.int64(3), True), (np.array(3), True), (np.array([3, 3]), False), ([3], False)],
)
def test_an_observation_that_is_a_number(value, fits):
    """Several numbers, or a list, do not stand for one."""

    class Scalar(Later):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Discrete(9)
            self.good, self.later, self.second_reset = 1, value, 1

    stepper = make_stepper(Scalar)
    if fits:
        assert third_step(stepper)[0]["observation"].tolist() == [3]
    else:
        with pytest.raises((SpecError, TypeError), match=r"environment 0: observation|not 'list'"):
            third_step(stepper)


def test_lists_are_observations_later_too():
    stepper = faulty_second(lambda: Later({"arm": [0.5, 0.25]}))
    assert third_step(stepper)[0]["observation/arm"][1].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros(3, np.int64), r"observation: expected shape \(2, 3\), got \(3,\)"),
        (0, np.zeros((1, 3), np.int64), r"observation: .*\(2, 3\).*\(1, 3\)"),
        (0, np.int64(7), r"observation: .*\(2, 3\).*\(\)"),
        (1, 1.0, r"reward: .*\[2\]"),
        (1, np.ones(1), r"reward: .*\[2\].*\[1\]"),
        (2, False, r"terminated: .*\[2\]"),
        (3, np.zeros((1, 2), np.bool_), r"truncated: .*\[2\].*\[1, 2\]"),
    ],
)
@pytest.mark.parametrize("mode", ["disabled", "same_step", "next_step"])
def test_nothing_is_broadcast_over_a_vector(mode, place, value, message):
    """CE5: one number is not the number of every environment."""

    class LaterVector(VectorWrapper):
        steps = 0

        def step(self, actions):
            returned = list(self.env.step(actions))
            self.steps += 1
            if self.steps == 3:
                returned[place] = value
            return tuple(returned)

    stepper = make_stepper(LaterVector(counter_vector_env([50, 50], mode)))
    with pytest.raises(SpecError, match=rf"environments 0 to 1: {message}"):
        third_step(stepper)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("_final_obs", np.array(True)),
        ("_final_obs", np.ones(1, np.bool_)),
        ("final_obs", np.zeros((1, 3), np.int64)),
        ("final_obs", np.array([None], object)),
    ],
)
def test_last_observations_are_not_broadcast(entry, value):
    class Changing(VectorWrapper):
        def step(self, actions):
            *returned, info = self.env.step(actions)
            if "final_obs" in info:
                info[entry] = value
            return *returned, info

    stepper = make_stepper(Changing(counter_vector_env([2, 3], "same_step")))
    with pytest.raises(SpecError, match=entry):
        third_step(stepper)
