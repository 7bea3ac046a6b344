"""Threads of workers and of the learner (collectors CD4, CD5), and factories of policies for each worker (CP2)."""

import os
import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.batches.copy_threads import CopyThreads
from headrace.collectors.multi.threads import TorchThreads, default_threads
from headrace.collectors.worker.main import give_way
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

VARIABLES = [
    f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
]  # fmt: skip
MANY = 10 << 20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")


# ---- workers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"num_sub_threads": 3}])
def test_threads_of_libraries_in_a_worker(options):
    # CD4: set before NumPy is imported there, and so before anything of the user's.
    def policy(observation):
        numbers = [int(os.environ[name]) for name in VARIABLES]
        return observation[:, 2] % 4, {"threads": np.array([numbers] * len(observation))}

    with hr.AsyncCollector(lambda: CounterEnv(5), policy, frames_per_batch=3, **options) as collector:
        batch = collector.next(timeout=30)
    assert (batch["threads"] == options.get("num_sub_threads", 1)).all()
    assert not any(os.environ.get(name) == "3" for name in VARIABLES)


def test_torchs_threads_in_a_worker():
    # CD4. torch itself takes at most the cores.
    def policy(observation):
        import torch

        return observation[:, 2] % 4, {"threads": np.full(len(observation), torch.get_num_threads())}

    pytest.importorskip("torch")
    with hr.AsyncCollector(lambda: CounterEnv(5), policy, frames_per_batch=3) as collector:
        assert (collector.next(timeout=30)["threads"] == 1).all()


@pytest.mark.parametrize("name", ["num_threads", "num_sub_threads"])
@pytest.mark.parametrize(
    ("error", "value"), [(ValueError, 0), (TypeError, 1.5), (TypeError, True), (TypeError, "2")]
)
def test_numbers_of_threads_are_checked_first(name, error, value, monkeypatch):
    # CR13.
    def never(*_):
        raise AssertionError("a process was started")

    monkeypatch.setattr("headrace.collectors.multi.starting.WorkerProcess", never)
    with pytest.raises(error, match=name):
        hr.AsyncCollector(lambda: CounterEnv(5), frames_per_batch=3, **{name: value})


def test_num_sub_threads_may_not_be_none():
    with pytest.raises(TypeError, match="num_sub_threads"):
        hr.AsyncCollector(lambda: CounterEnv(5), frames_per_batch=3, num_sub_threads=None)


# ---- copies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize("nbytes", [0, 3 << 20, MANY])
def test_parts_are_all_rows_once(num_threads, count, nbytes):
    threads, rows, callers = CopyThreads(num_threads), [], set()

    def copy(first, stop):
        rows.extend(range(first, stop))
        callers.add(threading.current_thread())

    threads.share(count, nbytes, copy)
    assert sorted(rows) == list(range(count))
    assert len(callers) <= min(num_threads, count, max(1, nbytes >> 20))
    threads.close()
    assert not any("headrace-copy" in thread.name for thread in threading.enumerate())


def test_parts_are_copied_at_once():
    # Each part waits for the other: one thread alone would not get past the barrier.
    threads, barrier = CopyThreads(2), threading.Barrier(2, timeout=40)
    threads.share(2, MANY, lambda first, stop: barrier.wait())
    threads.close()


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_a_part_is_raised_when_all_are_done(failing):
    threads, done = CopyThreads(2), []

    def copy(first, stop):
        if first == failing:
            raise KeyError("part")
        done.append(first)

    with pytest.raises(KeyError, match="part"):
        threads.share(2, MANY, copy)
    assert done == [1 - failing]
    threads.close()


@pytest.mark.parametrize("sync", [True, False])
def test_batches_copied_by_several_threads(sync, monkeypatch):
    # CD5: the same rows, whatever the number of threads; episodes end inside each part.
    monkeypatch.setattr("headrace.collectors.batches.copy_threads._LEAST_SHARE", 1)

    def batches(num_threads):
        with hr.MultiCollector(
            lambda: CounterEnv([3, 5]), lambda seen: seen[:, 2] % 4, sync=sync, num_workers=1 + sync,
            num_envs=4, frames_per_batch=88, num_threads=num_threads, seed=1,
        ) as collector:  # fmt: skip
            assert collector._options.copy_threads == num_threads
            return [collector.next(timeout=30).numpy() for _ in range(3)]

    for one, several in zip(batches(1), batches(3), strict=True):
        assert one.keys() == several.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], several[name], err_msg=name)
    assert not any("headrace-copy" in thread.name for thread in threading.enumerate())


