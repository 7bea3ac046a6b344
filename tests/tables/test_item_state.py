"""Items in the order of the ring, and items on their way into a table, beside lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables.item_state import fill_ring, segments
from headrace.tables.new_items import NewItems


@st.composite
def rings(draw):
    """The capacity, the first slot and the values of a ring."""
    capacity = draw(st.integers(1, 20))
    span = draw(st.integers(0, capacity))
    return capacity, draw(st.integers(0, capacity - 1)), np.arange(1, span + 1)


@given(rings())
def test_values_lie_from_the_first_slot_on_round_the_end_of_the_array(ring):
    capacity, first, values = ring
    array, model = np.zeros(capacity, np.int64), [0] * capacity
    for number, value in enumerate(values.tolist()):
        model[(first + number) % capacity] = value
    fill_ring(array, first, values)
    assert array.tolist() == model
    assert np.concatenate(segments(array, first, len(values))).tolist() == values.tolist()


@given(st.integers(0, 12), st.data(), st.booleans(), st.booleans(), st.booleans())
def test_parts_of_new_items_are_those_of_a_list(count, data, has_windows, has_priorities, has_keys):
    windows = (
        np.arange(3 * count, dtype=np.uint32).reshape(count, 3) if has_windows else np.ones((1, 3), np.uint32)
    )
    priorities = np.arange(float(count)) if has_priorities else np.ones(1)
    keys = np.arange(100, 100 + count, dtype=np.uint64)[::-1] if has_keys else np.zeros(0, np.uint64)
    whole = NewItems(7, np.arange(50, 50 + count), windows, priorities, keys)
    done = data.draw(st.integers(0, count))
    model = items_of(whole)
    assert items_of(whole.until(done)) == model[:done]
    assert items_of(whole.after(done)) == model[done:]
    assert (len(whole.until(done)), len(whole.after(done))) == (done, count - done)


def items_of(new):
    """Key, row, window and priority of each item."""
    return [
        (
            int(new.keys[number]) if len(new.keys) else new.first_key + number,
            int(row),
            new.windows[number if len(new.windows) > 1 else 0].tolist(),
            float(new.priorities[number if len(new.priorities) > 1 else 0]),
        )
        for number, row in enumerate(new.rows)
    ]
