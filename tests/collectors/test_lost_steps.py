"""Every transition of a worker is handed out, is in the replay, or counts as discarded (collectors CX3, CT)."""

import os
import signal
import struct
import sys
from mmap import mmap

import cloudpickle
import pytest

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
WAIT = 40.0


class Noting(CounterEnv):
    """Counts its steps in a file. At one of them, once in all, it fails, or says that it waits to be killed."""

    def __init__(self, folder, at=None, how="", fails_in="step"):
        super().__init__(7)
        self.folder, self.at, self.how, self.fails_in = folder, at, how, fails_in
        self.steps = 0
        path = folder / str(os.getpid())
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self.memory = mmap(file.fileno(), 8)

    def step(self, action):
        if self.fails_in == "step":
            self.fail()
        outcome = super().step(action)
        self.steps += 1
        self.memory[:] = struct.pack("q", self.steps)
        return outcome

    def reset(self, **options):
        if self.fails_in == "reset" and self.steps:
            self.fail()
        return super().reset(**options)

    def fail(self):
        if self.at is None or self.steps < self.at or (self.folder / "failed").exists():
            return
        (self.folder / "failed").touch()
        if self.how == "raise":
            raise ZeroDivisionError("by intent")
        if self.how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)


def steps_in(folder):
    """The number of steps that the environments of all processes have taken."""
    return sum(struct.unpack("q", path.read_bytes())[0] for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
@pytest.mark.parametrize("sync", [True, False])
def test_each_step_of_a_worker_that_ends_counts_once(tmp_path, sync, how):
    # CX3: unfinished rollouts are lost and counted, also those of which no report came.
    with hr.MultiCollector(
        lambda: Noting(tmp_path, 33, how), sync=sync, num_workers=1, frames_per_batch=10
    ) as collector:
        for _ in range(5):
            collector.next(timeout=WAIT)
        assert collector.statistics().restarts == 1
    statistics = collector.statistics()
    assert statistics.frames == 50
    assert statistics.frames + statistics.frames_discarded == steps_in(tmp_path)
    if sync:
        assert statistics.frames_discarded == 3


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
def test_a_step_counts_whose_reset_fails(tmp_path, how):
    # CX1, CX3: the step that ended the episode was recorded. Of a process that is killed in the reset, the vector step
    # under way is not.
    with hr.MultiCollector(
        lambda: Noting(tmp_path, 14, how, "reset"), sync=True, num_workers=1, frames_per_batch=10
    ) as collector:
        for _ in range(3):
            collector.next(timeout=WAIT)
    statistics = collector.statistics()
    unknown = how != "raise"
    assert (statistics.frames, statistics.frames_discarded) == (30, 4 - unknown)
    assert steps_in(tmp_path) == 34


def test_inline_a_step_counts_whose_reset_fails(tmp_path):
    # CX1
    with hr.Collector(lambda: Noting(tmp_path, 14, "raise", "reset"), frames_per_batch=10) as collector:
        collector.next()
        with pytest.raises(ZeroDivisionError):
            collector.next()
        assert collector.statistics().frames_discarded == 4


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_steps_of_a_death_count_before_the_error_is_raised(tmp_path, how):
    # CX2
    with hr.AsyncCollector(
        lambda: Noting(tmp_path, 13, how), frames_per_batch=10, restart_workers=False
    ) as collector:
        collector.next(timeout=WAIT)
        with pytest.raises(hr.WorkerDied):
            collector.next(timeout=WAIT)
        assert collector.statistics().frames_discarded == 3
    assert collector.statistics().frames_discarded == 3


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
def test_steps_that_fill_a_replay(tmp_path, make_replay, how):
    # CF8: rows that were written stay; the others count as discarded.
    fifo = hr.selectors.Fifo()
    replay = make_replay(SIGNATURE, hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000))
    with hr.AsyncCollector(
        lambda: Noting(tmp_path, 133, how),
        frames_per_batch=10,
        total_frames=600,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1)],
    ) as collector:
        collector.start()
        status = collector._group.status
        with status.changed:
            assert status.changed.wait_for(lambda: not status.is_running, WAIT)
    statistics = collector.statistics()
    assert statistics.restarts == 1
    assert statistics.frames + statistics.frames_discarded == steps_in(tmp_path)
    assert replay.table("t").statistics().inserts == statistics.frames >= 600


@pytest.mark.parametrize("postproc", [None, lambda batch: batch])
@pytest.mark.parametrize("sync", [True, False])
def test_steps_that_nobody_asked_for_count_at_the_end(tmp_path, sync, postproc):
    # CT: `shutdown` drops rollouts that are complete, and those under way.
    with hr.MultiCollector(
        lambda: Noting(tmp_path), sync=sync, num_workers=2, frames_per_batch=2000, postproc=postproc
    ) as collector:
        collector.next(timeout=WAIT)
    statistics = collector.statistics()
    assert statistics.frames + statistics.frames_discarded == steps_in(tmp_path)
