"""The heap against the smallest of a dictionary (replay S5)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replay.heap import heap_moved, heap_push, heap_remove, new_heap

CAPACITY = 20
PRIORITIES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 1e300])
CALLS = st.lists(
    st.tuples(st.sampled_from(["push", "move", "remove"]), st.integers(0, CAPACITY - 1), PRIORITIES),
    max_size=80,
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@given(calls=CALLS)
def test_the_root_is_the_extreme_and_ties_go_to_the_least_recently_touched(sign, calls):
    heap = new_heap(CAPACITY, sign)
    priorities, touches = np.zeros(CAPACITY), np.zeros(CAPACITY, np.int64)
    model = {}
    for touch, (call, slot, priority) in enumerate(calls):
        if call == "remove":
            if slot in model:
                heap_remove(heap, priorities, touches, slot)
                del model[slot]
        elif (call == "move") == (slot in model):
            priorities[slot], touches[slot] = priority, touch
            model[slot] = (sign * priority, touch)
            (heap_push if call == "push" else heap_moved)(heap, priorities, touches, slot)
        assert heap.slots[-1] == len(model)
        assert sorted(heap.slots[: len(model)].tolist()) == sorted(model)
        assert all(heap.slots[heap.places[slot]] == slot for slot in model)
        if model:
            assert heap.slots[0] == min(model, key=model.get)


def test_taking_the_root_again_and_again_sorts():
    random = np.random.default_rng(3)
    priorities = random.integers(0, 50, 500).astype(np.float64)
    touches = random.permutation(500)
    heap = new_heap(500, 1.0)
    for slot in range(500):
        heap_push(heap, priorities, touches, slot)
    order = []
    while heap.slots[-1]:
        order.append(int(heap.slots[0]))
        heap_remove(heap, priorities, touches, order[-1])
    assert order == np.lexsort((touches, priorities)).tolist()
