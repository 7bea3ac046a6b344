"""Views of many trajectories side by side, and of other agents in them (views M6, M9, R16)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.views.arrays.rows import ArrayPlan, Segments
from headrace.views.causality import acting_views, look_back
from headrace.views.columns import Columns
from headrace.views.other_agents import Beside, OtherRows

NUMBER = ArraySpec((), np.int64)
FLAG = ArraySpec((), np.bool_)
OWN = {"observation": NUMBER, "action": NUMBER, "reward": NUMBER, "terminated": FLAG, "truncated": FLAG}


def columns(**specs: ArraySpec) -> Columns:
    return Columns(hr.Signature(specs or OWN), {})


def test_how_far_views_look_back():
    """R16: derived from the views."""
    assert look_back([]) == 0
    assert look_back([hr.View("x", shift=3)]) == 0
    assert look_back(hr.views.transition(5, frame_stack=4).values()) == 3
    assert look_back([hr.View("x", shift=[0, -2]), hr.View("y", shift="-7:-1")]) == 7


def test_trajectories_side_by_side():
    """V7, M6: each row looks into its own trajectory; the second ends without an observation."""
    segments = Segments(
        rows=np.array([0, 1, 4, 5]),
        begins=np.array([0, 0, 4, 4]),
        pre_ends=np.array([3, 3, 6, 6]),
        post_ends=np.array([2, 2, 6, 6]),
        places=np.array([0, 1, 0, 1]),
    )
    arrays = {
        "observation": np.array([10, 11, 12, 99, 20, 21, 99]),
        "action": np.array([1, 2, 99, 99, 5, 6, 99]),
        "reward": np.array([1, 2, 99, 99, 4, 8, 99]),
        "terminated": np.arange(7) == 5,
        "truncated": np.zeros(7, bool),
    }
    views = {
        "next": hr.View("observation", shift=1, fill="edge", mask=True),
        "back": hr.View("action", shift="-1:0"),
        "first": hr.View("observation", every=2),
    }
    out = ArrayPlan(columns(), {**views, **hr.views.transition(3, 0.5)}).present(arrays, segments)
    assert (out["next"].tolist(), out["next_mask"].tolist()) == ([11, 12, 21, 21], [True, True, True, False])
    assert out["back"].tolist() == [[0, 1], [1, 2], [0, 5], [5, 6]]
    assert out["first"].tolist() == [10, 20]
    assert (out["reward"].tolist(), out["n"].tolist()) == ([2, 2, 8, 8], [2, 1, 2, 1])
    assert out["discount"].tolist() == [0.25, 0.5, 0, 0]
    assert out["next_observation"].tolist() == [12, 12, 21, 21]


# ---- other agents ----------------------------------------------------------------------------------------------------


def rows_of(times: list[int], acted: int | None = None) -> OtherRows:
    """One agent that was observed at these environment steps, and acted at the first `acted` of them."""
    count, lead = len(times), 3
    arrays = {
        "observation": np.concatenate([np.full(lead, -7), 1000 + np.array(times, int), [-8]]),
        "action": np.concatenate([np.full(lead, -7), 100 + np.array(times, int), [-8]]),
        "reward": np.zeros(lead + count + 1, int),
    }
    env_t = np.concatenate([np.full(lead, 50), np.array(times, int), [0]])
    ends = lead + np.array([count, count if acted is None else acted])
    return OtherRows(arrays, env_t, np.array([lead]), ends[:1], ends[1:])


def present(view: hr.View, own: list[int], agents: dict[Any, list[int]]) -> dict[str, Any]:
    """A view at rows with these environment steps."""
    count = len(own)
    sources = {
        agent: [
            each._replace(
                begins=np.repeat(each.begins, count),
                pre_ends=np.repeat(each.pre_ends, count),
                post_ends=np.repeat(each.post_ends, count),
            )
            for each in [rows_of(times)]
        ]
        for agent, times in agents.items()
    }
    plan = ArrayPlan(columns(), {"x": view}, {agent: columns() for agent in agents})
    steps = np.arange(count)
    segments = Segments(steps, 0 * steps, 0 * steps + count, 0 * steps + count, steps)
    return plan.present({}, segments, Beside(np.array(own), sources))


def test_another_agent_that_acts_rarely():
    """M9: B acts at env steps 0 and 3."""
    out = present(hr.View("action", agent="B", mask=True), list(range(5)), {"B": [0, 3]})
    assert list(out) == ["x", "x_mask"]
    assert out["x_mask"].tolist() == [True, False, False, True, False]
    assert out["x"].tolist() == [100, 0, 0, 103, 0]


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (hr.View("action", agent="B"), (4,)),
        (hr.View("action", agent=["B"]), (4, 1)),
        (hr.View("action", agent=["B", "C"], every=3), (2, 2)),
        (hr.View("action", agent="B", shift="-2:0"), (4, 3)),
        (hr.View("observation", agent=["B", "C"], shift=[0]), (4, 2, 1)),
    ],
)
def test_axes(view: hr.View, shape: tuple[int, ...]):
    """M9: a list adds an axis before the window's."""
    agents = {"B": [0, 1, 2], "C": [1]}
    out = present(view.replace(mask=True), [0, 1, 2, 3], agents)
    assert out["x"].shape == out["x_mask"].shape == shape


