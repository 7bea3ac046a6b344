"""Environments of every kind in several workers (collectors CE1, CE2, CE7, CB1)."""

import sys
from functools import partial

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_vector_env
from headrace.testing.agents import CounterAgents
from headrace.testing.dm_envs import DmCounterEnv
from headrace.testing.envpools import CounterEnvPool

cloudpickle.register_pickle_by_value(sys.modules[__name__])

FIRST, SECOND = 10, 20


def agents(first):
    return CounterAgents([2, 3], first_copy=first)


def pool(first):
    made = CounterEnvPool([2, 3])
    for lane, counter in enumerate(made.counters):
        counter._copy = first + lane
    return made


def vector(first):
    made = counter_vector_env([2, 3], "same_step")
    for lane, counter in enumerate(made.envs):
        counter._copy = first + lane
    return made


@pytest.mark.parametrize("create", [agents, pool, vector])
def test_rows_of_workers_stand_in_order(create):
    """CB1, CE7: row order is worker-major, then by copy, then by agent."""
    with hr.MultiCollector(
        [partial(create, FIRST), partial(create, SECOND)], sync=True, frames_per_batch=16
    ) as collector:
        batch = collector.next(timeout=60)
    assert batch.shape == (4, 4)
    assert batch["observation"][:, 0, 0].tolist() == [FIRST, FIRST + 1, SECOND, SECOND + 1]
    mask = batch["mask"]
    np.testing.assert_array_equal(batch["observation"][mask][:, 2], batch["t"][mask])
    np.testing.assert_array_equal(
        batch["next_observation"][mask], np.add(batch["observation"][mask], [0, 0, 1])
    )


@pytest.mark.parametrize("kind", [CounterEnv, DmCounterEnv])
def test_one_callable_for_all_workers(kind):
    """CE1, CE2: one callable with num_workers; it is called once for each copy of each worker."""
    with hr.MultiCollector(
        kind,
        sync=True,
        num_workers=2,
        num_envs=2,
        create_env_kwargs={"episode_length": 3},
        frames_per_batch=16,
    ) as collector:
        batch = collector.next(timeout=60)
    assert batch.shape == (4, 4)
    np.testing.assert_array_equal(batch["observation"][..., 2], np.arange(4) % 3 + np.zeros((4, 1), int))


def test_nothing_is_built_to_look_at_it(tmp_path):
    """CE1: exactly once per copy, in the process that steps it."""
    import os

    def create(folder):
        number = len(os.listdir(folder))
        (folder / f"{os.getpid()}-{number}").touch()
        return CounterEnv(3)

    with hr.MultiCollector(
        create,
        sync=True,
        num_workers=2,
        num_envs=3,
        create_env_kwargs={"folder": tmp_path},
        frames_per_batch=12,
    ) as collector:
        collector.next(timeout=60)
    processes = [name.split("-")[0] for name in os.listdir(tmp_path)]
    assert sorted(processes.count(each) for each in set(processes)) == [3, 3]
    assert str(os.getpid()) not in processes


@pytest.mark.parametrize(
    "ready", [lambda: CounterAgents([1]), lambda: DmCounterEnv(1), lambda: CounterEnvPool([1])]
)
def test_ready_environments_stay_in_their_process(ready):
    """CE1: TypeError for collectors with workers; ValueError for arguments of a callable."""
    with pytest.raises(TypeError, match="got a ready"):
        hr.MultiCollector([ready()], sync=True, frames_per_batch=4)
    with pytest.raises(TypeError, match="got a ready"):
        hr.AsyncCollector(ready(), frames_per_batch=4)
    with pytest.raises(ValueError, match="create_env_kwargs: expected none with a ready environment"):
        hr.Collector(ready(), create_env_kwargs={"episode_length": 3}, frames_per_batch=4)
