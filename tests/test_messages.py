"""Messages, notes and reprs show numbers of NumPy as plain ones: 4, and not np.int64(4)."""

import gymnasium as gym
import numpy as np
import pytest

import headrace as hr
from headrace.checks import check_count, check_timeout, shown

FIFO = hr.selectors.Fifo()
FOUR, ZERO, HALF, MINUS = np.int64(4), np.int64(0), np.float64(0.5), np.float64(-1)


@pytest.mark.parametrize(
    "made",
    [
        lambda: hr.ItemRule("t", FOUR, FOUR, priority=np.float32(2), lookahead=FOUR),
        lambda: hr.selectors.Prioritized(HALF),
        lambda: hr.rate_limiters.SampleToInsertRatio(np.float64(2), FOUR, np.float64(8)),
        lambda: hr.rate_limiters.SampleToInsertRatio(2, 3, (HALF, np.float64(9))),
        lambda: hr.Table("t", sampler=FIFO, remover=FIFO, max_size=FOUR, max_times_sampled=FOUR),
        lambda: hr.View("a", shift=[FOUR], every=FOUR, fill=HALF),
        lambda: hr.views.transition(FOUR, HALF, FOUR),
        lambda: hr.NStepRule("t", FOUR, HALF),
    ],
)
def test_what_was_made_of_numbers_of_numpy(made):
    assert "np." not in repr(made())
    assert made() == made()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_count("n", HALF, 1), "n: expected an integer >= 1, got 0.5"),
        (lambda: check_timeout(MINUS), "timeout: expected seconds >= 0 or None, got -1.0"),
        (lambda: hr.ItemRule("t", HALF), "ItemRule: length: expected an integer, got 0.5"),
        (lambda: hr.ItemRule("t", 1, priority=MINUS), "priority: expected a finite number >= 0, got -1.0"),
        (lambda: hr.View("a", every=ZERO), "every: expected an integer >= 1, got 0"),
        (lambda: hr.View("a", shift=HALF), "shift: expected an int, .*, got 0.5"),
        (lambda: hr.View("a", shift=[FOUR, HALF]), r"shift: expected integers, got 0.5 in \[4, 0.5\]"),
        (lambda: hr.views.transition(ZERO), "n_step: expected an integer >= 1, got 0"),
        (lambda: hr.NStepRule("t", 2, MINUS), "gamma: expected a number from 0 to 1, got -1.0"),
        (lambda: hr.trajectories.n_step(np.ones(3), np.ones(3), ZERO, 0.9), "n: expected .* >= 1, got 0"),
        (lambda: hr.trajectories.n_step(np.ones(3), np.ones(3), 2, MINUS), "gamma: .*, got -1.0"),
        (lambda: hr.ArraySpec((FOUR, np.int64(-1)), np.float32), r"shape: .*, got \(4, -1\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        call()


class Breaks(gym.Env):
    """Breaks at its first step."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        raise OSError("broken")


def test_notes_of_environments():
    with hr.Collector(Breaks, frames_per_batch=8, seed=0) as collector:
        with pytest.raises(OSError, match="broken") as raised:
            next(iter(collector))
    (note,) = [each for each in raised.value.__notes__ if "action" in each]
    assert note[-1].isdigit()
    assert "np." not in note


def test_what_is_shown():
    values = {"a": (np.float32(0.5), [np.bool_(True)]), "b": "4"}
    assert shown(values) == "{'a': (0.5, [True]), 'b': '4'}"
    assert shown(np.array([4])) == "array([4])"
