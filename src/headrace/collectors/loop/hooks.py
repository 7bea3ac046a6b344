"""The user's calls before and after each rollout, in the process that collects."""

# Rules: collectors CH1

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch, map_batch

PreHook = Callable[[], Any]
PostHook = Callable[[Batch], Any]


class CollectHooks:
    """The hooks of one collecting loop.

    Attributes:
        pre: called before each rollout; None: none.
        post: called after each rollout with its batch `[n, T, ...]`; None: none.
        rollouts: number of rollouts that `post` could see so far.
    """

    def __init__(self) -> None:
        self.pre: PreHook | None = None
        self.post: PostHook | None = None
        self.rollouts = 0

    def before(self) -> None:
        """Calls the hook before a rollout.

        Raises:
            Exception: raised by it, with a note.
        """
        if self.pre is not None:
            self._call("pre_collect_hook", self.pre)

    def after(self, batch: Batch) -> None:
        """Calls the hook after a rollout, with its batch; the arrays that it sees cannot be written to.

        Raises:
            Exception: raised by it, with a note.
        """
        if self.post is not None:
            self._call("post_collect_hook", self.post, map_batch(_read_only, batch))
        self.rollouts += 1

    def _call(self, name: str, hook: Callable[..., Any], *args: Batch) -> None:
        try:
            hook(*args)
        except Exception as error:
            error.add_note(f"raised by {name} at rollout {self.rollouts} of this collector")
            raise


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
