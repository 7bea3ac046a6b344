"""Collectors go on where others stopped, with environments of every kind that have a state (collectors CQ3)."""

import numpy as np
import pytest

import headrace as hr
from headrace.testing.agents import CounterAgents
from headrace.testing.dm_envs import DmCounterEnv


@pytest.mark.parametrize("create", [lambda: CounterAgents([2, 5, 1]), lambda: DmCounterEnv([3, 4])])
def test_going_on(create):
    """CQ3: bit for bit as if never stopped, also while agents wait."""
    with hr.Collector(create, frames_per_batch=9, num_envs=1) as first:
        first.next()
        state = first.state_dict()
        expected = [first.next() for _ in range(2)]
    with hr.Collector(create, frames_per_batch=9, num_envs=1) as second:
        second.load_state_dict(state)
        got = [second.next() for _ in range(2)]
    for one, other in zip(expected, got, strict=True):
        for name, column in one.items():
            np.testing.assert_array_equal(other[name], column, err_msg=name)
