"""A table as large as its store, with every number of lanes (replay C2, C4)."""

import numpy as np
import pytest

import headrace as hr


@pytest.mark.parametrize(("capacity", "lanes"), [(1000, 1), (1000, 64), (200, 8), (100, 4), (640, 7)])
def test_a_table_as_large_as_the_capacity_goes_on_for_ever(capacity: int, lanes: int):
    signature = hr.Signature.like({"number": np.int64(0)})
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=capacity)
    with hr.Replay(signature, [table], capacity=capacity, seed=0) as replay:
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(3 * capacity // lanes):
                writer.append({"number": number if lanes == 1 else np.full(lanes, number)})
        assert len(replay.table("t")) == capacity
