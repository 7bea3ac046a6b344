"""`python -m bench.soak_collectors`: kills workers at random moments, and checks every row.

Workers are killed (`SIGKILL`, some stopped first) while the learner iterates, starts a free-running collector,
publishes weights, asks, resets and pauses. Each environment writes the number of its steps into a file, so that lost
and doubled rows are found:

* No call takes longer than `CALL_SECONDS`.
* The rows of an environment are its steps 0, 1, 2, ... without a gap, each once.
* A kill loses at most the rollout under way. The end of a free-running collector loses nothing.
* No process, thread, descriptor or page of the replay is left.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import headrace as hr

CALL_SECONDS = 25.0
_WORKERS, _ENVS, _STEPS = 2, 2, 20
_LIFE, _COUNT = 0, 3
# Kills of one collector, and seconds after which a call hangs.
_KILLS, _SOAK_SECONDS = 8, 250

MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"sync": True},
    "asynchronous": {"sync": False},
    "preempted": {"sync": True, "preemptive_threshold": 0.5},
    "bounded": {"sync": False, "max_staleness": 1},
    "iterated with a replay": {"sync": False, "replay": True},
    "free": {"sync": False, "replay": True, "free": True},
}
"""The kinds of collectors that are killed in turn."""


class SoakEnv(gymnasium.Env[NDArray[np.int64], int]):
    """An environment whose observation is int64[4]: its own number, the episode, the step in it, and all steps so far.

    Args:
        folder: of the files in which environments count their steps.
        seed: of the lengths of episodes and of steps.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.observation_space = spaces.Box(-1, 2**62, (4,), np.int64)
        self.action_space = spaces.Discrete(4)
        self._life = int.from_bytes(os.urandom(6), "little")
        self._rng = np.random.default_rng([seed, self._life])
        path = Path(folder, str(self._life))
        path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self._file = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)
        self._episode, self._step, self._length = -1, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Returns the first observation of an episode of random length."""
        super().reset(seed=seed, options=options)
        self._episode, self._step = self._episode + 1, 0
        self._length = int(self._rng.integers(1, 40))
        return self._observation(), {}

    def step(self, action: int) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Takes a step, which sometimes takes a moment."""
        if self._rng.random() < 0.2:
            time.sleep(self._rng.exponential(0.001))
        self._step += 1
        self._file[0] += 1
        return self._observation(), float(self._step), self._step == self._length, False, {}

    def ask(self) -> int:
        """Returns the number of steps so far, for a question."""
        return int(self._file[0])

    def close(self) -> None:
        """Notes in the file that the environment was not killed."""
        self._file[1] = 1

    def _observation(self) -> NDArray[np.int64]:
        return np.array([self._life, self._episode, self._step, self._file[0]], np.int64)


def _act(params: Any, observation: NDArray[np.int64]) -> NDArray[np.int64]:
    return (observation[:, 2] + int(params["bias"][0])) % 4


