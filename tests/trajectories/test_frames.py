"""trajectories F1-F4."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from headrace.spec import Signature
from headrace.trajectories import StepType, Trajectory


def frame(step_type=1, next_step_type=1, **changes):
    parts = {
        "observation": np.zeros(3, np.float32),
        "action": 0,
        "policy_info": (),
        "reward": 0.0,
        "discount": 1.0,
    }
    return Trajectory(step_type=step_type, next_step_type=next_step_type, **(parts | changes))


def test_f1_the_fields_and_their_order():
    assert Trajectory._fields == (
        "step_type",
        "observation",
        "action",
        "policy_info",
        "next_step_type",
        "reward",
        "discount",
    )


def test_f1_columns_are_named_by_field():
    nested = frame(
        observation={"z": np.zeros(2), "camera": np.zeros((4, 4), np.uint8)}, policy_info={"log_prob": 0.0}
    )
    assert list(Signature.like(nested).columns) == [
        "step_type",
        "observation/camera",
        "observation/z",
        "action",
        "policy_info/log_prob",
        "next_step_type",
        "reward",
        "discount",
    ]
    assert "policy_info" not in Signature.like(frame()).columns


def test_f1_a_signature_gives_a_trajectory_back():
    signature = Signature.like(frame())
    columns = signature.flatten(frame(action=7))
    for each in (
        signature,
        Signature.from_json(json.loads(json.dumps(signature.to_json()))),
        pickle.loads(pickle.dumps(signature)),
    ):
        back = each.unflatten(columns)
        assert type(back) is Trajectory
        assert back.action == 7
        assert back.policy_info == ()
        assert back.observation.shape == (3,)


def test_f1_a_stored_signature_imports_the_frame_by_itself():
    stored = json.dumps(Signature.like(frame()).to_json())
    code = (
        "import json, headrace\n"
        f"back = headrace.Signature.from_json(json.loads({stored!r})).zeros()\n"
        "assert type(back) is headrace.Trajectory"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_f2_the_step_types():
    assert [(kind.name, int(kind)) for kind in StepType] == [("FIRST", 0), ("MID", 1), ("LAST", 2)]


# (step_type, next_step_type): is_first, is_mid, is_last, is_boundary
KINDS = {
    (0, 1): (True, False, False, False),
    (1, 1): (False, True, False, False),
    (1, 2): (False, False, True, False),
    (0, 2): (True, False, True, False),
    (2, 0): (False, False, False, True),
}


def answers(some):
    return some.is_first(), some.is_mid(), some.is_last(), some.is_boundary()


@pytest.mark.parametrize("made", [int, StepType, np.int32, np.array, float])
@pytest.mark.parametrize("pair", KINDS)
def test_f2_f3_one_frame_gives_bools(pair, made):
    found = answers(frame(made(pair[0]), made(pair[1])))
    assert found == KINDS[pair]
    assert all(type(each) is bool for each in found)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_f3_arrays_give_arrays_of_their_shape(shape):
    pairs = np.array(list(KINDS))
    batch = frame(pairs[:, 0].reshape(shape), pairs[:, 1].reshape(shape))
    for found, expected in zip(answers(batch), zip(*KINDS.values(), strict=True), strict=True):
        assert found.dtype == bool
        assert found.shape == shape
        assert found.ravel().tolist() == list(expected)


def test_f3_a_list_is_an_array():
    assert frame([0, 1], [1, 2]).is_last().tolist() == [False, True]


def test_f4_an_episode_of_two_transitions_is_three_frames():
    frames = [frame(0, 1), frame(1, 2), frame(2, 0)]
    assert [some.is_boundary() for some in frames] == [False, False, True]
    assert sum(not some.is_boundary() for some in frames) == 2
    # Each frame's next step type is the step type that follows.
    assert [some.next_step_type for some in frames[:-1]] == [some.step_type for some in frames[1:]]
