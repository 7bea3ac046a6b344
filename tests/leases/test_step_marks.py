"""Marks of unreported steps, against a model that looks at each row by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.leases.messages import unpacked
from headrace.leases.writing.page_writer import PageWriter
from headrace.leases.writing.step_marks import StepMarks

LANES = 4
# Of each lane in a step: a transition, a reset, one in a lane that was in no episode, nothing, or an end.
KINDS = "transition", "reset", "reset of none", "idle", "end"
STEPS = st.lists(st.lists(st.sampled_from(KINDS), min_size=LANES, max_size=LANES), max_size=6)


@given(STEPS)
def test_rows_of_marks(steps):
    marks, rows = StepMarks(LANES), {kind: [] for kind in KINDS}
    for step, kinds in enumerate(steps):
        lanes = {kind: np.array([i for i, each in enumerate(kinds) if each == kind], int) for kind in KINDS}
        resets = np.union1d(lanes["reset"], lanes["reset of none"])
        if resets.size:
            marks.reset(step, resets, lanes["reset of none"])
        marks.rows()  # Looked at between two steps, too.
        for kind, mark in (("idle", marks.idle), ("end", marks.end)):
            if lanes[kind].size:
                mark(step, lanes[kind])
        for lane, kind in enumerate(kinds):
            rows[kind].append(step * LANES + lane)
    found = marks.rows()
    assert found.final.tolist() == rows["reset"]
    assert found.idle.tolist() == sorted(rows["reset of none"] + rows["idle"])
    assert found.ended.tolist() == rows["end"]
    assert sorted(found.masked.tolist()) == sorted(rows["reset"] + rows["reset of none"] + rows["idle"])
    assert marks.count == sum(map(len, rows.values())) - len(rows["transition"])


def test_rows_without_a_transition_are_zeros_once_they_are_reported():
    # CB6: of all columns but the observations, whatever the caller gave for them.
    columns = {"observation": np.zeros(24), "action": np.zeros(24), "reward": np.zeros(24)}
    pages = iter([0, 1, 2])
    writer = PageWriter(columns, 8, ["observation"], 2, lambda _: next(pages))
    with pytest.raises(IndexError, match="no next step"):
        _ = writer.row
    writer.begin({"observation": np.ones(2)})
    values = {"action": np.full(2, 5), "reward": np.full(2, 7)}
    everything = np.arange(2)
    writer.record(values, 1)
    writer.report()
    writer.record(values, 1, resets=everything[1:])
    writer.record(values, 1)
    writer.mark_idle(everything[1:])
    commit = writer.report()
    assert [unpacked(rows, "rows").tolist() for rows in (commit.final, commit.idle)] == [[1], [3]]
    for name, value in (("action", 5), ("reward", 7)):
        assert columns[name][:8].tolist() == [value, value, value, 0, value, 0, 0, 0]
    assert writer.is_open.tolist() == [True, False]
