"""A process that is forked from a collector's may not use it, and leaves its worker alone (collectors CX8, CX9)."""

import gc
import os
import subprocess
import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, in_forked_child

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


def refusal(call):
    """The text of the error that a call raises, which must be one of a forked child."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_every_use_in_a_child_is_refused(kind):
    policy = hr.weights.FunctionalPolicy(lambda params, seen: np.zeros(len(seen), int), {"w": np.zeros(2)})
    with kind(lambda: CounterEnv(3), policy, frames_per_batch=5) as collector:
        collector.update_policy_weights_({"w": np.ones(2)})
        first = collector.next(timeout=40)
        uses = [
            lambda: collector.next(timeout=1),
            lambda: next(collector),
            lambda: list(collector),
            lambda: collector.update_policy_weights_({"w": np.zeros(2)}),
            lambda: collector.set_seed(1),
            collector.statistics,
            lambda: collector.policy_version,
        ]
        if kind is hr.AsyncCollector:
            uses += [collector.start, lambda: collector.pause().__enter__()]
        told = in_forked_child(lambda: [refusal(use) for use in uses])
        for text in told:
            assert text.startswith(f"this collector belongs to process {os.getpid()}; process ")
            assert "Make a collector in the process that uses it" in text
        second = collector.next(timeout=40)
        assert (first["t"].tolist(), second["t"].tolist()) == ([[0, 1, 2, 0, 1]], [[2, 0, 1, 2, 0]])
        assert collector.statistics().frames == 10


@pytest.mark.parametrize("close_env", [True, False])
def test_inline_a_child_that_leaves_closes_no_environment(close_env):
    env = CounterEnv(3)
    with hr.Collector(env, frames_per_batch=5) as collector:
        collector.next()

        def leave():
            collector.shutdown(close_env=close_env)
            with collector:
                pass
            return env.closed

        assert in_forked_child(leave) == 0
        assert collector.next().frames == 5
    assert env.closed == 1


def leave_in_every_way(collector):
    """In a child: what ends a collector in its own process."""
    socket = collector._group.handles[0].process.channel.fileno()
    collector.shutdown()
    collector.async_shutdown()
    with collector:
        pass
    del collector
    gc.collect()
    return socket


@pytest.mark.parametrize("way", ["iterated", "free", "paused"])
def test_what_a_child_does_at_its_end_leaves_the_worker_alone(make_replay, way):
    replay = None if way == "iterated" else make_replay(SIGNATURE)
    with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5, replay_buffer=replay) as collector:
        if way == "iterated":
            # The child has no part in the connection: it holds no descriptor of it.
            assert in_forked_child(lambda: leave_in_every_way(collector)) == -1
            assert [collector.next(timeout=40).frames for _ in range(8)] == [5] * 8
            return
        collector.start()
        if way == "free":
            assert in_forked_child(lambda: leave_in_every_way(collector)) == -1
        else:
            pause = collector.pause()
            pause.__enter__()
            # A child that is forked within the block leaves it too.
            assert in_forked_child(lambda: pause.__exit__(None, None, None)) is False
            assert collector.statistics().paused
            frames = collector.statistics().frames
            assert in_forked_child(lambda: leave_in_every_way(collector)) == -1
            assert collector.statistics().frames == frames
            pause.__exit__(None, None, None)
        replay.sample("t", len(replay.table("t")) + 30, timeout=40)
        assert collector.statistics().workers_alive == 1


def test_a_child_that_exits_as_a_script_does():
    # Finalizers and exit handlers run in the child; nothing is said of a collector that was not shut down there.
    script = """
import os, sys
import headrace as hr
from headrace.testing import CounterEnv

with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5) as collector:
    collector.next(timeout=40)
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print([collector.next(timeout=40).frames for _ in range(8)])
forgotten = hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5)
child = os.fork()
if child == 0:
    sys.exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
print([forgotten.next(timeout=40).frames for _ in range(8)])
forgotten.shutdown()
"""
    environment = os.environ | {"PYTHONWARNINGS": "default::ResourceWarning"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    # The start of a worker may take long enough for a word about it.
    assert not [line for line in done.stderr.splitlines() if not line.startswith("still waiting")]
    assert done.stdout.splitlines() == [str([5] * 8)] * 2


def test_a_worker_that_stops_though_nobody_asked_is_dead():
    # CX2: whatever told it to stop, `next` does not wait for it.
    from headrace.collectors.messages import Stop

    with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5, restart_workers=False) as collector:
        collector.next(timeout=40)
        collector._group.handles[0].process.channel.send(Stop(close_env=True))
        with pytest.raises(hr.WorkerDied, match="exit code 0"):  # noqa: PT012 - the last call raises
            while True:
                collector.next(timeout=40)


# ---- weights -------------------------------------------------------------------------------------------------------


def test_publishing_in_a_child_is_refused_and_reading_is_not():
    # CW7: two publishers would mix their sets.
    with hr.weights.SharedMemory({"w": np.zeros(3)}) as scheme:
        scheme.publish({"w": np.ones(3)})
        receiver = scheme.receiver()

        def use():
            told = [refusal(lambda: scheme.publish({"w": np.ones(3)})), refusal(lambda: scheme.version)]
            own = scheme.receiver()
            read = [(each.version, each.read()[0], each.read()[1]["w"].sum()) for each in (receiver, own)]
            scheme.close()
            return told, read

        told, read = in_forked_child(use)
        for text in told:
            assert text.startswith(f"this publishing end belongs to process {os.getpid()}; process ")
            assert "Publish there" in text
        assert read == [(1, 1, 3.0)] * 2
        assert scheme.publish({"w": np.full(3, 2.0)}) == 2
        assert receiver.read()[0] == 2
        receiver.close()


def test_a_child_whose_parent_was_publishing_in_another_thread():
    # CW7: locks that another thread held at the fork stay held in the child.
    from headrace.weights import fence

    with hr.weights.SharedMemory({"w": np.ones(3)}) as scheme:
        receiver = scheme.receiver()
        held, release = threading.Event(), threading.Event()

        def hold():
            with scheme._lock, fence._FENCE:
                held.set()
                assert release.wait(40)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(40)
        try:

            def use():
                total = float(receiver.read()[1]["w"].sum())
                scheme.receiver().close()
                scheme.close()
                return total

            assert in_forked_child(use, timeout=10) == 3.0
        finally:
            release.set()
            thread.join()
        receiver.close()
