"""The part that all collectors share: iteration, hooks, free running, state, `with`."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.handing_out import Postproc
from headrace.collectors.loop.hooks import CollectHooks, PostHook, PreHook
from headrace.collectors.surface.control import ControlSurface
from headrace.collectors.surface.profiling import ProfilingSurface
from headrace.collectors.surface.weights import WeightSurface
from headrace.ends import Autoreset


class CollectorBase(ControlSurface, ProfilingSurface, WeightSurface):
    """An iterator of batches that is used in a `with` block.

    Attributes:
        _hooks: the hooks that were set last.
    """

    _hooks: CollectHooks

    # ---- batches ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            batch = self.next()
        except StopIteration as error:  # Else it would end the loop over batches without a word.
            raise RuntimeError(
                "the environment, the policy, a hook or postproc raised StopIteration"
            ) from error
        if batch is None:
            raise StopIteration
        return batch

    @abstractmethod
    def next(self, timeout: float | None = None) -> Batch | None:
        """Returns the next batch; None at the end."""

    def __len__(self) -> int:
        # Rules: collectors CB10
        total = self._options.total_frames
        if total < 0:
            raise TypeError("this collector has no end: total_frames is -1")
        if reason := self._uncounted():
            raise TypeError(f"the number of batches is not known before the end: {reason}")
        return (total + self._layout.batch_frames - 1) // self._layout.batch_frames

    def _uncounted(self) -> str:
        """Returns why the number of transitions of a batch is not known before it is collected; empty: it is known."""
        if self._layout.autoreset == Autoreset.NEXT_STEP:
            return "with autoreset NEXT_STEP a reset takes a step, which does not count towards total_frames"
        if not self._options.reset_when_done:
            return "with reset_when_done=False environments wait, which does not count towards total_frames"
        if self._layout.lanes_may_wait:
            return "agents that have ended wait for the others, which does not count towards total_frames"
        return ""

    def __bool__(self) -> bool:
        return True

    @property
    def postproc(self) -> Postproc | None:
        """The function that is called on each batch; None: none."""
        return self._options.postproc

    @property
    def postprocs(self) -> Postproc | None:
        """A deprecated name of `postproc`."""
        warnings.warn("postprocs is deprecated; use postproc", DeprecationWarning, stacklevel=2)
        return self.postproc

    # ---- hooks -----------------------------------------------------------------------------------------------------

    # Rules: collectors CH1

    def _use_hooks(self, pre: PreHook | None, post: PostHook | None) -> None:
        """Takes over these hooks; workers do so at their next rollouts."""
        self._hooks.pre, self._hooks.post = pre, post

    @property
    def pre_collect_hook(self) -> PreHook | None:
        """A callable without arguments, called before each rollout in the process that collects; None: none.

        It may be set at any time. A worker has a copy, which travels by cloudpickle, and takes it over at its next
        rollout; what the hook changes in a worker stays there. An exception in it is one of the collection.

        Raises:
            TypeError: it is set to something that cannot be called, or sent to a worker; the hook before it stays.
        """
        return self._hooks.pre

    @pre_collect_hook.setter
    def pre_collect_hook(self, hook: PreHook | None) -> None:
        self._use_hooks(_checked("pre_collect_hook", hook), self._hooks.post)

    @property
    def post_collect_hook(self) -> PostHook | None:
        """A callable on a batch, called after each rollout in the process that collects; None: none.

        It is called with the raw batch `[n, T, ...]` of one worker, before `split_trajs` and `postproc`, also when a
        replay is filled. The arrays cannot be written to. See also `pre_collect_hook`.

        Raises:
            TypeError: it is set to something that cannot be called.
        """
        return self._hooks.post

    @post_collect_hook.setter
    def post_collect_hook(self, hook: PostHook | None) -> None:
        self._use_hooks(self._hooks.pre, _checked("post_collect_hook", hook))

    def set_post_collect_hook(self, fn: PostHook | None) -> None:
        """Sets `post_collect_hook`."""
        self.post_collect_hook = fn

    # ---- free running ----------------------------------------------------------------------------------------------

    # Rules: collectors CF4 to CF8

    @abstractmethod
    def start(self) -> None:
        """Begins to fill the replay freely, until `total_frames` or `shutdown`, and returns.

        A full replay stops the collection until the learner makes room. A failure is logged at once, ends waits to
        sample the replay, and is raised by the next call of another method.

        Raises:
            RuntimeError: without `replay_buffer`, when started already, or after iteration has begun.
            WorkerDied: a worker is gone.
            Closed: after `shutdown`.
        """

    @abstractmethod
    def pause(self) -> AbstractContextManager[None]:
        """Stops between two steps for the time of a `with` block. Meanwhile all collected steps are in the replay.

        Where rollouts go into the replay as a whole (with `postproc`, and for several agents with `set_truncated`), it
        stops at the end of a rollout.

        Raises:
            RuntimeError: not running, or paused already.
            DeadlineExceeded: a step did not end within 30 s; the collection goes on.
            WorkerDied: a worker is gone.
            Closed: after `shutdown`.
        """

    def async_shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Stops between two steps, writes all collected steps into the replay, and shuts down as `shutdown` does.

        Where rollouts go into the replay as a whole (see `pause`), `Collector` stops at the end of its rollout, and
        workers drop theirs.

        Args:
            timeout, close_env: see `shutdown`.
        """
        self.shutdown(timeout, close_env)

    # ---- state -----------------------------------------------------------------------------------------------------

    # Rules: collectors CQ3

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next batch depends on: dicts, lists, numbers, strings and arrays.

        The weights of the policy are part of it, as are counters, numbers of episodes, generators, the present
        observations, what the policy remembers, complete batches that were not handed out, and the steps of the
        rollout under way: both this collector and one that loads the state go on with it. The state of an
        environment is part of it if its unwrapped object has `state_dict()` and `load_state_dict(state)`. A wrapper
        with a state of its own needs both methods too, but for gymnasium's `TimeLimit`. The rows of a replay are not
        part of it: save the replay beside it. A `Collector` that runs freely, or collects a batch in another thread,
        stops between two steps for it, or at the end of a rollout that goes into the replay as a whole (see `pause`).

        Raises:
            Closed: after `shutdown`.
            DeadlineExceeded: a step, or such a rollout, takes longer than 30 s.
            RuntimeError: called by the policy or an environment, in the middle of a step; or `next(timeout)` has left a
                rollout that goes into the replay as a whole.

        >>> import headrace as hr
        >>> from headrace.testing import CounterEnv
        >>> with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4) as collector:
        ...     before = collector.next()
        ...     state = collector.state_dict()
        ...     after = collector.next()
        >>> with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4) as another:
        ...     another.load_state_dict(state)
        ...     again = another.next()
        >>> before["t"], after["t"], (again["action"] == after["action"]).all()
        (array([[0, 1, 2, 3]]), array([[4, 0, 1, 2]]), np.True_)
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of a collector with the same arguments.

        If the state holds that of all environments, the next batches are those that would have followed, bit for bit.
        Otherwise all environments are reset, and trajectories start anew under ids that were not used. Batches that
        this collector has collected and not handed out are dropped.

        Args:
            state: as `state_dict` returned it.

        Raises:
            ValueError: of another number of environments or workers, or not a state of a collector; or a part of it is
                damaged, or refused by an environment. The message has the path of the part. Nothing was changed.
            SpecError: weights that do not fit the policy. Nothing was changed.
            RuntimeError: after `start()`; or called by the policy or an environment.
            Closed: after `shutdown`.
        """

    # ---- the end ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """Ends the collection and releases everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(self._exit_seconds(kind), raise_on_error=kind is None)

    def _exit_seconds(self, kind: type[BaseException] | None) -> float | None:  # noqa: ARG002 - for subclasses
        """Returns the time limit of the shutdown when a `with` block is left by an exception of this kind."""
        return None


def _checked(name: str, hook: Any) -> Any:
    if hook is not None and not callable(hook):
        raise TypeError(f"{name}: expected a callable or None, got {type(hook).__name__}")
    return hook
