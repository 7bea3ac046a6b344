"""The loop over single environments: what it writes is what the environments returned, up to the first error."""

import numpy as np
import pytest

from headrace.envs.protocol import StepResult
from headrace.envs.step_loop import StepLoop
from headrace.kernels.row_copy import STREAMED_ROW, STREAMED_STEP


def new_loop(steps, bare="observation"):
    result = StepResult.empty(len(steps))
    result.terminated[:] = result.truncated[:] = True  # Of the step before.
    return StepLoop(steps, result, bare), result


@pytest.mark.parametrize("width", [3, STREAMED_ROW])
def test_environments_that_return_the_same_array_have_rows_of_their_own(width):
    # collectors CE5: an array may be changed as soon as another environment steps.
    count = STREAMED_STEP // STREAMED_ROW
    shared = np.zeros(width, np.uint8)

    def step(action):
        shared[:] = action
        return shared, float(action), action == 2, action == 3, {}

    loop, result = new_loop([step] * count)
    out = {"observation": np.zeros((2 * count, width), np.uint8)}
    rows = list(range(1, 2 * count, 2))
    write = out["observation"]
    ended = loop.run(
        range(count), range(count), out, rows, lambda i, seen, _, row: write.__setitem__(row, seen)
    )
    assert ended == [2, 3]
    np.testing.assert_array_equal(out["observation"][1::2, 0], np.arange(count))
    assert not out["observation"][::2].any()
    np.testing.assert_array_equal(result.reward, np.arange(count))
    assert (result.terminated.nonzero()[0].tolist(), result.truncated.nonzero()[0].tolist()) == ([2], [3])


@pytest.mark.parametrize(
    "reward",
    [2, 0.1, True, np.float64(0.1), np.float32(0.1), np.int8(3), np.array(0.1), np.bool_(True), 1e300],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_rewards_are_rounded_as_numpy_rounds_them(reward):
    expected = np.zeros(1, np.float32)
    expected[0] = reward
    loop, result = new_loop([lambda _: (None, reward, np.bool_(False), 0, {})], bare=None)
    written = []
    assert loop.run(range(1), [0], {}, range(1), lambda i, seen, _, row: written.append((i, seen, row))) == []
    assert result.reward.tobytes() == expected.tobytes()
    assert written == [(0, None, 0)]


@pytest.mark.parametrize("place", ["step", "write", "check", "note"])
def test_an_error_leaves_what_was_stepped_before(place):
    out = {"observation": np.zeros((4, 2))}

    def fail_at_2(name):
        def call(i, *_):
            if i == 2 and place == name:
                raise KeyError(name)

        return call

    def step(i):
        fail_at_2("step")(i)
        seen = [i, i] if place == "write" and i == 2 else np.full(2, float(i))
        return seen, 1.0, i == 1, False, {}

    loop, result = new_loop([step] * 4)
    with pytest.raises(KeyError):
        loop.run(
            range(4),
            range(4),
            out,
            range(4),
            # Compiled loops write arrays themselves.
            lambda i, seen, _, row: (fail_at_2("write")(i), out["observation"].__setitem__(row, seen)),
            fail_at_2("check"),
            fail_at_2("note"),
        )
    assert loop.ended == [1]
    assert (loop.env, loop.action) == (2, 2)
    assert out["observation"][:2].tolist() == [[0, 0], [1, 1]]
    assert result.terminated.tolist() == [False, True, False, False]
    assert result.reward[:2].tolist() == [1, 1]
    assert not result.reward[3]


@pytest.mark.parametrize("given", [range(2), np.zeros(5, np.int64), np.zeros((0, 2))])
def test_a_wrong_number_of_actions_is_refused_before_an_environment_steps(given):
    stepped = []
    loop, result = new_loop([stepped.append] * 4)
    with pytest.raises(ValueError, match=f"expected 4, one for each environment, got {len(given)}"):
        loop.run(range(4), given, {"observation": np.zeros((4, 2))}, None, lambda *_: None)
    assert not stepped
    assert loop.ended == []
    assert not result.terminated.any()


@pytest.mark.parametrize(
    "actions",
    [
        *(np.arange(3).astype(dtype) for dtype in ("i1", "u8", ">i4", "?", "f4", "f8")),
        np.arange(6)[::2],
        np.arange(6)[::-2],
        np.arange(12).reshape(3, 2, 2)[..., ::-1],
        np.arange(3).view(np.recarray),
        [{"a": 1}, (2, 3), None],
    ],
    ids=lambda actions: f"{type(actions).__name__}-{getattr(actions, 'dtype', '')}",
)
def test_an_environment_is_given_what_iteration_gives(actions):
    # The compiled loop takes numbers out of arrays by itself.
    given = []
    loop, _ = new_loop([lambda action: (given.append(action), 0.0, False, False, {})] * 3, bare=None)
    loop.run(range(3), actions, {}, None, lambda *_: None)
    assert [type(each) for each in given] == [type(each) for each in actions]
    for got, expected in zip(given, actions, strict=True):
        assert getattr(got, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_array_equal(got, expected)


def test_environments_that_take_no_part_have_no_flags_and_keep_their_rows():
    loop, result = new_loop([lambda action: (np.full(2, action), 1.0, True, False, {"n": action})] * 3)
    out = {"observation": np.full((3, 2), 9.0)}
    noted = []
    write = out["observation"].__setitem__
    ended = loop.run(
        [0, 2],
        [5.0, 6.0],
        out,
        range(3),
        lambda i, seen, _, row: write(row, seen),
        note=lambda *a: noted.append(a),
    )
    assert ended == [0, 2]
    assert out["observation"].tolist() == [[5, 5], [9, 9], [6, 6]]
    assert result.terminated.tolist() == [True, False, True]
    assert not result.truncated.any()
    assert [(i, info, row) for i, info, _, row in noted] == [(0, {"n": 5.0}, 0), (2, {"n": 6.0}, 2)]


@pytest.mark.parametrize(
    "actions",
    [
        np.array([0, 3, 255, 256, -1, 2**62]),
        np.array([0, 3, 255], np.int32),
        np.array([0, 3, 255], ">i8"),
        np.array([0, 3, 255], np.longlong),
        np.frombuffer(b"\0" * 25, np.int8)[1:].view(np.int64),
        np.arange(8)[::3],
        np.array([0.5, 3.0]),
        np.array([True, False]),
        [0, np.int16(3)],
    ],
    ids=lambda actions: f"{getattr(actions, 'dtype', 'list')}, {len(actions)}",
)
def test_actions_are_the_elements_of_their_array(actions):
    """CE2: of the same type and value as `actions[i]`, for small numbers and all others."""
    got = []
    loop, _ = new_loop([lambda action: (got.append(action), 0.0, False, False, {})] * len(actions), bare=None)
    loop.run(range(len(actions)), actions, {}, None, lambda *_: None)
    for i, action in enumerate(got):
        assert type(action) is type(actions[i])
        assert action == actions[i]
