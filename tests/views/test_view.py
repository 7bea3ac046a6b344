"""View: construction, errors, equality, repr (views V2 to V6)."""

import pickle
import threading

import numpy as np
import pytest

from headrace.errors import SpecError
from headrace.views import View, transition
from headrace.views.view import fill_value


@pytest.mark.parametrize(
    ("shift", "offsets"),
    [
        (0, (0,)),
        (-3, (-3,)),
        (np.int64(2), (2,)),
        ([0, -1], (0, -1)),
        ([-1], (-1,)),
        ((3, 3, 1), (3, 3, 1)),
        (np.array([-2, 0]), (-2, 0)),
        (range(-2, 1), (-2, -1, 0)),
        ("-4:0:2", (-4, -2, 0)),
        ("-5:0:2", (-5, -3, -1)),
        ("0:2", (0, 1, 2)),
        (" -1 : 1 ", (-1, 0, 1)),
        ("+1:+3: 1", (1, 2, 3)),
        ("2:2", (2,)),
    ],
)
def test_shifts(shift, offsets):
    """V4: an int, a sequence, a range with both ends; a list keeps its order and may repeat an offset."""
    view = View("x", shift=shift)
    assert view.offsets == offsets
    assert view.has_window == (not isinstance(shift, int | np.integer))


def test_fifty_offsets():
    """V4: "-50:-1" is 50 offsets."""
    assert View(shift="-50:-1").offsets == tuple(range(-50, 0))


@pytest.mark.parametrize(
    "shift",
    [
        [],
        (),
        "1:0",
        "0:1:0",
        "0:1:-1",
        "",
        "x",
        "1",
        "1:",
        ":1",
        "1:2:3:4",
        "1.5:2",
        "0:1 2",
        np.array([], int),
    ],
)
def test_shifts_that_are_none(shift):
    """V4: ValueError."""
    with pytest.raises(ValueError, match="shift"):
        View("x", shift=shift)


@pytest.mark.parametrize(
    "shift",
    [True, False, 1.0, None, np.bool_(True), np.float64(1), [1.0], [True], [0, None], ["0:1"], {1: 2}, 1j],
)
def test_shifts_of_another_type(shift):
    """V4: TypeError for a bool or a float."""
    with pytest.raises(TypeError, match="shift"):
        View("x", shift=shift)


@pytest.mark.parametrize("every", [0, -1])
def test_every_below_one(every):
    with pytest.raises(ValueError, match="every"):
        View("x", every=every)


@pytest.mark.parametrize("every", [True, 1.0, 2.5, "2", None])
def test_every_of_another_type(every):
    with pytest.raises(TypeError, match="every"):
        View("x", every=every)


def test_only_the_first_three_are_positional():
    assert View("x", None, -1) == View("x", shift=-1)
    with pytest.raises(TypeError):
        View("x", None, -1, 2)  # type: ignore[misc]


def test_views_are_frozen():
    view = View("x")
    with pytest.raises(AttributeError):
        view.shift = 3  # type: ignore[misc]
    shift = [0, -1]
    view = View("x", shift=shift)
    shift.append(-2)
    assert view.offsets == (0, -1)
    assert view.shift == (0, -1)


SAME = [
    View,
    lambda: View("x"),
    lambda: View("x", shift=-1),
    lambda: View("x", shift=[-1]),
    lambda: View("x", shift="-1:0"),
    lambda: View("x", every=2),
    lambda: View("x", fill="edge"),
    lambda: View("x", fill=-1),
    lambda: View("x", fill=np.arange(3)),
    lambda: View("x", fill={"a": np.arange(3), "b": 1}),
    lambda: View("x", fill={"a": np.arange(3), "b": 2}),
    lambda: View("x", fill=(np.arange(3), {"a": [np.zeros(2)]})),
    lambda: View("x", fill=float("nan")),
    lambda: View("x", fill=np.array([np.nan, 1])),
    lambda: View("x", used_for_compute_actions=True),
    lambda: View("x", used_for_compute_actions=False),
    lambda: View("x", used_for_training=False),
    lambda: View("x", mask=True),
    lambda: View("x", agent="a"),
    lambda: View("x", agent=["a", "b"]),
    lambda: transition(3, 0.9)["reward"],
    lambda: transition(2, 0.9)["reward"],
    lambda: transition(3, 0.8)["reward"],
    lambda: transition(3, 0.9)["discount"],
    lambda: transition(3, 0.9, frame_stack=2)["next_observation"],
]


@pytest.mark.parametrize("place", range(len(SAME)))
def test_equality_hash_and_pickle(place):
    """V2: comparable with ==; equal views have equal hashes."""
    view = SAME[place]()
    for other, make in enumerate(SAME):
        assert (view == make()) == (other == place)
    assert hash(view) == hash(SAME[place]())
    assert pickle.loads(pickle.dumps(view)) == view
    assert view.replace() == view
    assert view != "x"


