"""Views of the newest rows of trajectories, in columns and in rings, against the general way and a plain model."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.views.arrays.history import History
from headrace.views.arrays.newest import NewestRows
from headrace.views.arrays.rows import ArrayPlan, Segments
from headrace.views.columns import Columns

SIGNATURE = hr.Signature(
    {"observation": {"eye": hr.ArraySpec((3,), "uint8"), "arm": hr.ArraySpec((), "float32"),
                     "none": hr.ArraySpec((0,), "float32")},
     "action": hr.ArraySpec((), "int64"), "reward": hr.ArraySpec((), "float32")}
)  # fmt: skip
COLUMNS = Columns(SIGNATURE, {})
ARRAYS = {
    "observation/eye": np.arange(90, dtype=np.uint8).reshape(30, 3),
    "observation/arm": np.arange(30, dtype=np.float32),
    "observation/none": np.zeros((30, 0), np.float32),
    "action": np.arange(100, 130),
    "reward": np.arange(30, dtype=np.float32) / 2 + 1,
}


def shifts(last):
    offset = st.integers(-4, last)
    following = st.builds(lambda start, end: f"{min(start, end)}:{max(start, end)}", offset, offset)
    return offset | st.lists(offset, min_size=1, max_size=3) | following


@st.composite
def causal_views(draw):
    found = {}
    fills = st.sampled_from(["zeros", "edge", 7])
    for i in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(["observation", "observation/eye", "observation/arm"]))
        found[f"view {i}"] = hr.View(path, shift=draw(shifts(0)), fill=draw(fills), mask=draw(st.booleans()))
    for path in ("action", "reward"):
        found[path] = hr.View(path, shift=draw(shifts(-1)), fill=draw(fills), mask=draw(st.booleans()))
    return found


def assert_same(shown, wanted):
    assert list(shown) == list(wanted)
    for name in wanted:
        np.testing.assert_equal(shown[name], wanted[name])
        assert isinstance(wanted[name], dict) or shown[name].dtype == wanted[name].dtype


@settings(max_examples=fewer(40))
@given(views=causal_views(), rows=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=4))
def test_newest_rows_show_what_the_general_way_shows(views, rows):
    # V6, V7, V14
    newest = np.array([max(pair) for pair in rows], np.int64)
    begins = np.array([min(pair) for pair in rows], np.int64)
    segments = Segments(newest, begins, newest + 1, newest, np.zeros_like(newest))
    wanted = ArrayPlan(COLUMNS, views).present(ARRAYS, segments)
    assert_same(NewestRows(COLUMNS, views).present(ARRAYS, newest, newest - begins), wanted)


@settings(max_examples=fewer(20))
@given(views=causal_views(), data=st.data())
def test_a_ring_shows_what_all_the_rows_show(views, data):
    # V14, R16
    history, steps, begins = History(COLUMNS, views, 2), 9, np.zeros(2, np.int64)
    generator = np.random.default_rng(0)
    rows = {
        name: generator.integers(0, 99, (steps, 2, *spec.shape)).astype(spec.dtype)
        for name, spec in SIGNATURE.columns.items()
    }
    for step in range(steps):
        history.write({name: column[step] for name, column in rows.items() if name.startswith("observation")})
        shown = history.present()
        for lane in range(2):
            at = np.array([step])
            segments = Segments(at, begins[lane : lane + 1], at + 1, at, np.zeros(1, np.int64))
            arrays = {name: np.ascontiguousarray(column[:, lane]) for name, column in rows.items()}
            wanted = ArrayPlan(COLUMNS, views).present(arrays, segments)
            assert_same(_of_lane(shown, lane), wanted)
        history.write({name: column[step] for name, column in rows.items()})
        restarted = np.array(data.draw(st.lists(st.integers(0, 1))), np.int64)
        history.advance(restarted)
        begins[restarted] = step + 1


@settings(max_examples=fewer(20))
@given(views=causal_views(), data=st.data())
def test_a_ring_shows_what_all_the_rows_show_of_lanes_at_their_own_pace(views, data):
    # V14, R16; collectors CE2: calls of some lanes, in any order, after some steps of all
    history, steps, lanes = History(COLUMNS, views, 3), 9, 3
    heads, begins = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    generator = np.random.default_rng(0)
    rows = {
        name: generator.integers(0, 99, (2 * steps, lanes, *spec.shape)).astype(spec.dtype)
        for name, spec in SIGNATURE.columns.items()
    }
    evens = data.draw(st.integers(0, 2))
    for step in range(steps):
        some = st.lists(st.integers(0, lanes - 1), unique=True, min_size=1)
        chosen = np.arange(lanes) if step < evens else np.array(data.draw(some))
        called = () if step < evens else (chosen,)
        newest = {name: column[heads[chosen], chosen] for name, column in rows.items()}
        history.write(
            {name: values for name, values in newest.items() if name.startswith("observation")}, *called
        )
        shown = history.present(*called)
        np.testing.assert_array_equal(history.t(*called), (heads - begins)[chosen])
        for place, lane in enumerate(chosen):
            at = heads[lane : lane + 1]
            segments = Segments(at, begins[lane : lane + 1], at + 1, at, np.zeros(1, np.int64))
            arrays = {name: np.ascontiguousarray(column[:, lane]) for name, column in rows.items()}
            assert_same(_of_lane(shown, place), ArrayPlan(COLUMNS, views).present(arrays, segments))
        history.write(newest, *called)
        restarted = chosen[data.draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen)))]
        history.advance(restarted, *called)
        heads[chosen] += 1
        begins[restarted] = heads[restarted]
        if data.draw(st.booleans()):
            copy = History(COLUMNS, views, lanes)
            copy.load_state_dict(history.state_dict())
            history = copy


def _of_lane(shown, lane):
    """The same trees with the rows of one lane."""
    if isinstance(shown, dict):
        return {name: _of_lane(value, lane) for name, value in shown.items()}
    return shown[lane : lane + 1]


def test_what_a_policy_gets_is_its_own():
    # V11, P2: what a policy keeps does not change later, and what it changes is stored nowhere
    history = History(COLUMNS, {"stack": hr.View("observation/eye", shift="-1:0")}, 2)
    history.write({"observation/eye": np.ones((2, 3), np.uint8)})
    kept = history.present()["stack"]
    kept[:, 1] = 9
    history.advance(np.array([], np.int64))
    history.write({"observation/eye": np.full((2, 3), 2, np.uint8)})
    assert history.present()["stack"][:, :, 0].tolist() == [[1, 2], [1, 2]]
    assert kept[:, :, 0].tolist() == [[0, 9], [0, 9]]
