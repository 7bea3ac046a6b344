"""Checks of commits, against a walk through their rows one by one."""

from collections import deque

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headrace.leases.checking import CheckedCommit, LeaseError
from headrace.leases.messages import Commit, packed
from headrace.leases.payload import unpacked_columns
from headrace.spec import Signature

FREE_FINALS = [40, 41, *range(90, 110)]
_MARKS = st.sampled_from(["", "", "", "final", "idle", "ended"])


def rises(numbers, stop):
    return sorted(set(numbers)) == numbers and all(0 <= number < stop for number in numbers)


def continues(steps, capacity, is_open, marks, cut, final_rows):
    """Whether steps with these marks of rows continue lanes of which some are in an episode."""
    lanes, is_open = len(is_open), list(is_open)
    if not 0 <= steps <= capacity or not (steps or cut) or not rises(cut, lanes):
        return False
    if not all(rises(rows, steps * lanes) for rows in marks.values()):
        return False
    for row in range(steps * lanes):
        of_row = [mark for mark, rows in marks.items() if row in rows]
        lane = row % lanes
        if (
            len(of_row) > 1
            or ("idle" in of_row and is_open[lane])
            or ("final" in of_row and not is_open[lane])
        ):
            return False
        is_open[lane] = not of_row
    count = len(marks["ended"]) + len(cut)
    return all(is_open[lane] for lane in cut) and final_rows == FREE_FINALS[:count]


@settings(max_examples=1000)
@given(st.data())
def test_a_commit_is_taken_if_it_continues_its_lanes(data):
    is_open = data.draw(st.lists(st.booleans(), min_size=1, max_size=3))
    lanes, steps = len(is_open), data.draw(st.integers(0, 4))
    # One mark a row, mostly one that its lane can have; then numbers that are out of order, doubled or far away.
    of_rows, now = [], deque(is_open)
    for _ in range(steps * lanes):
        impossible = "idle" if now[0] else "final"
        mark = data.draw(_MARKS)
        of_rows.append("" if mark == impossible and data.draw(st.integers(0, 9)) else mark)
        now[0] = not of_rows[-1]
        now.rotate(-1)
    marks = {
        name: [row for row, mark in enumerate(of_rows) if mark == name] for name in ("final", "idle", "ended")
    }
    cut = sorted(data.draw(st.sets(st.sampled_from([lane for lane in range(lanes) if now[lane]] or [0]))))
    final_rows = FREE_FINALS[: len(marks["ended"]) + len(cut)]
    if data.draw(st.booleans()):
        broken = data.draw(st.sampled_from([*marks.values(), cut, final_rows]))
        numbers = st.sampled_from([-(2**63), -1, 0, 1, 2, steps * lanes, 2**40, 2**63 - 1])
        broken.insert(data.draw(st.integers(0, len(broken))), data.draw(numbers))
    capacity = data.draw(st.sampled_from([4, 4, 4, 3, 0]))
    commit = Commit(
        writer=0,
        sequence=1,
        page=0,
        steps=steps,
        versions=bytes(4 * steps),
        cut=packed(cut),
        final_rows=packed(final_rows),
        **{name: packed(rows) for name, rows in marks.items()},
    )
    is_right = continues(steps, capacity, is_open, marks, cut, final_rows)
    event("taken" if is_right else "refused")
    lane_steps = np.array(is_open, np.uint32) * 7

    def check():
        return CheckedCommit(commit, capacity, lane_steps, lambda count: np.array(FREE_FINALS[:count]))

    if not is_right:
        with pytest.raises(LeaseError):
            check()
        return
    checked = check()
    assert checked.cut.tolist() == cut
    assert checked.final_rows.tolist() == final_rows
    assert {name: getattr(checked.written, name).tolist() for name in marks} == marks


@pytest.mark.parametrize(("steps", "rows"), [(-1, 2), (-1, 3), (-2, 5), (2**63, 0)])
def test_a_payload_of_a_negative_number_of_steps_is_refused(steps, rows):
    """Its length may be right all the same: the final rows are counted too."""
    signature = Signature.like({"observation": np.zeros(2, np.float32)})
    commit = Commit(
        writer=0, sequence=1, page=0, steps=steps, versions=b"", final_rows=packed(np.arange(rows))
    )
    with pytest.raises(LeaseError):
        unpacked_columns(bytes(max(0, steps + rows) % 100 * signature.nbytes), commit, signature, 1)
