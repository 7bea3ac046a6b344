"""Histories of running episodes present what `apply` and `acting` present (views R8, R16)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.spec import ArraySpec
from headrace.views import acting, apply
from headrace.views.array_rows import ArrayPlan
from headrace.views.causality import acting_views, look_back
from headrace.views.columns import Columns
from headrace.views.history import History

SPECS = {
    "observation": ArraySpec((2,), np.int64),
    "action": ArraySpec((), np.int8),
    "reward": ArraySpec((), np.float32),
    "terminated": ArraySpec((), np.bool_),
    "truncated": ArraySpec((), np.bool_),
}


def test_how_far_views_look_back():
    """R16: derived from the views."""
    assert look_back([]) == 0
    assert look_back([hr.View("x", shift=3)]) == 0
    assert look_back(hr.views.transition(5, frame_stack=4).values()) == 3
    assert look_back([hr.View("x", shift=[0, -2]), hr.View("y", shift="-7:-1")]) == 7


class Slot:
    """One running episode, as a list of what was written."""

    def __init__(self) -> None:
        self.observations: list[Any] = []
        self.steps: list[Any] = []
        self.cut_at = 0

    def episode(self) -> hr.Episode:
        """The episode so far, with one more step if it has none: an episode has at least one."""
        steps = self.steps or [(0, 0.0, False)]
        observations = self.observations + self.observations[-1:] * (not self.steps)
        actions, rewards, ends = zip(*steps, strict=True)
        return hr.Episode(
            np.array(observations),
            np.array(actions, np.int8),
            np.array(rewards, np.float32),
            np.array(ends),
            np.zeros(len(steps), bool),
        )


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        assert values.tolist() == other[name].tolist(), name


shifts = st.one_of(st.integers(-5, 3), st.lists(st.integers(-5, 3), min_size=1, max_size=3))
views_of_columns = st.builds(
    hr.View,
    st.sampled_from(["observation", "action", "reward"]),
    shift=shifts,
    fill=st.sampled_from(["zeros", "edge", 1]),
    every=st.sampled_from([1, 3]),
    mask=st.booleans(),
)


@settings(max_examples=80)
@given(
    st.lists(views_of_columns, min_size=1, max_size=4),
    st.integers(1, 3),
    st.lists(st.sampled_from(["step", "step", "step", "end", "cut", "late"]), max_size=40),
)
def test_a_history_presents_what_episodes_do(given_views: list[hr.View], slots: int, moves: list[str]):
    """R8, V13, V14: whatever is cut, the look-back sees the real history; rows are presented together."""
    views = {f"v{number}": view for number, view in enumerate(given_views)} | hr.views.transition(2, 0.5)
    columns = Columns(hr.Signature(SPECS), {})
    plan, acting_plan = ArrayPlan(columns, views), ArrayPlan(columns, acting_views(views))
    history = History(SPECS, look_back(views.values()), slots=1, rows=1)
    model: dict[int, Slot] = {}
    number = 0

    def begin(slot: int) -> None:
        model[slot] = Slot()
        history.begin(np.array([slot]))
        observe([slot])

    def observe(which: list[int]) -> None:
        nonlocal number
        values = []
        for slot in which:
            number += 1
            values.append([number, -number])
            model[slot].observations.append(values[-1])
        history.observe(np.array(which), {"observation": np.array(values)})

    def step(which: list[int]) -> None:
        steps = [(slot + 1, number + slot + 0.5, False) for slot in which]
        for slot, each in zip(which, steps, strict=True):
            model[slot].steps.append(each)
        actions, rewards, ends = zip(*steps, strict=True)
        zeros = np.zeros(len(which), bool)
        history.act(
            np.array(which), {"action": actions, "reward": rewards, "terminated": ends, "truncated": zeros}
        )
        observe(which)

    def check_fragments(which: list[int]) -> None:
        segments = history.fragment(np.array(which))
        got = plan.present(history.arrays, segments)
        parts = []
        for slot in which:
            told = model[slot]
            episode = told.episode()
            parts.append(apply(views, episode.fragment(told.cut_at, len(told.steps))))
        same(got, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        assert history.uncut(np.array(which)).tolist() == [
            len(model[slot].steps) - model[slot].cut_at for slot in which
        ]

    for slot in range(slots):
        begin(slot)
    for count, move in enumerate(moves):
        if move == "step":
            step(sorted(model))
        elif move == "late":
            step(sorted(model)[count % len(model) :][:1])
        else:
            which = [count % slots] if move == "end" else sorted(model)[count % 2 :] or [0]
            check_fragments(which)
            if move == "end":
                begin(which[0])
            else:
                history.cut(np.array(which))
                for slot in which:
                    model[slot].cut_at = len(model[slot].steps)
        now = acting_plan.present(history.arrays, history.acting(np.array(sorted(model))))
        cuts = [model[slot].episode().fragment(0, len(model[slot].steps)) for slot in sorted(model)]
        same(now, acting(views, cuts))


def test_an_episode_that_ends_without_an_observation():
    """M6: a look-ahead view of the observation is masked there."""
    history = History(SPECS, 0)
    slot = np.zeros(1, np.int64)
    history.begin(slot)
    for value in (1, 2):
        history.observe(slot, {"observation": np.array([[value, value]])})
        history.act(
            slot, {"action": [value], "reward": [value], "terminated": [value == 2], "truncated": [False]}
        )
    views = {"next": hr.View("observation", shift=1, fill="edge", mask=True), **hr.views.transition(3, 0.5)}
    out = ArrayPlan(Columns(hr.Signature(SPECS), {}), views).present(history.arrays, history.fragment(slot))
    assert out["next"][:, 0].tolist() == [2, 2]
    assert out["next_mask"].tolist() == [True, False]
    assert (out["reward"].tolist(), out["n"].tolist()) == ([2, 2], [2, 1])
    assert out["discount"].tolist() == [0, 0]


@pytest.mark.parametrize("rows", [1, 100])
def test_memory_does_not_grow(rows: int):
    """R16: what is kept is the look-back."""
    history = History(SPECS, 3, rows=rows)
    slot = np.zeros(1, np.int64)
    values = {"action": [1], "reward": [1.0], "terminated": [False], "truncated": [False]}
    history.begin(slot)
    history.observe(slot, {"observation": np.zeros((1, 2))})
    for step in range(300):
        history.act(slot, values)
        history.observe(slot, {"observation": np.zeros((1, 2))})
        if step % 10 == 9:
            history.cut(slot)
    assert len(history.arrays["action"]) <= max(rows + 3, 32)
