"""Rows in no item, against a model that lists every window (trajectories P2)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.ends import EndOfEpisode
from headrace.trajectories.windows import windows
from headrace.trajectories.writers.unused_rows import UnusedRows

CONTINUE = EndOfEpisode.CONTINUE


@st.composite
def rules(draw):
    length, end = draw(st.integers(1, 4)), draw(st.sampled_from(list(EndOfEpisode)))
    most = length if end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE) else 5
    lookahead = 0 if end is CONTINUE else draw(st.integers(0, 3))
    return hr.ItemRule("t", length, draw(st.integers(1, most)), end, lookahead=lookahead)


def used_rows(rule, episodes):
    """Rows `(episode, row)` in the items of a rule."""
    if rule.end is CONTINUE:
        stream = [
            (number, row)
            for number, transitions in enumerate(episodes)
            for row in range(transitions + (rule.length > 1))
        ]
        found = windows(len(stream), rule.length, rule.stride)
        return {stream[row] for start, rows, _ in found for row in range(start, start + rows)}
    used = set()
    for number, transitions in enumerate(episodes):
        count = transitions if rule.length == 1 else transitions + 1
        for start, rows, _ in windows(count, rule.length, rule.stride, rule.end):
            used |= {
                (number, row) for row in range(start, min(start + rows + rule.lookahead, transitions + 1))
            }
    return used


@given(st.lists(rules(), min_size=1, max_size=3), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_all_rows_in_no_item_are_dropped_by_the_end_of_the_stream(rules, episodes):
    unused, lane = UnusedRows(rules, 2), np.array([1])
    dropped = sum(unused.end(lane, np.array([transitions])) for transitions in episodes)
    dropped += unused.end_streams(lane)
    of_one_row = all(rule.length == 1 and not rule.lookahead for rule in rules)
    rows = {(number, row) for number, count in enumerate(episodes) for row in range(count + (not of_one_row))}
    assert dropped == len(rows.difference(*(used_rows(rule, episodes) for rule in rules)))
    assert unused.end_streams(lane) == 0


@given(rules(), st.integers(1, 9))
def test_an_episode_that_is_abandoned_has_its_regular_windows_alone(rule, transitions):
    unused, lane = UnusedRows([rule], 1), np.array([0])
    dropped = unused.abandon(lane, np.array([transitions])) + unused.end_streams(lane)
    kept = rule.length + rule.lookahead
    used = {
        row for start, _, _ in windows(transitions, kept, rule.stride) for row in range(start, start + kept)
    }
    assert dropped == transitions - len(used)
