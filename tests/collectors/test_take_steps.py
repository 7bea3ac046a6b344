"""Several steps of a loop in one call: it ends where a worker has something else to do."""

import array
import socket

import pytest

import headrace as hr
from headrace.collectors.loop.step_monitor import StepMonitor
from headrace.testing import CounterEnv

STEPS = 6


@pytest.fixture
def loop():
    """Returns a loop within a rollout of 6 steps of one environment."""
    with hr.Collector(lambda: CounterEnv(50), frames_per_batch=STEPS) as collector:
        rollouts = collector._rollouts
        rollouts.begin()
        yield rollouts.loop


@pytest.fixture
def ends():
    """Returns a monitor, what it notes, and the other end of its connection."""
    here, there = socket.socketpair()
    newest = array.array("d", [0.0, 0.0])
    with here, there:
        yield StepMonitor(here.fileno(), memoryview(newest)), newest, there


def test_all_steps_are_taken_where_nothing_comes(loop, ends):
    monitor, newest, _ = ends
    assert loop.take_steps(4, monitor) == 4
    assert loop.take_steps(2, monitor) == 2
    assert (newest[1], loop.taken, monitor.has_arrived) == (6.0, 6, False)


def test_a_message_ends_them(loop, ends):
    # CQ1: a question waits for one step. The first look is at the end of the first step.
    monitor, newest, there = ends
    there.send(b"x")
    assert loop.take_steps(STEPS, monitor) == 1
    assert (newest[1], monitor.has_arrived) == (1.0, True)


def test_they_end_before_the_last_one_of_a_page_and_behind_it(loop, ends):
    # The page has a row for the observation after the rollout, too.
    assert loop.take_steps(100, ends[0]) == STEPS
    assert loop.take_steps(100, ends[0]) == 1
    assert loop.writer.page_is_full


def test_an_error_tells_how_far_the_rollout_was(loop, ends):
    # CX1
    environment = loop.stepper.environments[0]
    step = environment.unwrapped.step

    def failing(action):
        if loop.taken == 3:
            raise RuntimeError("broken")
        return step(action)

    loop.stepper._steps[0] = failing
    with pytest.raises(RuntimeError, match="broken") as caught:
        loop.take_steps(STEPS, ends[0])
    assert "raised after 3 transitions of the rollout of 1 environments" in caught.value.__notes__
    assert (loop.taken, ends[1][1]) == (3, 3.0)
