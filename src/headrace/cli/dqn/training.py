"""A training run: a worker collects into the learner's replay, the learner samples and publishes weights."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headrace.cli.dqn import experience, saved_training
from headrace.cli.dqn.learner import Learner
from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.cli.dqn.problem import Problem, make
from headrace.cli.dqn.pytorch import torch
from headrace.cli.dqn.saved_training import SavedTraining
from headrace.cli.dqn.schedules import linear
from headrace.cli.dqn.settings import DqnSettings
from headrace.cli.episodes import EpisodeLog
from headrace.collectors import AsyncCollector, signature
from headrace.errors import DeadlineExceeded
from headrace.replay import Replay

# Episodes in the mean return that is reported, and compared with the goal.
MEAN_OVER = 20
# Seconds.
_REPORT_EVERY = 0.25
_SAMPLE_TIMEOUT = 0.5
# Reports over which frames per second are averaged: five seconds.
_RATE_OVER = 20


@dataclass(frozen=True)
class Progress:
    """Counts and means of a training so far.

    Attributes:
        frames, episodes, updates: their numbers.
        seconds: since the start of the worker.
        return_mean: of the last 20 episodes, played by the acting policy with its epsilon; None before 20 ended.
        frames_per_second: over the last five seconds.
        samples_per_insert, samples_per_insert_target: the mean number of samples of a transition, and its target.
        policy_lag: newest version of the weights minus the version that acted, mean of the last rollout.
        epsilon: share of random actions.
        loss: mean over the last 100 updates; None before the first.
    """

    frames: int
    episodes: int
    updates: int
    seconds: float
    return_mean: float | None
    frames_per_second: float
    samples_per_insert: float | None
    samples_per_insert_target: float
    policy_lag: float
    epsilon: float
    loss: float | None


def whole_rollouts(steps: int, longest: int) -> tuple[int, int]:
    """Returns the length of a rollout and the number of rollouts, which give at least 99 % of `steps` and no more.

    >>> whole_rollouts(12_500, 8), whole_rollouts(12, 8), whole_rollouts(13, 8)
    ((8, 1562), (6, 2), (1, 13))
    """
    length = next(length for length in range(longest, 0, -1) if steps % length <= steps // 100)
    return length, steps // length


class Training:
    """One training run. Leaving its context ends the worker process.

    Args:
        problem: the environment.
        settings: hyperparameters.
        steps: the most frames to collect; see `whole_rollouts`.
        num_envs: environments in the worker; at most `steps` are used.
        seed: seed of environments, networks and sampling. The learner and the worker run side by side, so two runs
            with one seed differ a little.
        goal: stop when the mean return of the last 20 episodes reaches it; None runs all steps.
        saved: a training with the same arguments to go on from, and the checkpoint of its replay; None begins anew.

    Attributes:
        log: the episodes so far.
        policy: the newest weights.
        problem, settings, goal: as given.
        arguments: `steps`, `num_envs` and `seed` as given.
    """

    def __init__(
        self,
        problem: Problem,
        settings: DqnSettings,
        *,
        steps: int,
        num_envs: int,
        seed: int,
        goal: float | None,
        saved: tuple[SavedTraining, Path] | None = None,
    ) -> None:
        self.problem, self.settings, self.goal = problem, settings, goal
        self.arguments = {"steps": steps, "num_envs": num_envs, "seed": seed}
        num_envs = min(num_envs, steps)
        rollout_steps, rollouts = whole_rollouts(steps // num_envs, settings.rollout_steps)
        frames_per_batch = rollout_steps * num_envs
        self._total_frames = rollouts * frames_per_batch
        torch.manual_seed(seed)
        observation = (
            (settings.frame_stack, *problem.observation) if problem.is_image else problem.observation
        )
        shape = NetworkShape(observation, problem.num_actions, settings.hidden_units)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._learner = Learner(shape, settings, device)
        self.policy = EpsilonGreedy(shape, problem.first_action, settings.epsilon_start)
        self.log = EpisodeLog()
        self._began: tuple[float, int] = (time.perf_counter(), 0)
        self._seconds_before = 0.0
        self._reports: deque[tuple[float, int]] = deque(maxlen=_RATE_OVER)
        self._losses: deque[float] = deque(maxlen=100)
        self._views = experience.training_views(problem, settings)
        env_kwargs = {"env_id": problem.env_id}
        if saved is not None:
            self._restore(saved[0])
        self._take_weights()
        if saved is None:
            self._replay = experience.make_replay(
                signature(make, create_env_kwargs=env_kwargs), settings, frames_per_batch, seed
            )
        else:
            self._replay = Replay.load(saved[1])
        self._collector = self._make_collector(env_kwargs, frames_per_batch, num_envs, seed)
        if saved is not None:
            self._restore_collector(saved[0])

    def _restore(self, saved: SavedTraining) -> None:
        self._learner.load_state_dict(saved.learner)
        self.log.load_state_dict(saved.log)
        self._losses.extend(saved.losses)
        self._seconds_before = saved.seconds

    def _restore_collector(self, saved: SavedTraining) -> None:
        try:
            self._collector.load_state_dict(saved.collector)
        except BaseException:
            self._collector.shutdown(raise_on_error=False)
            self._replay.close()
            raise

    def _make_collector(
        self, env_kwargs: dict[str, Any], frames_per_batch: int, num_envs: int, seed: int
    ) -> AsyncCollector:
        try:
            return AsyncCollector(
                make,
                self.policy,
                create_env_kwargs=env_kwargs,
                frames_per_batch=frames_per_batch,
                total_frames=self._total_frames,
                num_envs=num_envs,
                replay_buffer=self._replay,
                items=experience.item_rules(self.settings),
                seed=seed,
                # An environment that raises now and again would otherwise be started again for ever, and train on.
                restart_workers=False,
            )
        except BaseException:
            self._replay.close()
            raise

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        # The worker needs a core of its own; small networks are quicker on one thread anyway.
        torch.set_num_threads(max(1, self._threads - 1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.set_num_threads(self._threads)
        try:
            # The error of the block says more than the errors that it caused.
            self._collector.shutdown(raise_on_error=error is None)
        finally:
            self._replay.close()

    def run(self, report: Callable[[Progress], None]) -> Progress:
        """Trains until the goal or the last step is reached, and reports four times a second.

        Returns:
            The last report, over the whole run.

        Raises:
            WorkerDied: the worker died and could not be started again.
        """
        if not self._has_all_frames():
            self._collector.start()
        self._began = (time.perf_counter(), self.log.frames)
        self._reports.append(self._began)
        while not self._is_goal_reached() and self._learn_once():
            if time.perf_counter() - self._reports[-1][0] >= _REPORT_EVERY:
                experience.drain_rewards(self._replay, self.log)
                self._reports.append((time.perf_counter(), self.log.frames))
                report(self._progress(self._reports[0]))
        self._take_weights()
        return self.progress()

    def save(self, folder: Path) -> None:
        """Writes everything that `saved` needs to go on from this instant. The worker waits meanwhile.

        Raises:
            RuntimeError: the worker has not begun, or ends at this moment.
            DeadlineExceeded, WorkerDied: see `AsyncCollector.pause`.
            OSError: it could not be written; an earlier state in the folder stays.
        """
        # A worker that has collected all frames stands still anyway, while the learner goes on.
        with nullcontext() if self._has_all_frames() else self._collector.pause():
            collector = self._collector.state_dict()
            experience.drain_rewards(self._replay, self.log)
            state = SavedTraining(
                env_id=self.problem.env_id,
                goal=self.goal,
                settings=self.settings,
                seconds=self._seconds(),
                learner=self._learner.state_dict(),
                log=self.log.state_dict(),
                losses=list(self._losses),
                collector=collector,
                **self.arguments,
            )
            saved_training.save(folder, state, self._replay)

    def progress(self) -> Progress:
        """Returns the present counts, with the frames per second of the whole run."""
        experience.drain_rewards(self._replay, self.log)
        return self._progress(self._began)

    def _has_all_frames(self) -> bool:
        return self._collector.statistics().frames >= self._total_frames

    def _is_goal_reached(self) -> bool:
        mean = self.log.mean_return(MEAN_OVER)
        return self.goal is not None and mean is not None and mean >= self.goal

    def _learn_once(self) -> bool:
        """Makes one update, if the replay gives a batch; returns False when the worker has ended."""
        settings = self.settings
        try:
            batch = self._replay.sample(
                experience.TRANSITIONS, settings.batch_size, views=self._views, timeout=_SAMPLE_TIMEOUT
            )
        except DeadlineExceeded:
            return self._collector.statistics().running
        done = self.log.frames / self._total_frames
        update = self._learner.update(
            batch,
            beta=linear(done, settings.importance_exponent, 1.0, 1.0),
            learning_rate=linear(done, settings.learning_rate, settings.learning_rate / 10, 1.0),
        )
        self._replay.update_priorities(experience.TRANSITIONS, batch.info.keys, update.priorities)
        self._losses.append(update.loss)
        if self._learner.updates % settings.publish_every == 0:
            experience.drain_rewards(self._replay, self.log)
            self._take_weights()
            self._collector.update_policy_weights_(self.policy)
        return True

    def _take_weights(self) -> None:
        """Copies the learner's weights and the present epsilon to the policy."""
        self.policy.network.load_state_dict(self._learner.weights())
        self.policy.epsilon.fill_(self._epsilon())

    def _epsilon(self) -> float:
        settings = self.settings
        learnt = self.log.frames - settings.learning_starts
        return linear(learnt, settings.epsilon_start, settings.epsilon_end, settings.epsilon_frames)

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began[0]

    def _progress(self, since: tuple[float, int]) -> Progress:
        now = time.perf_counter()
        losses = self._losses
        return Progress(
            frames=self.log.frames,
            episodes=len(self.log.ended),
            updates=self._learner.updates,
            seconds=self._seconds(),
            return_mean=self.log.mean_return(MEAN_OVER),
            frames_per_second=(self.log.frames - since[1]) / max(now - since[0], 1e-9),
            samples_per_insert=experience.samples_per_insert(self._replay),
            samples_per_insert_target=self.settings.samples_per_insert,
            policy_lag=self._collector.statistics().lag_mean,
            epsilon=self._epsilon(),
            loss=sum(losses) / len(losses) if losses else None,
        )
