"""Epsilon, the exponent of the importance weights, the learning rate."""

import pytest

from headrace.cli.dqn.schedules import linear


@pytest.mark.parametrize(
    ("frame", "epsilon"),
    [(-500, 1.0), (0, 1.0), (2500, 0.7525), (5000, 0.505), (10_000, 0.01), (10**9, 0.01)],
)
def test_epsilon_falls_linearly_and_stays(frame, epsilon):
    assert linear(frame, 1.0, 0.01, 10_000) == pytest.approx(epsilon)


def test_it_also_rises():
    assert [linear(done, 0.4, 1.0, 1.0) for done in (0.0, 0.5, 1.0, 1.2)] == pytest.approx(
        [0.4, 0.7, 1.0, 1.0]
    )
