"""Policies of every form behind one call, and the checks of their results."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

import headrace as hr
from headrace.policies import (
    CheckedPolicy,
    PolicyStates,
    actions_alone,
    actions_or_pair,
    check_policy,
    form_of,
    initial_state_of,
)

DISCRETE = hr.Signature.like({"action": 0})
TUPLE = hr.Signature({"action": hr.Signature.of_space(spaces.Tuple([spaces.Discrete(3)] * 2)).tree})
PAIR = (np.array([1, 2]), np.array([0, 1]))
INPUTS = {"observation": np.zeros((2, 4), np.float32)}


class Computes:
    """A policy that returns what it is made with."""

    def __init__(self, returned, initial_state=None):
        self.returned = returned
        self.initial_state = initial_state
        self.inputs = []

    def compute_actions(self, input_dict):
        self.inputs.append(input_dict)
        return self.returned


def checked(policy, acted=DISCRETE, read=actions_or_pair, **options):
    return CheckedPolicy(form_of(policy, acted, read), acted, initial_state_of(policy), **options)


# ---- plain callables -----------------------------------------------------------------------------------------------


def test_a_callable_returns_actions():
    # P1.
    actions, state_outs, extras = checked(lambda seen: [1, 2])(INPUTS, 2)
    np.testing.assert_array_equal(actions["action"], [1, 2])
    assert (state_outs, extras) == ([], {})


def test_a_callable_may_return_a_pair_where_that_is_read():
    # P1: a collector takes the pair, a rollout worker takes actions alone.
    policy = lambda seen: ([1, 2], {"value": [0.5, 1.5]})  # noqa: E731 - one line
    decision = checked(policy)(INPUTS, 2)
    np.testing.assert_array_equal(decision.extras["value"], [0.5, 1.5])
    with pytest.raises(hr.SpecError, match="policy: action"):
        checked(policy, read=actions_alone)(INPUTS, 2)
    with pytest.raises(
        hr.SpecError, match=r"or the pair \(actions, dict of columns\), got a tuple of 2 \(list, int\)"
    ):
        checked(lambda seen: ([1, 2], 3))(INPUTS, 2)


@pytest.mark.parametrize("read", [actions_or_pair, actions_alone])
def test_tuple_actions_of_a_callable_are_always_the_actions(read):
    # P1, CP3.
    decision = checked(lambda seen: PAIR, TUPLE, read)(INPUTS, 2)
    np.testing.assert_array_equal(decision.actions["action/0"], [1, 2])
    np.testing.assert_array_equal(decision.actions["action/1"], [0, 1])


def test_a_torch_module_is_given_tensors():
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def forward(self, seen):
            assert isinstance(seen, torch.Tensor)
            assert not torch.is_grad_enabled()
            return seen.sum(1).long(), {"value": seen[:, 0]}

    decision = checked(Module())({"observation": np.ones((2, 4), np.float32)}, 2)
    np.testing.assert_array_equal(decision.actions["action"], [4, 4])
    assert type(decision.extras["value"]) is np.ndarray


@pytest.mark.parametrize("value", [3, None, object()])
def test_not_a_policy(value):
    with pytest.raises(TypeError, match="policy: expected a callable .* compute_actions"):
        check_policy(value)
    with pytest.raises(TypeError, match="policy: expected a callable"):
        form_of(value, DISCRETE, actions_or_pair)


# ---- compute_actions -----------------------------------------------------------------------------------------------


def test_compute_actions_is_given_the_inputs_by_name():
    # P2.
    policy = Computes([1, 2])
    inputs = INPUTS | {"prev_action": np.zeros(2, int)}
    decision = checked(policy)(inputs, 2)
    np.testing.assert_array_equal(decision.actions["action"], [1, 2])
    assert policy.inputs[0].keys() == {"observation", "prev_action"}


def test_compute_actions_may_return_the_triple():
    # P1; states have the dtype of the initial state.
    policy = Computes(([1, 2], [np.array([[0.5], [1.5]])], {"value": [3.0, 4.0]}), [np.zeros(1, np.float32)])
    decision = checked(policy)(INPUTS | {"state_in_0": np.zeros((2, 1), np.float32)}, 2)
    assert decision.state_outs[0].dtype == np.float32
    np.testing.assert_array_equal(decision.state_outs[0], [[0.5], [1.5]])
    np.testing.assert_array_equal(decision.extras["value"], [3.0, 4.0])


def test_a_pair_of_compute_actions_is_not_the_triple():
    with pytest.raises(hr.SpecError, match="policy: action"):
        checked(Computes(([1, 2], {"value": [0.0, 0.0]})))(INPUTS, 2)


def test_compute_actions_of_tuple_spaces_must_return_the_triple():
    # P1.
    with pytest.raises(hr.SpecError, match=r"policy: compute_actions: expected the triple .* Tuple"):
        checked(Computes(PAIR), TUPLE)(INPUTS, 2)
    decision = checked(Computes((PAIR, [], {})), TUPLE)(INPUTS, 2)
    np.testing.assert_array_equal(decision.actions["action/0"], [1, 2])


@pytest.mark.parametrize("returned", [([1, 2], 3, {}), ([1, 2], [], []), ([1, 2], None, None)])
def test_a_triple_of_other_types(returned):
    with pytest.raises(
        hr.SpecError, match=r"policy: compute_actions: expected the triple .*got a tuple of 3"
    ):
        checked(Computes(returned))(INPUTS, 2)


# ---- checks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [[1], [1, 2, 3], [[1, 2]], None, [0.5, 2.0]])
def test_actions_that_do_not_fit(actions):
    # P2, CP1: the error names the policy.
    with pytest.raises(hr.SpecError, match=r"^left: action: .*one for each of the n = 2 environments"):
        checked(Computes(actions), name="left")(INPUTS, 2)


@pytest.mark.parametrize(
    ("state_outs", "message"),
    [
        ([], r"^left: state_outs: expected 1, one for each of initial_state, got 0"),
        ([[0.0, 0.0]] * 2, r"^left: state_outs: expected 1, one for each of initial_state, got 2"),
        ([[0.0, 0.0, 0.0]], r"^left: state_out_0: expected float64\[2\], got"),
    ],
)
def test_states_that_do_not_fit(state_outs, message):
    # P2.
    policy = Computes(([1, 2], state_outs, {}), [np.zeros(())])
    with pytest.raises(hr.SpecError, match=message):
        checked(policy, name="left")(INPUTS, 2)
    with pytest.raises(hr.SpecError, match="expected 0, .* got 1"):
        checked(Computes(([1, 2], [[0.0, 0.0]], {})))(INPUTS, 2)


def test_extras_that_do_not_fit():
    # P3, CP3.
    for name, values, message in (
        ("reward", [0.0, 0.0], "policy: the column 'reward' is a base column; give it another name"),
        ("value", [0.0], r"policy: value: expected shape \[2, ...\], got \(1,\)"),
        ("value", 0.0, r"policy: value: expected shape \[2, ...\], got \(\)"),
        ("value", np.zeros(2, object), "policy: value: expected an array of numbers"),
        (3, [0.0, 0.0], "policy: extras: expected the name of a column, a string without '/', got 3"),
        ("a/b", [0.0, 0.0], "policy: extras: expected the name of a column, a string without '/', got 'a/b'"),
    ):
        policy = checked(lambda seen, e={name: values}: ([1, 2], e), reserved={"reward": "a base column"})
        with pytest.raises(hr.SpecError, match=message):
            policy(INPUTS, 2)


@pytest.mark.parametrize(("first", "second"), [({}, {"value": [0, 0]}), ({"value": [0, 0]}, {})])
def test_the_columns_of_the_first_call_stay(first, second):
    # CP3.
    returned = [([1, 2], first), ([1, 2], second)]
    policy = checked(lambda seen: returned.pop(0))
    policy(INPUTS, 2)
    with pytest.raises(hr.SpecError, match="of its first call"):
        policy(INPUTS, 2)


def test_the_number_of_rows_may_change():
    policy = checked(lambda seen: (np.zeros(len(seen), int), {"value": seen[:, 0]}))
    for rows in (2, 1, 5):
        decision = policy({"observation": np.ones((rows, 4), np.float32)}, rows)
        assert decision.actions["action"].shape == decision.extras["value"].shape == (rows,)


# ---- states --------------------------------------------------------------------------------------------------------


def test_the_initial_state_may_be_a_method():
    # P1.
    class Recurrent:
        def initial_state(self):
            return [np.zeros(3, np.float32), 7]

    first, second = initial_state_of(Recurrent())
    assert (first.shape, first.dtype, int(second)) == ((3,), np.float32, 7)
    assert initial_state_of(lambda seen: seen) == ()


@pytest.mark.parametrize("given", [3, np.zeros(3), {"h": np.zeros(3)}, ["text"], [None]])
def test_initial_states_that_are_refused(given):
    with pytest.raises(hr.SpecError, match="policy: initial_state"):
        initial_state_of(Computes([], given))


def test_states_follow_and_restart():
    states = PolicyStates([np.array([1.0, 2.0]), np.array(3)], 2)
    given = states.columns()
    given["state_in_0"][:] = 99  # The policy may write into its copies.
    np.testing.assert_array_equal(states.columns()["state_in_0"], [[1, 2], [1, 2]])
    states.follow({"state_out_0": np.full((2, 2), 5.0), "state_out_1": [6, 7]}, np.array([0]))
    np.testing.assert_array_equal(states.columns()["state_in_0"], [[1, 2], [5, 5]])
    np.testing.assert_array_equal(states.columns()["state_in_1"], [3, 7])
    states.reset()
    np.testing.assert_array_equal(states.columns()["state_in_1"], [3, 3])


def test_the_package_loads_no_torch():
    code = "import sys, headrace.policies; assert not {'gymnasium', 'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
