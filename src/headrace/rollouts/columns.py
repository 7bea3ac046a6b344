"""Names of the columns of a rollout, and the views that make the base columns of a batch."""

# Rules: views-rollouts R9, R10, P3

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.views import View

BOOKKEEPING = ("episode_id", "t", "env_t", "fragment_id", "env_id", "agent_index")
POLICY_VERSION = "policy_version"
INFO = "info"
# Environment steps since the reset: agents are aligned by it, and it goes on across a soft horizon, unlike `env_t`. No
# column of a policy begins with a slash.
CLOCK = "/clock"
NUMBER = ArraySpec((), np.int64)

OUTCOME: Mapping[str, ArraySpec] = {
    "reward": ArraySpec((), np.float32),
    "terminated": ArraySpec((), np.bool_),
    "truncated": ArraySpec((), np.bool_),
}

BASE = ("observation", "action", "reward", "terminated", "truncated", "next_observation")


def base_views(initial_states: Sequence[NDArray[Any]], every: int) -> dict[str, View]:
    """Returns the views that show the base columns and the states of a policy.

    Args:
        initial_states: for one row.
        every: `max_seq_len`, or 1: one initial state for so many rows.

    >>> list(base_views([np.zeros(2)], 1))[-3:]
    ['next_observation', 'state_in_0', 'state_out_0']
    """
    views = {name: View() for name in BASE}
    # An agent that ends without a final observation has its last one there.
    views["next_observation"] = View("observation", shift=1, fill="edge")
    for i, state in enumerate(initial_states):
        views[f"state_in_{i}"] = View(f"state_out_{i}", shift=-1, fill=state, every=every)
        views[f"state_out_{i}"] = View()
    return views


def reserved_names(state_count: int) -> dict[str, str]:
    """Returns the names that a policy must not use for further columns, and a description of each."""
    names: Iterable[str] = (*BASE, *BOOKKEEPING, POLICY_VERSION, INFO, "seq_lens")
    states = [f"state_{way}_{i}" for way in ("in", "out") for i in range(state_count)]
    return dict.fromkeys(names, "a column of every batch") | dict.fromkeys(states, "a state of the policy")


def agents_of(view: View) -> tuple[Any, ...]:
    """Returns the ids of the other agents that a view shows.

    >>> agents_of(View("action", shift=-1, agent=["a", "b"])), agents_of(View("action"))
    (('a', 'b'), ())
    """
    if view.agent is None:
        return ()
    return tuple(view.agent) if isinstance(view.agent, list | tuple) else (view.agent,)
