"""Failures of environments, policies, workers and learners; nothing is left behind."""

import concurrent.futures
import gc
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors import multi_collector
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


class OwnError(Exception):
    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")
        self.left = left


class Failing(CounterEnv):
    """Fails at one of its steps."""

    def __init__(self, at, how="raise", length=1000):
        super().__init__(length)
        self.at, self.how, self.steps = at, how, 0

    def step(self, action):
        self.steps += 1
        if self.steps == self.at:
            if self.how == "raise":
                raise ZeroDivisionError("by intent")
            if self.how == "own":
                raise OwnError("a", "b")
            if self.how == "exit":
                os._exit(7)
            if self.how == "hang":
                os.write(2, b"hangs\n")
                time.sleep(1000)
        return super().step(action)


def descriptors():
    return set(os.listdir("/proc/self/fd"))


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def is_gone(pid, within=15.0):
    """Whether a process that is no child of ours ends in time."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(autouse=True)
def nothing_is_left(named_memory):
    gc.collect()
    memory, before, others = named_memory(), descriptors(), children()
    yield
    gc.collect()
    assert named_memory() <= memory
    assert len(descriptors()) <= len(before)
    assert not [pid for pid in children() - others if not is_gone(pid)]


# ---- inline --------------------------------------------------------------------------------------------------------


def test_inline_it_is_raised_as_it_is_and_collection_goes_on():
    # CX1: with a note; the rollout is dropped and counted, the next request resets all copies under new ids.
    with hr.Collector(lambda: Failing(13), frames_per_batch=10, num_envs=2) as collector:
        first, second = collector.next(), collector.next()
        with pytest.raises(ZeroDivisionError) as raised:
            collector.next()
        assert "environment 0" in raised.value.__notes__[0]
        assert "step" in raised.value.__notes__[0]
        assert collector.statistics().frames_discarded == 4
        with pytest.raises(ZeroDivisionError):  # The other copy.
            collector.next()
        third = collector.next()
    assert second["t"][:, -1].tolist() == [9, 9]
    assert third["t"][:, 0].tolist() == [0, 0]
    assert set(np.unique(third["episode_id"])).isdisjoint(np.unique(first["episode_id"]))
    assert collector.statistics().frames == 30


def test_inline_a_policy_that_fails():
    calls = []

    def policy(observation):
        calls.append(1)
        if len(calls) in (1, 8):
            raise OwnError(1, 2)
        return np.zeros(len(observation), int)

    with hr.Collector(lambda: CounterEnv(4), policy, frames_per_batch=5) as collector:
        for discarded in (0, 1):
            with pytest.raises(OwnError) as raised:  # noqa: PT012 - the last call raises
                for _ in range(3):
                    collector.next()
            assert "policy" in raised.value.__notes__[0]
            assert collector.statistics().frames_discarded == discarded
        assert collector.next()["t"].tolist() == [[0, 1, 2, 3, 0]]


def test_inline_a_failure_with_a_replay(make_replay):
    # The replay has the rows that were handed out, none that were dropped, and the last observation before the failure.
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=100, max_times_sampled=1)
    replay = make_replay(SIGNATURE, table)
    with hr.Collector(
        lambda: Failing(8),
        frames_per_batch=5,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    ) as collector:
        collector.next()
        with pytest.raises(ZeroDivisionError):
            collector.next()
        assert len(replay.table("t")) == 4
        collector.next()
    data = replay.sample("t", 9, views=hr.views.transition(), timeout=0).data
    assert data["observation"][:, 1:].tolist() == [[0, n] for n in range(5)] + [[1, n] for n in range(4)]
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])


# ---- constructors --------------------------------------------------------------------------------------------------


def broken():
    raise OwnError("x", "y")


@pytest.mark.parametrize(
    "arguments",
    [
        {"create_env_fn": broken},
        {"create_env_fn": lambda: CounterEnv(3), "policy_factory": broken},
        {"create_env_fn": lambda: CounterEnv(3), "policy": lambda observation: broken()},
    ],
)
def test_building_fails_in_the_worker(arguments):
    # CX4: its own type (here one that cannot be rebuilt from its text), the remote traceback; no process is left.
    with pytest.raises((OwnError, RuntimeError), match="x and y") as raised:
        hr.AsyncCollector(frames_per_batch=5, **arguments)
    assert "in broken" in "".join(raised.value.__notes__)


def test_building_raises_its_own_type():
    def make():
        raise KeyError("gone")

    for _ in range(5):
        with pytest.raises(KeyError, match="gone") as raised:
            hr.AsyncCollector(make, frames_per_batch=5)
        assert "in make" in "".join(raised.value.__notes__)


def test_building_that_exits_does_not_end_the_learner():
    # CX4: SystemExit of its own type would end the learner's program without a word.
    def make():
        sys.exit(4)

    with pytest.raises(hr.WorkerDied, match="worker 0 .* SystemExit: 4") as raised:
        hr.AsyncCollector(make, frames_per_batch=5)
    assert isinstance(raised.value.__cause__, SystemExit)


def test_building_takes_too_long():
    def make():
        time.sleep(1000)

    begin = time.monotonic()
    with pytest.raises(hr.DeadlineExceeded, match="worker 0"):
        hr.AsyncCollector(make, frames_per_batch=5, start_timeout=0.5)
    assert time.monotonic() - begin < 20


def test_a_worker_that_dies_while_it_builds():
    def make():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(hr.WorkerDied, match="SIGKILL") as raised:
        hr.AsyncCollector(make, frames_per_batch=5)
    assert raised.value.exitcode == -9
    assert raised.value.worker_idx == 0


def test_threads_of_an_environment_do_not_keep_a_worker(capfd):
    # CQ7: a thread that is no daemon keeps an interpreter from ending.
    class Threaded(CounterEnv):
        def __init__(self):
            super().__init__(4)
            self.pool = concurrent.futures.ThreadPoolExecutor(
                1, "of-a-pool"
            )  # The interpreter ends these itself.
            self.pool.submit(int)
            threading.Thread(target=threading.Event().wait, name="of-the-simulator").start()

    with hr.AsyncCollector(Threaded, frames_per_batch=5) as collector:
        collector.next()
        begin = time.monotonic()
    assert time.monotonic() - begin < 7
    told = capfd.readouterr().err
    assert "of-the-simulator" in told
    assert "of-a-pool" not in told


# ---- while collecting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "exitcode"), [("raise", 1), ("own", 1), ("exit", 7)])
def test_complete_rollouts_come_first(how, exitcode, caplog):
    # CX2.
    collector = hr.AsyncCollector(lambda: Failing(13, how), frames_per_batch=5, restart_workers=False)
    batches = []
    with pytest.raises(hr.WorkerDied) as raised:  # noqa: PT012 - the last call raises
        while True:
            batches.append(collector.next(timeout=40))
    assert [batch["t"][0, 0] for batch in batches] == [0, 5]
    died = raised.value
    assert (died.worker_idx, died.exitcode) == (0, exitcode)
    assert "worker 0" in str(died)
    assert "ago" in str(died)
    if how == "raise":
        assert type(died.__cause__) is ZeroDivisionError
        assert "in step" in "".join(died.__cause__.__notes__)
        assert "ZeroDivisionError: by intent" in str(died)
    elif how == "own":
        assert "a and b" in str(died.__cause__)
    for call in (collector.next, collector.update_policy_weights_, lambda: collector.set_seed(1)):
        with pytest.raises(hr.WorkerDied):
            call()
    statistics = collector.statistics()
    assert statistics.workers_alive == 0
    assert (
        statistics.workers[0].last_error in str(died)
        if died.__cause__
        else "exit" in statistics.workers[0].last_error
    )
    assert statistics.failure.startswith("WorkerDied: worker 0 ")  # CF8
    assert "worker 0" in caplog.text  # CF8: at once.
    collector.shutdown()  # It was told already.
    with pytest.raises(hr.Closed):
        collector.next()


def test_an_environment_that_grows_without_end():
    # CX2: at the limit of the worker's memory its error reaches the caller, and the worker is gone.
    class Growing(CounterEnv):
        def step(self, action):
            if self.step_count == 2:
                limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 2**28
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                self.kept = []
                while True:
                    self.kept.append(np.empty(2**24, np.uint8))
            return super().step(action)

    with hr.AsyncCollector(lambda: Growing(9), frames_per_batch=2, restart_workers=False) as collector:
        assert collector.next(timeout=40)["t"].tolist() == [[0, 1]]
        with pytest.raises(hr.WorkerDied) as raised:
            collector.next(timeout=40)
        assert isinstance(raised.value.__cause__, MemoryError)
        assert is_gone(collector.statistics().workers[0].pid)


def test_a_failure_that_nobody_heard_of_is_told_by_shutdown():
    # CQ7.
    for raises in (True, False):
        collector = hr.AsyncCollector(lambda: Failing(8), frames_per_batch=5, restart_workers=False)
        collector._group.collection.begin(running=False)
        status = collector._group.status
        with status.changed:
            assert status.changed.wait_for(lambda status=status: status.workers[0].has_died, 40)
        if raises:
            with pytest.raises(hr.WorkerDied):
                collector.shutdown()
        else:
            collector.shutdown(raise_on_error=False)
        # A complete rollout, and two steps of the next one.
        assert collector.statistics().frames_discarded == 7
        collector.shutdown()


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.011, 0.029, 0.053])
@pytest.mark.parametrize("mode", ["iterated", "free", "both"])
def test_kill_at_any_moment(make_replay, mode, delay):
    # CX2, CX6, CF8: noticed, where a call would wait for 40 s; no half-written row; the replay goes on, also with
    # another collector.
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=400)
    replay = make_replay(SIGNATURE, table, capacity=4000)
    rules = [hr.ItemRule("t", 1, lookahead=1)]
    options = {"frames_per_batch": 30, "num_envs": 3, "restart_workers": False}
    if mode != "iterated":
        options |= {"replay_buffer": replay, "items": rules}
    collector = hr.AsyncCollector(lambda: CounterEnv(5), **options)
    if mode == "free":
        collector.start()
        replay.sample("t", 1, timeout=40)
    else:
        collector.next(timeout=40)
    threading.Event().wait(delay)  # Any moment will do; each is another one.
    os.kill(collector.worker_pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(hr.WorkerDied, match="SIGKILL") as raised:  # noqa: PT012 - the last call raises
        if mode == "free":
            wait_for_rows(replay)
        else:
            while True:
                batch = collector.next(timeout=40)
                assert batch.shape == (3, 10)
                np.testing.assert_array_equal(batch["next_observation"], batch["observation"] + [0, 0, 1])
    assert time.monotonic() - killed < 15
    assert raised.value.exitcode == -9
    collector.shutdown(raise_on_error=False)
    if mode == "iterated":
        return
    replay.table("t").configure(rate_limiter=hr.rate_limiters.MinSize(1))
    if len(replay.table("t")):
        data = replay.sample("t", 500, views=hr.views.transition(), timeout=0).data
        np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
        np.testing.assert_array_equal(data["reward"], 4 * data["observation"][:, 2] + data["action"])
    with hr.AsyncCollector(
        lambda: CounterEnv(5), replay_buffer=replay, items=rules, frames_per_batch=30
    ) as other:
        other.start()
        inserts = replay.table("t").statistics().inserts
        status = other._group.status
        with status.changed:
            assert status.changed.wait_for(lambda: replay.table("t").statistics().inserts > inserts + 50, 40)
    replay.reset("t")
    assert replay.statistics().store.pages == 0


def wait_for_rows(replay):
    """A sample that only more rows could serve."""
    replay.table("t").configure(rate_limiter=hr.rate_limiters.SampleToInsertRatio(0.001, 1, 5.0))
    while True:
        replay.sample("t", 1, timeout=40)


def test_a_hung_environment_is_killed_in_time(capfd):
    # CQ7: asked, terminated, killed; then WorkerDied. Without a timeout of its own that takes 10 s.
    collector = hr.AsyncCollector(lambda: Failing(8, "hang"), frames_per_batch=5)
    collector.next(timeout=40)
    wait_until_it_hangs(capfd)
    begin = time.monotonic()
    with pytest.raises(hr.WorkerDied, match="in time"):
        collector.shutdown(timeout=1.0)
    assert time.monotonic() - begin < 8
    assert is_gone(collector.worker_pid)


def wait_until_it_hangs(capfd):
    errors = ""
    while "hangs" not in errors:
        errors += capfd.readouterr().err


def test_leaving_by_ctrl_c_waits_two_seconds_for_the_worker(capfd, caplog):
    # CX7: for a step that takes longer leaving does not wait; the exception stays the user's.
    with pytest.raises(KeyboardInterrupt, match="mine"):  # noqa: PT012 - the context is what is tested
        with hr.AsyncCollector(lambda: Failing(8, "hang"), frames_per_batch=5) as collector:
            collector.next(timeout=40)
            wait_until_it_hangs(capfd)
            begin = time.monotonic()
            raise KeyboardInterrupt("mine")
    assert time.monotonic() - begin < 8  # As shutdown it would take 10 s.
    assert is_gone(collector.worker_pid)
    assert "in time" in caplog.text


def test_leaving_by_ctrl_c_lets_a_worker_end_in_order(caplog, monkeypatch):
    # CX7: where no step takes long, nothing is killed. On a busy machine the end of a process may take two seconds.
    monkeypatch.setattr(multi_collector, "_INTERRUPTED_SECONDS", 40.0)
    with (  # noqa: PT012 - left by the last line
        pytest.raises(KeyboardInterrupt),
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5) as collector,
    ):
        collector.next(timeout=40)
        caplog.clear()  # The start of a worker may take long enough for a word about it.
        raise KeyboardInterrupt
    assert collector._group.handles[0].process.exitcode == 0
    assert caplog.text == ""


@pytest.mark.parametrize("leave", ["shutdown", "with"])
def test_ctrl_c_while_leaving_kills_at_once(capfd, leave):
    # CX7, CQ7: and everything is released.
    collector = hr.AsyncCollector(lambda: Failing(8, "hang"), frames_per_batch=5)
    collector.next(timeout=40)
    wait_until_it_hangs(capfd)
    process, waits = collector._group.handles[0].process, threading.Event()
    wait = process.wait
    process.wait = lambda timeout: waits.set() or wait(100)

    def press():
        assert waits.wait(40)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    begin = time.monotonic()
    if leave == "shutdown":
        with pytest.raises(KeyboardInterrupt):
            collector.shutdown(timeout=100)
    else:
        with pytest.raises(KeyboardInterrupt), collector:
            raise KeyboardInterrupt
    presser.join()
    assert time.monotonic() - begin < 20
    assert process.exitcode == -signal.SIGKILL
    assert process.channel.fileno() == -1
    assert not collector._finalizer.alive
    with pytest.raises(hr.Closed):
        collector.next()


def test_shutdown_ends_a_wait_in_another_thread():
    collector = hr.AsyncCollector(lambda: Failing(3, "hang"), frames_per_batch=5)
    raised = []

    def wait():
        try:
            collector.next()
        except hr.Closed as closed:
            raised.append(closed)

    thread = threading.Thread(target=wait)
    thread.start()
    collector.shutdown(timeout=0.5, raise_on_error=False)
    thread.join(40)
    assert len(raised) == 1


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("with_replay", [False, True])
def test_many_threads_at_the_end(make_replay, threads, with_replay):
    # CB10: each batch goes to one thread, and then every thread is told of the end. CB5: ids in order of hand-out.
    replay = make_replay(SIGNATURE) if with_replay else None
    handed_out, ends = [], []
    with hr.AsyncCollector(
        lambda: CounterEnv(3), frames_per_batch=4, total_frames=40, replay_buffer=replay
    ) as collector:

        def take():
            while (batch := collector.next(timeout=40)) is not None:
                handed_out.append(batch)
            ends.append(True)

        workers = [threading.Thread(target=take) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert collector.next() is None
    assert len(ends) == threads
    assert len(handed_out) == 10
    rows = [row for batch in handed_out for row in zip(batch["episode_id"][0], batch["t"][0], strict=True)]
    assert sorted(rows) == [divmod(frame, 3) for frame in range(40)]


def test_a_batch_that_waits_for_a_rate_limiter(make_replay):
    # CV7, CB10: the wait names the table; when its limiter opens the batch comes.
    table = hr.Table.queue("q", 5)
    replay = make_replay(SIGNATURE, table)
    with hr.AsyncCollector(
        lambda: CounterEnv(3), frames_per_batch=10, replay_buffer=replay, items=[hr.ItemRule("q", 1)]
    ) as collector:
        for _ in range(2):  # The worker runs ahead by two.
            assert collector.next(timeout=40).frames == 10
        told = r"a batch of worker 0 .* 15 for table 'q' \(size 5, inserts 5, samples 0, .*\)\. Sample from"
        with pytest.raises(hr.DeadlineExceeded, match=told):
            collector.next(timeout=0.2)
        for _ in range(3):
            replay.sample("q", 5, timeout=40)
        assert collector.next(timeout=40).frames == 10


def test_nothing_comes_in_time():
    # CB10: nothing is lost.
    gate_read, gate_write = os.pipe()
    os.set_inheritable(gate_read, True)
    path = f"/proc/{os.getpid()}/fd/{gate_read}"

    class Waiting(CounterEnv):
        def step(self, action):
            if self.step_count == 2:
                with open(path, "rb", buffering=0) as gate:
                    gate.read(1)
            return super().step(action)

    try:
        with hr.AsyncCollector(lambda: Waiting(9), frames_per_batch=5) as collector:
            with pytest.raises(hr.DeadlineExceeded, match="worker 0"):
                collector.next(timeout=0.2)
            os.write(gate_write, b"xxxx")
            assert collector.next(timeout=40)["t"].tolist() == [[0, 1, 2, 3, 4]]
    finally:
        os.close(gate_read)
        os.close(gate_write)


# ---- forgotten -----------------------------------------------------------------------------------------------------


def test_a_forgotten_collector(make_replay):
    # CX9.
    collector = hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5)
    collector.next(timeout=40)
    pid, gone = collector.worker_pid, weakref.ref(collector)
    with pytest.warns(ResourceWarning, match="not shut down"):  # noqa: PT031 - both make it garbage
        del collector
        gc.collect()
    assert gone() is None
    assert is_gone(pid)


def test_many_rounds_leave_nothing(make_replay):
    replay = make_replay(SIGNATURE)
    before = None
    for round_number in range(6):
        with hr.AsyncCollector(
            lambda: CounterEnv(3),
            hr.weights.FunctionalPolicy(lambda p, o: np.zeros(len(o), int), {"w": np.zeros(3)}),
            frames_per_batch=5,
            replay_buffer=None if round_number % 2 else replay,
        ) as collector:
            collector.update_policy_weights_({"w": np.ones(3)})
            collector.next(timeout=40)
        del collector
        gc.collect()
        before = before or len(descriptors())
        assert len(descriptors()) <= before


# ---- whole processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path):
    """Runs a user's script, without a main guard, whose classes and lambdas are its own."""
    started = []

    def run(body):
        file = tmp_path / "script.py"
        head = """
            import os, signal, sys, time
            import numpy as np
            import headrace as hr
            from headrace.testing import CounterEnv

            class Env(CounterEnv):
                hang = False
                def step(self, action):
                    # In one write: where output is not buffered, print writes the end of the line apart.
                    os.write(1, b"noise\\n")
                    if self.hang:
                        time.sleep(1000)
                    return super().step(action)

            scale = 2

            def policy(observation):
                return (observation[:, 2] * scale) % 4

            def start(**options):
                collector = hr.AsyncCollector(lambda: Env(3), policy, frames_per_batch=5, **options)
                os.write(1, b"pid %d\\n" % collector.worker_pid)
                return collector
        """
        file.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        environment = os.environ | {"PYTHONWARNINGS": "default"}
        process = subprocess.Popen(
            [sys.executable, str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=40)


def read_until(process, word):
    """The rest of the first line of its output that begins with a word."""
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    raise AssertionError(process.stderr.read())


def end_of(process, timeout=30):
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


def test_a_script_without_main_guard(script):
    # CD6, and an environment that prints.
    process = script(
        """
        with start(total_frames=20) as collector:
            print("steps", [batch["t"].tolist() for batch in collector][-1])
        """,
    )
    code, out, errors = end_of(process)
    assert code == 0, errors
    assert "steps [[0, 1, 2, 0, 1]]" in out
    assert "noise" in out
    # The start of a worker may take long enough for a word about it.
    assert not [line for line in errors.splitlines() if not line.startswith("still waiting")]


def test_an_interpreter_that_ends_without_shutdown(script):
    # CX9.
    process = script(
        """
        collector = start()
        collector.next()
        """,
    )
    pid = int(read_until(process, "pid"))
    code, _, errors = end_of(process)
    assert code == 0
    assert "ResourceWarning" in errors
    assert is_gone(pid)


@pytest.mark.parametrize("hang", [False, True])
def test_death_of_the_learner(script, hang):
    # CX8: also in the middle of a step that never ends.
    process = script(
        f"""
        collector = start()
        collector.next()
        Env.hang = {hang}
        more = start()
        print("ready", flush=True)
        time.sleep(1000)
        """,
    )
    pids = [int(read_until(process, "pid")), int(read_until(process, "pid"))]
    read_until(process, "ready")
    process.kill()
    assert all(is_gone(pid) for pid in pids)
    process.communicate(timeout=40)


@pytest.mark.parametrize("sync", [True, False])
def test_death_of_the_learner_of_several_workers(script, sync):
    # CX8: one collects, or waits for its turn, and the other one hangs.
    process = script(
        f"""
        class Late(Env):
            taken = 0
            def step(self, action):
                self.taken += 1
                self.hang = self.taken == 8
                return super().step(action)

        envs = [lambda: CounterEnv(3), lambda: Late(3)]
        collector = hr.MultiCollector(envs, policy, sync={sync}, frames_per_batch=10)
        collector.next()
        os.write(1, b"pids %d %d\\n" % tuple(worker.pid for worker in collector.statistics().workers))
        while True:
            collector.next()
        """,
    )
    pids = [int(pid) for pid in read_until(process, "pids").split()]
    process.kill()
    assert all(is_gone(pid) for pid in pids)
    process.communicate(timeout=40)


def test_death_of_a_learner_whose_child_lives_on(script):
    # CX8: a forked child has inherited the learner's end of the connection.
    process = script(
        """
        collector = start()
        if os.fork() == 0:
            sys.stdout.close(), os.close(1), os.close(2)
            time.sleep(20)
            os._exit(0)
        print("ready", flush=True)
        time.sleep(1000)
        """,
    )
    pid = int(read_until(process, "pid"))
    read_until(process, "ready")
    process.kill()
    assert is_gone(pid)
    process.communicate(timeout=40)


def test_ctrl_c(script):
    # CX7: as from a terminal, to the whole group.
    process = script(
        """
        Env.hang = True
        try:
            with start() as collector:
                try:
                    print("waiting", flush=True)
                    collector.next()
                except KeyboardInterrupt:
                    print("interrupted", time.monotonic(), flush=True)
                    collector.shutdown(timeout=0.5, raise_on_error=False)
                    raise
        except KeyboardInterrupt:
            print("left", flush=True)
        """,
    )
    pid = int(read_until(process, "pid"))
    read_until(process, "waiting")
    time.sleep(0.2)  # It says so just before it waits.
    pressed = time.monotonic()
    os.kill(pid, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert float(read_until(process, "interrupted")) - pressed < 15
    code, out, errors = end_of(process)
    assert code == 0, errors
    assert "left" in out
    assert "Traceback" not in errors
    assert is_gone(pid)


def test_cx1_a_stop_iteration_of_an_environment_ends_no_loop():
    class Stops(CounterEnv):
        def step(self, action):
            if self.total == 7:
                raise StopIteration("no more scenes")
            self.total += 1
            return super().step(action)

        total = 0

    with hr.Collector(lambda: Stops(3), frames_per_batch=5, total_frames=20) as collector:
        with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
            list(collector)
        assert str(raised.value.__cause__) == "no more scenes"
        assert collector.statistics().batches == 1
        # As it is, where nothing takes it for an end.
        with pytest.raises(StopIteration, match="no more scenes"):
            collector.next()


class SlowToClose(CounterEnv):
    """Raises in its third step; closing it lasts until the test lets it go on."""

    def __init__(self, path):
        super().__init__(7)
        self.path, self.steps = path, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            raise ZeroDivisionError("by intent")
        return super().step(action)

    def close(self):
        with open(self.path) as gate:
            gate.read()


def test_cx2_a_reported_exception_is_raised_before_the_process_has_ended(tmp_path, caplog):
    # The end of a process may last, where it closes environments or has large libraries.
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    with hr.AsyncCollector(lambda: SlowToClose(path), frames_per_batch=2, restart_workers=False) as collector:
        process = collector._group.handles[0].process
        assert collector.next(timeout=40).frames == 2
        with pytest.raises(hr.WorkerDied, match="ZeroDivisionError: by intent") as raised:
            collector.next(timeout=40)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert (raised.value.exitcode, process.exitcode) == (1, None)
        assert not collector.statistics().workers[0].alive
        open(path, "w").close()
        assert process.wait(40) == 1
        assert collector._group.handles[0].peer.has_ended.wait(40)
        collector._group._restarts.join()
    assert len([record for record in caplog.records if "collecting has ended" in record.message]) == 1
