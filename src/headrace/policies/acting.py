"""Views that a policy sees while it acts in n environments."""

# Rules: views-rollouts P2, V8, V14, V15

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.arrays.history import History
from headrace.views.causality import acting_views
from headrace.views.columns import Columns
from headrace.views.promised import check_promised, column_of, promised_specs, unknown_views
from headrace.views.transition import TransitionView
from headrace.views.view import check_views

_NUMBER = ArraySpec((), np.int64)
# Known of each row before acting.
_NUMBERS = ("t", "policy_version")


def views_of(policy: Any, views: Mapping[str, View] | None = None) -> dict[str, View]:
    """Returns the given views and those of the policy, which take precedence.

    Args:
        policy: may have `views`, a dict.
        views: further views.

    Raises:
        TypeError: not a dict of views.

    >>> views_of(None, {"last_action": View("action", shift=-1)})
    {'last_action': View('action', shift=-1)}
    """
    own = getattr(policy, "views", None)
    for given in (views, own):
        if given is not None:
            check_views(given)
    return {**(views or {}), **(own or {})}


class ActingViews:
    """Presents the causal views of a policy before each step, from the rows that its environments went through.

    Args:
        views: maps names to views; those that are not fed to a policy are ignored.
        tree: specs of the columns of a step that are known before the policy acts, a tree for each name.
        observed: names of the columns that come with an observation.
        num_envs: n.

    Raises:
        SpecError: a view of an unknown column without `space`, or one that does not fit its column.
        ValueError: a view for acting that looks ahead, or of a column that is unknown when acting.

    >>> tree = {"observation": ArraySpec((), "int64"), "action": ArraySpec((), "int64")}
    >>> views = ActingViews({"last": View("action", shift=-1, fill=9)}, tree, {"observation"}, 2)
    >>> views.see({"observation": np.array([1, 2])}, version=0)
    >>> views.present()
    {'last': array([9, 9])}
    >>> views.follow({}, {"action": np.array([3, 4])}, 0, restarted=np.array([1]))
    >>> views.see({"observation": np.array([5, 6])}, version=0)
    >>> views.present()
    {'last': array([3, 9])}
    """

    def __init__(
        self, views: Mapping[str, View], tree: Mapping[str, Any], observed: Collection[str], num_envs: int
    ) -> None:
        # States and numbers are known before acting, although no final row has them.
        states = [name for name in tree if name.startswith("state_in_")]
        self._final = frozenset([*observed, *states, *_NUMBERS])
        self._views = acting_views(views, self._final)
        _check_acting(self._views)
        self._tree = {**tree, **dict.fromkeys(_NUMBERS, _NUMBER)}
        unknown = unknown_views(self._views, self._tree)
        check_promised(unknown, self._tree)
        self._num_envs = num_envs
        self._known_before = {*observed, *_NUMBERS}
        self._history = self._plan(promised_specs(unknown))
        self._has_seen = False

    def __bool__(self) -> bool:
        return bool(self._views)

    def learn(self, extras: Mapping[str, ArraySpec]) -> None:
        """Takes over the specs of the columns that the policy adds, after its first call.

        Raises:
            SpecError: a view of a column that the policy did not return, or with another space.
        """
        before, self._history = self._history, self._plan(extras)
        self._history.continue_from(before)

    def _plan(self, added: Mapping[str, Any]) -> History:
        columns = Columns(Signature({**self._tree, **added}), {}, self._final)
        history = History(columns, self._views, self._num_envs)
        self._acted = history.columns - self._known_before
        self._shows_numbers = not history.columns.isdisjoint(_NUMBERS)
        return history

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns that the views read."""
        return self._history.columns

    def see(
        self,
        columns: Mapping[str, NDArray[Any]],
        version: int,
        lanes: NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Writes what is known of the newest rows before acting; may be repeated.

        Args:
            columns: `[m, ...]`, observations and states.
            version: of the policy that acts.
            lanes: int64[m], environments that act while the others still step; None: all.
        """
        history = self._history
        history.write(columns, lanes)
        if self._shows_numbers:
            history.write({"t": history.t(lanes), "policy_version": version}, lanes)
        self._has_seen = True

    def present(self, lanes: NDArray[np.integer[Any]] | None = None) -> dict[str, Any]:
        """Returns the views of the newest rows of these environments (None: of all), `[m, ...]` or `[m, W, ...]`."""
        return self._history.present(lanes)

    def follow(
        self,
        row: Mapping[str, NDArray[Any]],
        values: Mapping[str, NDArray[Any]],
        version: int,
        restarted: NDArray[np.integer[Any]],
    ) -> None:
        """Completes the newest rows after a step, and goes on to the next rows.

        Args:
            row: the observations, `[n, ...]`; used if the policy was not asked.
            values: the other columns, `[n, ...]`; those that are missing are zeros.
            version: of the policy that acted.
            restarted: environments whose next observation is the first of an episode.
        """
        if not self._has_seen:
            self.see(row, version)
        self._history.write({name: values.get(name, 0) for name in self._acted})
        self._history.advance(restarted)
        self._has_seen = False

    def keep(self, values: Mapping[str, NDArray[Any]], lanes: NDArray[np.integer[Any]]) -> None:
        """Writes columns of the newest rows of some environments, which have acted or stepped; `finish` follows.

        Args:
            values: `[m, ...]`, some of the columns beside the observations.
            lanes: int64[m], environments that were seen.
        """
        self._history.write(values, lanes)

    def finish(self, lanes: NDArray[np.integer[Any]], restarted: NDArray[np.integer[Any]]) -> None:
        """Goes on to the next rows of some environments, whose newest rows are complete.

        Args:
            lanes: int64[m].
            restarted: those of them whose next observation is the first of an episode.
        """
        self._history.advance(restarted, lanes)

    def state_dict(self) -> dict[str, Any]:
        """Returns the rows that the views look back on."""
        return {**self._history.state_dict(), "has_seen": self._has_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after the rows of a state of the same views."""
        self._history.load_state_dict(state)
        self._has_seen = bool(state["has_seen"])

    def reset(self, envs: NDArray[np.integer[Any]] | None = None) -> None:
        """Begins an episode in these environments (None: in all), with their newest rows."""
        self._history.restart(envs)
        self._has_seen = False


def _check_acting(views: Mapping[str, View]) -> None:
    """Refuses views that cannot be shown while acting."""
    for name, view in views.items():
        if column_of(name, view) == "episode_id":
            raise ValueError(
                f"view {name!r}: ids of episodes are given when steps are stored, after acting; "
                "used_for_compute_actions=False shows them in batches alone"
            )
        if isinstance(view, TransitionView):
            raise ValueError(
                f"view {name!r}: an n-step transition is not fed to a policy; set used_for_compute_actions=False"
            )
