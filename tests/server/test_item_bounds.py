"""A client's count of the items that its steps make, beside a replay of this process (server AK6)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.server.client.writers.item_bounds import ItemBounds

EXACT = [end for end in hr.EndOfEpisode if end is not hr.EndOfEpisode.CONTINUE]
RULES = st.builds(
    lambda length, stride, end, lookahead: hr.ItemRule(
        "t", length, min(stride, length), end, lookahead=lookahead
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(EXACT),
    st.integers(0, 2),
)


@given(st.lists(RULES, min_size=1, max_size=3), st.lists(st.booleans(), max_size=25), st.sampled_from([1, 3]))
def test_items_of_steps_and_ends(rules, ends, lanes):
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=10_000)
    bounds, rows = ItemBounds(rules, lanes), np.zeros(lanes, np.int64)
    step = {"n": np.zeros(lanes, np.int64)} if lanes > 1 else {"n": 0}
    with hr.Replay(hr.Signature.like({"n": 0}), [table]) as replay:
        writer = replay.row_writer(lanes=lanes, items=rules)
        writer.record_items()

        def made():
            return sum(len(keys) for _, keys in writer.take_made())

        for ends_here in ends:
            writer.append(step)
            assert made() == bounds.of_step(rows)
            rows += 1
            if ends_here:
                ended = np.arange(lanes)[rows % 2 == 1]
                writer.end_lanes(ended, {"n": np.zeros(len(ended), np.int64)})
                assert made() <= bounds.of_ends(len(ended))
                rows[ended] = 0
        writer.close()


def test_other_rules_are_bounded():
    rules = [hr.ItemRule("t", 3, end=hr.EndOfEpisode.CONTINUE), hr.ItemRule("t", 1)]
    assert ItemBounds(rules, 4).of_step(np.zeros(4, np.int64)) == 4 * 2 + 4