def test_lists_and_tuples_of_offsets_are_the_same():
    assert View("x", shift=[0, -1]) == View("x", shift=(0, -1)) == View("x", shift=np.array([0, -1]))
    assert View("x", shift=np.int64(-1)) == View("x", shift=-1)


def test_repr_shows_what_was_given():
    """V2: readable."""
    assert repr(View()) == "View()"
    assert repr(
        View("x", shift="-3:0", fill="edge", mask=True)
    ) == "View('x', shift='-3:0', mask=True, fill='edge')" or (
        repr(View("x", shift="-3:0", fill="edge", mask=True))
        == "View('x', shift='-3:0', fill='edge', mask=True)"
    )
    assert eval(repr(View("x", shift=[0, 1], every=3))) == View("x", shift=[0, 1], every=3)


def test_replace_checks_again():
    view = View("x", shift=-1)
    assert view.replace(shift="0:1").offsets == (0, 1)
    assert view.shift == -1
    with pytest.raises(ValueError, match="shift"):
        view.replace(shift=[])
    with pytest.raises(TypeError):
        view.replace(nonsense=1)


def test_a_fill_is_a_copy():
    """V2: a view is frozen, also when the caller changes the array of its fill."""
    fill = np.zeros(2, np.float32)
    view = View("x", shift=-1, fill=(fill,))
    fill[:] = 7
    assert view.fill[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data_col": 3}, TypeError, "data_col: expected a str, got int"),
        ({"data_col": ""}, ValueError, "data_col: expected the name of a column"),
        ({"mask": "no"}, TypeError, "mask: expected a bool, got 'no'"),
        ({"used_for_training": None}, TypeError, "used_for_training: expected a bool, got None"),
        ({"used_for_compute_actions": 1}, TypeError, "used_for_compute_actions: expected a bool, got 1"),
        ({"shift": b"0:1"}, TypeError, "shift: expected an int"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments, error, message):
    with pytest.raises(error, match=message):
        View(**arguments)


# ---- fills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "dtype"),
    [
        (-1, np.uint8), (256, np.uint8), (float("nan"), np.int64), (float("inf"), np.int32), (2.5, np.int64),
        (2**63, np.int64), (-1, np.uint64), (2, np.bool_), (0.5, np.bool_), (1j, np.float32), (1j, np.int64),
        (1e300, np.float32), (1e10, np.float16), ("text", np.float32), ("1.5", np.float32), (None, np.float32),
        (None, np.bool_), (b"1", np.int64), (object(), np.int64), ([[1], [1, 2]], np.int64), (2.0**63, np.int64),
    ],
)  # fmt: skip
def test_fills_that_the_dtype_cannot_hold(fill, dtype):
    """V6: SpecError, naming the view."""
    with pytest.raises(SpecError, match=r"view 'stack': fill"):
        fill_value("view 'stack': fill", fill, (), np.dtype(dtype))


@pytest.mark.parametrize(
    ("fill", "dtype", "stored"),
    [
        ("zeros", np.int64, 0), ("edge", np.float32, 0), (255, np.uint8, 255), (2.0, np.int64, 2), (-7, np.int8, -7),
        (0.1, np.float32, np.float32(0.1)), (True, np.bool_, True), (1, np.bool_, True), (True, np.int64, 1),
        (float("inf"), np.float32, np.inf), (3, np.complex64, 3), (1j, np.complex64, 1j), (np.uint8(3), np.float64, 3),
        (2**63, np.uint64, 2**63),
    ],
)  # fmt: skip
def test_fills_that_fit(fill, dtype, stored):
    value = fill_value("v", fill, (), np.dtype(dtype))
    assert value.dtype == dtype
    assert value.shape == ()
    assert value == stored
    assert np.isnan(fill_value("v", float("nan"), (), np.dtype(np.float32)))


def test_a_misspelt_fill_is_named():
    with pytest.raises(SpecError, match="view 'v': fill: expected 'zeros', 'edge' or a value, got 'zero'"):
        fill_value("view 'v': fill", "zero", (), np.dtype(np.int64))


def test_a_fill_that_cannot_be_copied_is_named():
    # V6: the view keeps a copy, so that an array that changes later does not change the view.
    told = "fill: expected 'zeros', 'edge' or a value that can be copied, got lock: cannot pickle '_thread.lock' object"
    with pytest.raises(TypeError, match=told):
        View("action", shift=-1, fill=threading.Lock())


def test_fills_are_broadcast_to_a_row():
    """V6: a value, or an array of a row's shape."""
    assert fill_value("v", 3, (2, 2), np.dtype(np.int64)).tolist() == [[3, 3], [3, 3]]
    assert fill_value("v", [1, 2], (2, 2), np.dtype(np.int64)).tolist() == [[1, 2], [1, 2]]
    with pytest.raises(SpecError, match=r"expected a value of int64\[2, 2\]"):
        fill_value("v", [1, 2, 3], (2, 2), np.dtype(np.int64))
    with pytest.raises(SpecError, match="expected a value"):
        fill_value("v", [1], (), np.dtype(np.int64))
