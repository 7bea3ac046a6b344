"""The heap against the smallest of a dictionary (replay S5)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables.indexes.heap import Heap

CAPACITY = 20
PRIORITIES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 1e300])
CALLS = st.lists(
    st.tuples(st.sampled_from(["push", "move", "remove"]), st.integers(0, CAPACITY - 1), PRIORITIES),
    max_size=80,
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@given(calls=CALLS)
def test_the_root_is_the_extreme_and_ties_go_to_the_least_recently_touched(sign, calls):
    slots, places = np.zeros(CAPACITY + 1, np.int64), np.zeros(CAPACITY, np.int64)
    priorities, touches = np.zeros(CAPACITY), np.zeros(CAPACITY, np.int64)
    heap = Heap(slots, places, sign, priorities, touches)
    model = {}
    for touch, (call, slot, priority) in enumerate(calls):
        if call == "remove":
            if slot in model:
                heap.remove(slot)
                del model[slot]
        elif (call == "move") == (slot in model):
            priorities[slot], touches[slot] = priority, touch
            model[slot] = (sign * priority, touch)
            (heap.push if call == "push" else heap.moved)(slot)
        assert slots[-1] == len(model)
        assert sorted(slots[: len(model)].tolist()) == sorted(model)
        assert all(slots[places[slot]] == slot for slot in model)
        if model:
            assert slots[0] == min(model, key=model.get)


def test_taking_the_root_again_and_again_sorts():
    random = np.random.default_rng(3)
    priorities = random.integers(0, 50, 500).astype(np.float64)
    touches = random.permutation(500)
    slots = np.zeros(501, np.int64)
    heap = Heap(slots, np.zeros(500, np.int64), 1.0, priorities, touches)
    for slot in range(500):
        heap.push(slot)
    order = []
    while slots[-1]:
        order.append(int(slots[0]))
        heap.remove(order[-1])
    assert order == np.lexsort((touches, priorities)).tolist()
