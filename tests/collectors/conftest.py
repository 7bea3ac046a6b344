"""Checks of batches of counters, for all tests of collectors."""

import sys

import cloudpickle
import numpy as np
import pytest
from interrupted_calls import interrupt_call
from step_watches import WatchClocks

import headrace as hr
import headrace.collectors.handle.handle as handle_module
from headrace.testing import counter_transitions

# A worker cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def by_copy(batches):
    """Valid rows of each copy, over all batches, in order: a list of dicts of arrays."""
    num_envs = batches[0].shape[0]
    names = [name for name in batches[0] if not isinstance(batches[0][name], dict | tuple)]
    return [
        {name: np.concatenate([b[name][i][b["mask"][i]] for b in batches]) for name in names}
        for i in range(num_envs)
    ]


def check_counters(batches, lengths, limit=None, action=None):
    """Every column of every batch against the closed form (collectors, part 15)."""
    for copy, (rows, length) in enumerate(zip(by_copy(batches), lengths, strict=True)):
        count = len(rows["reward"])
        if limit is None:
            known = counter_transitions(length, count)
            cut = np.zeros(count, bool)
        else:
            # A copy is cut, and reset, at `limit`: its episodes are those of an environment that is this short.
            short = [min(one, limit) for one in ([length] if isinstance(length, int) else length)]
            known = counter_transitions(short, count)
            cut = known["last"] & (known["step"] + 1 == limit)
        own = np.atleast_1d(length)[known["episode"] % np.size(length)]
        terminated = known["step"] + 1 == own
        seen = np.stack([np.full(count, copy), known["episode"], known["step"]], axis=1)
        np.testing.assert_array_equal(rows["observation"], seen)
        np.testing.assert_array_equal(rows["next_observation"], np.add(seen, [0, 0, 1]))
        np.testing.assert_array_equal(rows["reward"], 4 * known["step"] + rows["action"])
        np.testing.assert_array_equal(rows["terminated"], terminated)
        np.testing.assert_array_equal(rows["truncated"], cut)
        np.testing.assert_array_equal(rows["t"], known["step"])
        if action is not None:
            np.testing.assert_array_equal(rows["action"], action(seen))
        # One id an episode, rising within a copy (CB5).
        ids = rows["episode_id"]
        np.testing.assert_array_equal(np.diff(ids) > 0, np.diff(known["episode"]) > 0)
        np.testing.assert_array_equal(np.diff(ids) == 0, np.diff(known["episode"]) == 0)
    check_ids(batches)
    check_masked(batches)


def check_ids(batches):
    """Ids count the starts: in the order of steps, and of copies within a step (CB5)."""
    ids = np.concatenate([b["episode_id"] for b in batches], axis=1)
    _, first = np.unique(ids.T[ids.T >= 0], return_index=True)
    np.testing.assert_array_equal(ids.T[ids.T >= 0][np.sort(first)], np.arange(len(first)))


def check_masked(batches):
    """Masked rows hold zeros, and -1 as their id (CB6)."""
    for batch in batches:
        masked = ~batch["mask"]
        for name, column in batch.items():
            assert (column[masked] == (-1 if name == "episode_id" else 0)).all(), name


def act(observation):
    """A policy on what a counter shows, of any layout."""
    if isinstance(observation, dict):
        return (observation["count"][:, 1] + observation["copy"][:, 0]) % 4
    if isinstance(observation, tuple):
        return (observation[0][:, 1] + observation[1][:, 0]) % 4
    return (observation[:, 2] + observation[:, 0]) % 4


@pytest.fixture
def counters():
    return check_counters


@pytest.fixture
def rows_by_copy():
    return by_copy


@pytest.fixture
def policy():
    return act


@pytest.fixture
def take():
    def take(collector, count):
        return [collector.next(timeout=40) for _ in range(count)]

    return take


@pytest.fixture
def make_replay():
    """A replay with one table of the given kind; closed at the end."""
    made = []

    def make(signature, table=None, **options):
        table = table or hr.Table(
            "t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100_000
        )
        tables = table if isinstance(table, list) else [table]
        replay = hr.Replay(signature, tables, seed=0, **options)
        made.append(replay)
        return replay

    yield make
    while made:
        made.pop().close()


@pytest.fixture
def interrupt_at():
    return interrupt_call


@pytest.fixture
def watch_clocks(monkeypatch):
    """The clocks of the watches over the workers that a test starts; they move only when it says so."""
    clocks = WatchClocks()
    monkeypatch.setattr(handle_module, "StepWatch", clocks.watch)
    return clocks