def test_an_agent_for_which_different_policies_act():
    """M9: whatever the policy: at the first row one acts for B, at the second another."""
    one, other = rows_of([0, 1]), rows_of([0, 1])
    other.arrays["observation"][:] += 5000
    here = [
        one._replace(begins=np.array([3, 3]), pre_ends=np.array([5, 3]), post_ends=np.array([5, 3])),
        other._replace(begins=np.array([3, 3]), pre_ends=np.array([3, 5]), post_ends=np.array([3, 5])),
    ]
    plan = ArrayPlan(columns(), {"x": hr.View("observation", agent="B", mask=True)}, {"B": columns()})
    rows = np.arange(2)
    segments = Segments(rows, rows, rows, rows, rows)
    out = plan.present({}, segments, Beside(np.array([1, 1]), {"B": here}))
    assert (out["x"].tolist(), out["x_mask"].tolist()) == ([1001, 6001], [True, True])
    out = plan.present({}, segments, Beside(np.array([1, 1]), {}))
    assert (out["x"].tolist(), out["x_mask"].tolist()) == ([0, 0], [False, False])


def test_views_of_others_that_a_policy_sees():
    """M9: fed when causal; rewards and flags of others can still be open."""
    views = {
        "now": hr.View("observation", agent="B"),
        "last": hr.View("action", agent=["B"], shift=-1),
        "same": hr.View("action", agent="B"),
        "reward": hr.View(agent="B", shift=-1),
        "ended": hr.View("terminated", agent="B", shift=-3),
    }
    assert list(acting_views(views)) == ["now", "last"]
    for name in ("same", "reward", "ended"):
        view = views[name].replace(used_for_compute_actions=True)
        with pytest.raises(ValueError, match=f"view '{name}': used_for_compute_actions=True"):
            acting_views({name: view})
        with pytest.raises(ValueError, match=f"view '{name}': used_for_compute_actions=True"):
            ArrayPlan(columns(), {name: view}, {"B": columns()})


def test_agents_that_do_not_fit():
    def plan(view: hr.View) -> None:
        others = {"B": columns(), "C": columns(observation=ArraySpec(3, "f4"), action=NUMBER)}
        ArrayPlan(columns(), {"x": view}, others)

    with pytest.raises(SpecError, match="view 'x': agent: no agent 'D'; there are 'B', 'C'"):
        plan(hr.View("action", agent="D"))
    with pytest.raises(SpecError, match="view 'x': no column 'logits'"):
        plan(hr.View("logits", agent="B"))
    with pytest.raises(SpecError, match="view 'x': agent: expected agents with the same columns"):
        plan(hr.View("observation", agent=["B", "C"]))
    with pytest.raises(ValueError, match="view 'x': agent: expected at least one id"):
        plan(hr.View("action", agent=[]))
    with pytest.raises(ValueError, match="these rows belong to one agent each"):
        ArrayPlan(columns(), {"x": hr.View("action", agent="B")})


@settings(max_examples=fewer(150))
@given(
    st.sets(st.integers(0, 12), max_size=6),
    st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True),
    st.one_of(st.integers(-6, 3), st.lists(st.integers(-6, 3), min_size=1, max_size=3)),
    st.sampled_from(["observation", "action"]),
    st.sampled_from(["zeros", "edge", 7]),
)
def test_others_equal_a_lookup(times: set[int], own: list[int], shift: Any, column: str, fill: Any):
    """M9 with a dict of environment step to value."""
    view = hr.View(column, agent="B", shift=shift, fill=fill, mask=True)
    out = present(view, sorted(own), {"B": sorted(times)})
    base = 1000 if column == "observation" else 100
    values = {time: base + time for time in times}
    for row, step in enumerate(sorted(own)):
        now = max(step if column == "observation" else step - 1, step + max(view.offsets))
        for number, offset in enumerate(view.offsets):
            place = (row, number) if view.has_window else (row,)
            wanted = step + offset
            assert out["x_mask"][place] == (wanted in values)
            before = [time for time in values if time <= wanted]
            if wanted in values:
                expected = values[wanted]
            elif fill != "edge":
                expected = 0 if fill == "zeros" else fill
            elif before:
                expected = values[max(before)]
            else:
                expected = values[min(values)] if values and min(values) <= now else 0
            assert out["x"][place] == expected
