"""What tests of Headrace, and of what is built on it, need: a clock to move by hand,
environments that count, a selector as a user writes one, and contracts: tests that every selector, rate limiter and
arena must pass, also yours. The product never imports it.

The contracts need pytest and hypothesis, and are loaded when they are asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.testing.clock import FakeClock as FakeClock
from headrace.testing.envs import CounterEnv as CounterEnv
from headrace.testing.envs import counter_env_fns as counter_env_fns
from headrace.testing.envs import counter_observation as counter_observation
from headrace.testing.envs import counter_transitions as counter_transitions
from headrace.testing.envs import counter_vector_env as counter_vector_env
from headrace.testing.envs import in_turn as in_turn
from headrace.testing.forks import in_forked_child as in_forked_child

if TYPE_CHECKING:
    from headrace.testing.lease_contract import LeaseContract as LeaseContract
    from headrace.testing.rank_based import RankBased as RankBased
    from headrace.testing.rate_limiter_contract import RateLimiterContract as RateLimiterContract
    from headrace.testing.selector_contract import SelectorContract as SelectorContract
    from headrace.testing.storage_contract import StorageContract as StorageContract

_LAZY = {
    "LeaseContract": "headrace.testing.lease_contract",
    "RankBased": "headrace.testing.rank_based",
    "RateLimiterContract": "headrace.testing.rate_limiter_contract",
    "SelectorContract": "headrace.testing.selector_contract",
    "StorageContract": "headrace.testing.storage_contract",
}

__all__ = [
    "CounterEnv",
    "FakeClock",
    "LeaseContract",
    "RankBased",
    "RateLimiterContract",
    "SelectorContract",
    "StorageContract",
    "counter_env_fns",
    "counter_observation",
    "counter_transitions",
    "counter_vector_env",
    "in_forked_child",
    "in_turn",
]


# Hidden from type checkers, to which every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
        globals()[name] = found = getattr(importlib.import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
