"""The short way to a policy's views shows the numbers of the general one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.rollouts.lanes.recent import RecentWindows
from headrace.views.arrays.rows import ArrayPlan, Segments
from headrace.views.columns import Columns

SIGNATURE = hr.Signature(
    {"observation": {"eye": hr.ArraySpec((3,), "uint8"), "arm": hr.ArraySpec((), "float32")},
     "action": hr.ArraySpec((), "int64")}
)  # fmt: skip
ARRAYS = {
    "observation/eye": np.arange(90, dtype=np.uint8).reshape(30, 3),
    "observation/arm": np.arange(30, dtype=np.float32),
    "action": np.arange(100, 130),
}


@settings(max_examples=60)
@given(
    shifts=st.lists(st.integers(-4, 0) | st.lists(st.integers(-4, 0), min_size=1, max_size=3), max_size=3),
    acted=st.integers(-4, -1) | st.lists(st.integers(-4, -1), min_size=1, max_size=3),
    path=st.sampled_from(["observation", "observation/eye", "observation/arm"]),
    mask=st.booleans(),
    newest=st.lists(st.integers(4, 29), max_size=4),
)
def test_trajectories_longer_than_the_windows_need_no_fill(shifts, acted, path, mask, newest):
    # V14
    views = {f"view {i}": hr.View(path, shift=shift, mask=mask) for i, shift in enumerate(shifts)}
    views["acted"] = hr.View("action", shift=acted, mask=mask)
    columns, rows = Columns(SIGNATURE, {}), np.array(newest, np.int64)
    recent = RecentWindows(columns, views)
    assert recent.look_back <= 4
    segments = Segments(rows, rows - recent.look_back, rows + 1, rows, np.zeros_like(rows))
    wanted = ArrayPlan(columns, views).present(ARRAYS, segments)
    shown = recent.present(ARRAYS, rows)
    assert list(shown) == list(wanted)
    for name in wanted:
        np.testing.assert_equal(shown[name], wanted[name])