@dataclass
class Soak:
    """Kills of the workers of one collector.

    Args:
        mode: key of `MODES`.
        seed: of the moments.
        kills: their number.
    """

    mode: str
    seed: int
    kills: int = _KILLS
    _rows: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _calls: dict[str, float] = field(default_factory=dict)
    _published: int = 0

    def run(self) -> dict[str, Any]:
        """Returns the counts: kills, restarts, frames, the longest seconds of each call.

        Raises:
            AssertionError: a row is lost or doubled, a call took too long, or something is left.
        """
        self._rng = np.random.default_rng(self.seed)
        before = _resources()
        with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
            self._folder = folder
            replay = self._make_replay() if MODES[self.mode].get("replay") else None
            self._collect(replay)
            if replay is not None:
                self._check_replay(replay)
            self._check_lives()
        after = _resources()
        assert all(now <= then for now, then in zip(after, before, strict=True)), (
            f"processes, threads and descriptors: {before} before, {after} after"
        )
        return {"mode": self.mode, "kills": self.kills, **self._found, "seconds": self._calls}

    def _make_replay(self) -> hr.Replay:
        fifo = hr.selectors.Fifo()
        table = hr.Table("t", sampler=fifo, remover=fifo, max_size=10_000_000, max_times_sampled=1)
        signature = hr.collectors.signature(self._make_env("signature"))
        return hr.Replay(signature, [table], seed=0)

    def _make_env(self, purpose: str) -> Callable[[], SoakEnv]:
        folder, seed = Path(self._folder, purpose), self.seed
        folder.mkdir()
        return lambda: SoakEnv(folder, seed)

    # ---- the learner -----------------------------------------------------------------------------------------------

    def _collect(self, replay: hr.Replay | None) -> None:
        options = {name: value for name, value in MODES[self.mode].items() if name not in ("replay", "free")}
        policy = hr.FunctionalPolicy(_act, {"bias": np.zeros(1000)})
        collector = hr.MultiCollector(
            self._make_env("collected"),
            policy,
            num_workers=_WORKERS,
            num_envs=_ENVS,
            frames_per_batch=_STEPS * _ENVS * (_WORKERS if options["sync"] else 1),
            max_restarts=1000,
            seed=self.seed,
            replay_buffer=replay,
            **options,
        )
        with collector:
            for kill in range(self.kills):
                with self._killing(collector):
                    self._use(collector, is_first=kill == 0)
            self._settle(collector)
        statistics = collector.statistics()
        self._found = {"restarts": statistics.restarts, "frames": statistics.frames}
        self._frames = statistics.frames

    @contextmanager
    def _killing(self, collector: hr.MultiCollector) -> Iterator[None]:
        """Kills a worker at a random moment within the block, or soon after it."""
        worker_idx = int(self._rng.integers(_WORKERS))
        delay, stopped = self._rng.exponential(0.01), self._rng.exponential(0.05) * (self._rng.random() < 0.3)

        def kill() -> None:
            time.sleep(delay)
            worker = collector.statistics().workers[worker_idx]
            if worker.alive:  # Else its number may be that of another process soon.
                with suppress(ProcessLookupError):  # The collector has ended it meanwhile.
                    if stopped:
                        os.kill(worker.pid, signal.SIGSTOP)
                        time.sleep(stopped)
                    os.kill(worker.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def _use(self, collector: hr.MultiCollector, *, is_first: bool) -> None:
        is_free = "free" in MODES[self.mode]
        if is_first and is_free:
            self._call("start", collector.start)
        calls = [
            "update",
            "question",
            "reset",
            "state",
            *(["pause", "pause"] if is_free else ["next", "next"]),
        ]
        for call in self._rng.permutation(calls):
            self._call(str(call), lambda call=call: getattr(self, f"_{call}")(collector))

    def _call(self, name: str, call: Callable[[], None]) -> None:
        begin = time.monotonic()
        call()
        seconds = time.monotonic() - begin
        assert seconds < CALL_SECONDS, f"{name} took {seconds:.1f} s"
        self._calls[name] = max(seconds, self._calls.get(name, 0.0))

    def _next(self, collector: hr.MultiCollector) -> None:
        batch = collector.next(timeout=CALL_SECONDS)
        assert batch is not None
        mask = batch["mask"]
        seen, following = batch["observation"], batch["next_observation"]
        np.testing.assert_array_equal((following - seen)[mask], [[0, 0, 1, 1]] * int(mask.sum()))
        assert not seen[~mask].any()
        for lane, valid in zip(seen, mask, strict=True):
            for life, _, _, count in lane[valid].tolist():
                self._rows[life].append(count)

    def _update(self, collector: hr.MultiCollector) -> None:
        self._published += 1
        collector.update_policy_weights_(weights={"bias": np.full(1000, float(self._published))})

    def _question(self, collector: hr.MultiCollector) -> None:
        with suppress(hr.WorkerDied):
            collector.map_fn("env.unwrapped.ask")

    def _reset(self, collector: hr.MultiCollector) -> None:
        collector.reset()

    def _state(self, collector: hr.MultiCollector) -> None:
        with suppress(hr.WorkerDied):
            collector.state_dict()

    def _pause(self, collector: hr.MultiCollector) -> None:
        with collector.pause():
            items = len(collector.replay_buffer.table("t"))
            time.sleep(self._rng.exponential(0.02))
            assert len(collector.replay_buffer.table("t")) == items

    def _settle(self, collector: hr.MultiCollector) -> None:
        """Waits for batches, or until every worker collects again."""
        if "free" not in MODES[self.mode]:
            for _ in range(3):
                self._call("next", lambda: self._next(collector))
            return
        end = time.monotonic() + CALL_SECONDS
        while not all(worker.alive and worker.last_step_age for worker in collector.statistics().workers):
            assert time.monotonic() < end, "a worker does not come back"
            time.sleep(0.01)

    # ---- the rows --------------------------------------------------------------------------------------------------

    def _check_replay(self, replay: hr.Replay) -> None:
        size = len(replay.table("t"))
        data = replay.sample("t", size, views=hr.views.transition(), timeout=0).data
        seen, following = data["observation"], data["next_observation"]
        np.testing.assert_array_equal(following - seen, [[0, 0, 1, 1]] * size)
        handed_out, self._rows = self._rows, defaultdict(list)
        for life, _, _, count in seen[np.argsort(seen[:, _COUNT], kind="stable")].tolist():
            self._rows[life].append(count)
        for life, counts in handed_out.items():
            assert counts == self._rows[life][: len(counts)], f"environment {life}: batches and replay differ"
        if "free" in MODES[self.mode]:
            assert size == self._frames, f"{size} items of {self._frames} frames"
        del data, seen, following
        replay.reset("t")
        assert replay.statistics().store.pages == 0, "pages are left"
        replay.close()

    def _check_lives(self) -> None:
        # A learner that iterates leaves up to two complete rollouts to the end, and one under way.
        at_end = 0 if "free" in MODES[self.mode] else 3 * _STEPS
        taken = {
            int(path.name): np.fromfile(path, np.int64).tolist()
            for path in Path(self._folder, "collected").iterdir()
        }
        assert self._rows.keys() <= taken.keys()
        for life, (steps, was_closed) in taken.items():
            rows = self._rows[life]
            assert rows == list(range(len(rows))), f"environment {life}: rows {rows[:5]} ... {rows[-5:]}"
            ahead = at_end if was_closed else _STEPS
            assert 0 <= steps - len(rows) <= ahead, f"environment {life}: {steps} steps, {len(rows)} rows"


def _resources() -> tuple[int, int, int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(children), threading.active_count(), len(os.listdir("/proc/self/fd"))


@click.command()
@click.option("--kills", default=100, show_default=True, help="Number of kills.")
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(list(MODES)),
    help="Kinds of collectors; all by default.",
)
def main(kills: int, seed: int, modes: tuple[str, ...]) -> None:
    """Kills workers at random moments, and checks every row."""
    modes = modes or tuple(MODES)
    for number in range(-(-kills // _KILLS)):
        soak = Soak(modes[number % len(modes)], seed + number)
        faulthandler.dump_traceback_later(_SOAK_SECONDS, exit=True)
        try:
            found = soak.run()
        except BaseException:
            click.echo(f"failed: --mode '{soak.mode}' --seed {soak.seed} --kills {_KILLS}")
            raise
        calls = ", ".join(f"{name} {seconds:.2f}" for name, seconds in sorted(found["seconds"].items()))
        click.echo(
            f"seed {soak.seed}, {found['mode']}: {found['kills']} kills, {found['restarts']} restarts, "
            f"{found['frames']} frames; longest calls in s: {calls}"
        )


if __name__ == "__main__":
    main()
