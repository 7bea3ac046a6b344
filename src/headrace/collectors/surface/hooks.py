"""Hooks that run before and after each rollout, where it is collected."""

# Rules: collectors CH1

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.collectors.loop.hooks import PostHook, PreHook


class Hooks(ABC):
    """The properties `pre_collect_hook` and `post_collect_hook` of a collector."""

    _pre_collect_hook: PreHook | None = None
    _post_collect_hook: PostHook | None = None

    @abstractmethod
    def _use_hooks(self) -> None:
        """Makes the loops take over the present hooks at their next rollouts."""

    @property
    def pre_collect_hook(self) -> PreHook | None:
        """A callable without arguments, called before each rollout in the process that collects; None: none.

        It may be set at any time. A worker has a copy, which travels by cloudpickle, and takes it over at its next
        rollout; what the hook changes in a worker stays there. An exception in it is one of the collection.

        Raises:
            TypeError: it is set to something that cannot be called.
        """
        return self._pre_collect_hook

    @pre_collect_hook.setter
    def pre_collect_hook(self, hook: PreHook | None) -> None:
        self._pre_collect_hook = _checked("pre_collect_hook", hook)
        self._use_hooks()

    @property
    def post_collect_hook(self) -> PostHook | None:
        """A callable on a batch, called after each rollout in the process that collects; None: none.

        It is called with the raw batch `[n, T, ...]` of one worker, before `split_trajs` and `postproc`, also when a
        replay is filled. The arrays cannot be written to. See also `pre_collect_hook`.

        Raises:
            TypeError: it is set to something that cannot be called.
        """
        return self._post_collect_hook

    @post_collect_hook.setter
    def post_collect_hook(self, hook: PostHook | None) -> None:
        self._post_collect_hook = _checked("post_collect_hook", hook)
        self._use_hooks()

    def set_post_collect_hook(self, fn: PostHook | None) -> None:
        """Sets `post_collect_hook`."""
        self.post_collect_hook = fn


def _checked(name: str, hook: Any) -> Any:
    if hook is not None and not callable(hook):
        raise TypeError(f"{name}: expected a callable or None, got {type(hook).__name__}")
    return hook
