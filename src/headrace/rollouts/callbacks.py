"""Callbacks of a rollout worker."""

# Rules: views-rollouts C1

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.checks import shown


class Callbacks:
    """Base class of callbacks, all without effect. A rollout worker also takes any object with some of these methods.

    All are called with keywords.

    >>> class CountEpisodes(Callbacks):
    ...     episodes = 0
    ...
    ...     def on_episode_end(self, *, worker, episode, env_index):
    ...         self.episodes += 1
    """

    def on_episode_start(self, *, worker: Any, episode: Any, env_index: int) -> None:
        """Called after the reset that began an episode.

        Args:
            worker: the `RolloutWorker`.
            episode: has `episode_id`, `length`, `total_reward`, `agent_rewards`, `user_data`.
            env_index: 0 to num_envs - 1.
        """

    def on_episode_step(self, *, worker: Any, episode: Any, env_index: int) -> None:
        """Called after each step of an environment."""

    def on_episode_end(self, *, worker: Any, episode: Any, env_index: int) -> None:
        """Called at the end of an episode, after its postprocessing and before the next reset."""

    def on_postprocess_trajectory(
        self,
        *,
        worker: Any,
        episode: Any,
        agent_id: Any,
        policy_id: str,
        policies: dict[str, Any],
        postprocessed_batch: Any,
        original_batches: dict[Any, Any],
    ) -> None:
        """Called for the rows of one agent, episode and fragment, after the policy's postprocessing.

        Args:
            worker: the `RolloutWorker`.
            episode: of the rows.
            agent_id: of the rows.
            policy_id: of the policy that acted.
            policies: all policies by id.
            postprocessed_batch: the `SampleBatch`; columns that are added here are in the result.
            original_batches: agent id to the rows before postprocessing, of all agents of this piece.
        """

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        """Called once for each call of `sample`, with the batch that it returns.

        Where Ctrl-C ends it, the next call of `sample` has the same batch.
        """


class Calls:
    """Calls those methods of a user's callbacks that have an effect.

    Args:
        callbacks: an object, a class, which is then instantiated, or None.
        worker: passed to each call.

    Raises:
        TypeError: an object that has none of the methods.

    Attributes:
        start, step, end, postprocess, sample_end: the methods; None for one that does nothing.
        follow_episodes: whether one of them is given episodes.
    """

    def __init__(self, callbacks: Any, worker: Any) -> None:
        self._target = callbacks() if isinstance(callbacks, type) else callbacks
        names = [name for name in vars(Callbacks) if name.startswith("on_")]
        if callbacks is not None and not any(hasattr(self._target, name) for name in names):
            raise TypeError(
                f"callbacks: expected an object or a class with some of the methods {', '.join(names)}, got "
                f"{shown(callbacks)}"
            )
        self._worker = worker
        self.start = self._method("on_episode_start")
        self.step = self._method("on_episode_step")
        self.end = self._method("on_episode_end")
        self.postprocess = self._method("on_postprocess_trajectory")
        self.sample_end = self._method("on_sample_end")
        self.follow_episodes = any((self.start, self.step, self.end, self.postprocess))

    def _method(self, name: str) -> Callable[..., None] | None:
        method = getattr(self._target, name, None)
        if method is None or getattr(method, "__func__", None) is getattr(Callbacks, name):
            return None
        worker = self._worker
        return lambda **arguments: method(worker=worker, **arguments)