def test_the_number_of_threads_by_default():
    # CD5: W, at most the cores.
    cores = len(os.sched_getaffinity(0))
    assert [default_threads(1), default_threads(2), default_threads(10_000)] == [1, min(2, cores), cores]


def test_torchs_threads_change_only_when_asked():
    # CD5.
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    create = {"create_env_fn": lambda: CounterEnv(5), "frames_per_batch": 3}
    with hr.AsyncCollector(**create):
        assert torch.get_num_threads() == before
    collector = hr.AsyncCollector(**create, num_threads=before + 2)
    assert torch.get_num_threads() == before + 2
    collector.shutdown()
    assert torch.get_num_threads() == before


def test_torchs_threads_after_a_constructor_that_fails():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()

    def fail():
        raise KeyError("no environment")

    with pytest.raises(KeyError, match="no environment"):
        hr.AsyncCollector(fail, frames_per_batch=3, num_threads=before + 2)
    assert torch.get_num_threads() == before


def test_without_torch_there_is_nothing_to_change(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    TorchThreads(3).close()


# ---- factories of policies -----------------------------------------------------------------------------------------


def test_a_factory_for_each_worker():
    # CP2.
    def factory(number):
        return lambda: lambda seen: (seen[:, 2] % 4, {"number": np.full(len(seen), number)})

    with hr.MultiCollector(
        lambda: CounterEnv(5),
        policy_factory=[factory(7), factory(8)],
        sync=True,
        num_workers=2,
        frames_per_batch=8,
    ) as collector:
        batch = collector.next(timeout=30)
    np.testing.assert_array_equal(batch["number"], [[7] * 4, [8] * 4])
    with hr.Collector(lambda: CounterEnv(5), policy_factory=[factory(9)], frames_per_batch=4) as collector:
        assert (collector.next()["number"] == 9).all()


@pytest.mark.parametrize(
    ("error", "given", "told"),
    [
        (ValueError, [int] * 3, "expected one callable, or a list of 2, one for each worker, got 3"),
        (ValueError, [], "expected one callable, or a list of 2, one for each worker, got 0"),
        (TypeError, [int, 3], "expected a callable, got int"),
        (TypeError, [int, None], "expected a callable, got NoneType"),
        (TypeError, "factory", "expected a callable, got str"),
    ],
)
def test_factories_that_do_not_fit(error, given, told):
    with pytest.raises(error, match=f"policy_factory: {told}"):
        hr.MultiCollector(
            lambda: CounterEnv(5), policy_factory=given, sync=True, num_workers=2, frames_per_batch=8
        )


def test_a_policy_device_for_each_worker():
    # CD3.
    torch = pytest.importorskip("torch")

    def policy(seen):
        is_tensor = isinstance(seen, torch.Tensor)
        return np.zeros(len(seen), int), {"is_tensor": np.full(len(seen), is_tensor)}

    with hr.MultiCollector(
        lambda: CounterEnv(5),
        policy,
        sync=True,
        num_workers=2,
        frames_per_batch=8,
        policy_device=["cpu", "meta"],
    ) as collector:
        batch = collector.next(timeout=30)
    np.testing.assert_array_equal(batch["is_tensor"], [[False] * 4, [True] * 4])


# ---- turns of the scheduler ----------------------------------------------------------------------------------------


def test_workers_leave_the_collectors_process_its_turn():
    # Part 16: a worker that preempted the thread that tells all workers to begin would keep the others waiting.
    own = os.sched_getscheduler(0)
    with hr.MultiCollector(lambda: CounterEnv(5), sync=True, num_workers=2, frames_per_batch=6) as collector:
        collector.next(timeout=30)
        workers = [os.sched_getscheduler(worker.pid) for worker in collector.statistics().workers]
    assert workers == [os.SCHED_BATCH] * 2
    assert os.sched_getscheduler(0) == own


@on_linux
@pytest.mark.parametrize("policy", ["SCHED_IDLE", "SCHED_FIFO"])
def test_a_worker_keeps_a_policy_that_the_user_has_chosen(policy, monkeypatch):
    def never(*_):
        raise AssertionError("the policy was changed")

    monkeypatch.setattr(os, "sched_getscheduler", lambda _: getattr(os, policy))
    monkeypatch.setattr(os, "sched_setscheduler", never)
    give_way()


@on_linux
def test_a_worker_runs_where_the_system_refuses_the_policy(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    give_way()
