"""The plan of a rule's windows against the closed form (trajectories W1 to W6)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import WholeEpisodes
from headrace.tables.windows.plan import WindowPlan
from headrace.trajectories.windows import windows

ENDS = [end for end in EndOfEpisode if end is not EndOfEpisode.CONTINUE]


@st.composite
def rules(draw: st.DrawFn) -> hr.ItemRule:
    length, end = draw(st.integers(1, 5)), draw(st.sampled_from(ENDS))
    most = length if end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE) else 6
    return hr.ItemRule("t", length, draw(st.integers(1, most)), end, lookahead=draw(st.integers(0, 4)))


def planned(rule, numbers, final):
    found = WindowPlan(rule.window_rule).windows_of(np.array(numbers, np.int64), np.array(final, np.bool_))
    return [tuple(window) for window in found.tolist()]


@given(rules(), st.integers(0, 20))
def test_an_episode_has_the_windows_of_the_closed_form(rule, transitions):
    """W1, W6: a regular window with the last row that it keeps, the others with the final row."""
    rows = transitions + 1
    count = transitions if rule.length == 1 else rows
    wanted = []
    for start, real, _ in windows(count, rule.length, rule.stride, rule.end):
        needed = start + rule.length + rule.lookahead
        stop = min(start + real + rule.lookahead, rows)
        is_regular = real == rule.length and start % rule.stride == 0
        wanted.append((min(needed, rows) - 1 if is_regular else rows - 1, start, stop))
    assert planned(rule, range(rows), [False] * transitions + [True]) == wanted


@given(rules(), st.integers(1, 20), st.integers(0, 20))
def test_rows_without_an_end_have_their_regular_windows_only(rule, rows, first):
    """W5: also where the plan is asked about the newest rows of an episode alone."""
    kept = rule.length + rule.lookahead
    starts = [
        start for start in range(0, first + rows, rule.stride) if first <= start + kept - 1 < first + rows
    ]
    assert planned(rule, range(first, first + rows), [False] * rows) == [
        (start + kept - 1 - first, start, start + kept) for start in starts
    ]


@given(st.integers(1, 5), st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_streams_go_on_over_the_ends_of_episodes(length, stride, episodes):
    """W1, CONTINUE; W6: windows of one row count transitions alone."""
    rule = hr.ItemRule("t", length, stride, EndOfEpisode.CONTINUE)
    if length == stride == 1:
        rule = hr.ItemRule("t", 1)
    numbers, final = [], []
    for transitions in episodes:
        for row in range(transitions + 1):
            numbers.append(sum(not each for each in final) if length == 1 else len(numbers))
            final.append(row == transitions)
    count = sum(episodes) if length == 1 else len(numbers)
    found = [(start, stop) for _, start, stop in planned(rule, numbers, final)]
    assert found == [(start, start + length) for start, _, _ in windows(count, length, stride)]
    plan = WindowPlan(hr.ItemRule("t", length, stride, EndOfEpisode.CONTINUE).window_rule)
    starts = [start for start, _, _ in windows(count + length * stride, length, stride)]
    assert plan.stream_start(count) == next(start for start in starts if start + length > count)


@given(st.integers(1, 6), st.integers(0, 8))
def test_a_whole_episode_is_one_window_if_it_is_short_enough(length, transitions):
    wanted = [(transitions, 0, transitions + 1)] if transitions < length else []
    final = [False] * transitions + [True]
    assert planned(WholeEpisodes("t", length), range(transitions + 1), final) == wanted
