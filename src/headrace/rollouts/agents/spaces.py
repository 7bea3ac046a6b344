"""The agents of an environment with several, and their spaces."""

# Rules: views-rollouts M1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import SpecError
from headrace.rollouts.environments import env_attribute


def possible_agents(env: Any) -> list[Any]:
    """Returns the ids of all agents that an environment names beforehand."""
    return list(env_attribute(env, "possible_agents") or ())


def spaces_of(env: Any, agent_id: Any) -> tuple[Any, Any]:
    """Returns the observation space and the action space of an agent.

    Raises:
        SpecError: the environment has none for the agent.
    """
    return _space(env, "observation_space", agent_id), _space(env, "action_space", agent_id)


def _space(env: Any, name: str, agent_id: Any) -> Any:
    """Looks for a method of the agent's id, a mapping by agent, or one space for all agents."""
    for found in (getattr(env, name, None), getattr(env, f"{name}s", None)):
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
