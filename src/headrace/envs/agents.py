"""Environments with several agents that act at the same time, such as PettingZoo's parallel ones.

No base class is needed: such an environment has `possible_agents` (or `agents`), `reset` returns observations and infos
by agent, and `step(actions)` five dicts by agent.
"""

# Rules: views-rollouts M1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.errors import SpecError

ALL = "__all__"


class Returned(NamedTuple):
    """The five dicts that a step returns, by agent."""

    observations: Mapping[Any, Any]
    rewards: Mapping[Any, Any]
    terminations: Mapping[Any, Any]
    truncations: Mapping[Any, Any]
    infos: Mapping[Any, Any]


def env_attribute(env: Any, name: str) -> Any:
    """Returns an attribute of an environment or of the one inside its wrappers; None if there is none."""
    found = getattr(env, name, None)
    return getattr(getattr(env, "unwrapped", None), name, None) if found is None else found


def is_multi_agent(env: Any) -> bool:
    """Whether an environment has several agents: it names them, or has a space for each.

    >>> class Parallel:
    ...     possible_agents = ["a", "b"]
    >>> is_multi_agent(Parallel())
    True
    """
    if any(env_attribute(env, name) is not None for name in ("possible_agents", "agents")):
        return True
    # Environments that make up their agents name none before a reset.
    return callable(getattr(env, "observation_space", None))


def check_agents_act_together(env: Any, index: int) -> None:
    """Refuses an environment whose agents act in turn (PettingZoo's AEC interface).

    Raises:
        ValueError: the message has `index`, and the wrappers that help.
    """
    if hasattr(env, "agent_iter"):
        raise ValueError(
            f"environment {index}: its agents act in turn; wrap it with pettingzoo.utils.aec_to_parallel, or with "
            "turn_based_aec_to_parallel where the others wait for the one that acts"
        )


def possible_agents(env: Any) -> list[Any]:
    """Returns the ids of all agents that an environment names beforehand."""
    return list(env_attribute(env, "possible_agents") or ())


def spaces_of(env: Any, agent_id: Any) -> tuple[Any, Any]:
    """Returns the observation space and the action space of an agent.

    Raises:
        SpecError: the environment has none for the agent.
    """
    return _space(env, "observation_space", agent_id), _space(env, "action_space", agent_id)


def reset_agents(env: Any, index: int, seed: int | None) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
    """Resets an environment; returns the first observations and the infos, by agent.

    Raises:
        SpecError: it returns something else; the message has `index`.
    """
    returned = env.reset(seed=seed)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], Mapping):
        raise SpecError(
            f"environment {index}: reset: expected (observations, infos), dicts by agent, got {returned!r:.80}"
        )
    return returned


def step_agents(env: Any, index: int, actions: Mapping[Any, Any]) -> Returned:
    """Steps an environment.

    Raises:
        SpecError: it returns other than five values; the message has `index`.
    """
    returned = env.step(actions)
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise SpecError(
            f"environment {index}: step: expected (observations, rewards, terminations, truncations, infos), "
            f"got {returned!r:.80}"
        )
    return Returned(*returned)


def ends_for_all(env: Any, returned: Returned) -> bool:
    """Whether a step ends the episode of all agents: by the entry "__all__" of the flags, or as no agent is left."""
    if returned.terminations.get(ALL) or returned.truncations.get(ALL):
        return True
    agents = env_attribute(env, "agents")
    return agents is not None and not len(agents)


def _space(env: Any, name: str, agent_id: Any) -> Any:
    """Looks for a method of the agent's id, a mapping by agent, or one space for all agents."""
    for attribute in (name, f"{name}s"):
        # One after the other: PettingZoo's converters warn of the second, which they have for old programs.
        found = getattr(env, attribute, None)
        by_agent = getattr(found, "spaces", found)
        if isinstance(by_agent, Mapping) and agent_id in by_agent:
            return by_agent[agent_id]
        if hasattr(found, "sample") and not isinstance(by_agent, Mapping):
            return found
        if callable(found):
            return found(agent_id)
    raise SpecError(
        f"environment: {name}: expected a method {name}(agent) or a mapping of agents to spaces with {agent_id!r}"
    )
