"""Tools for tests of Headrace and of programs that use it: a clock controlled by the test, environments that count, an
example of a custom selector, and contracts. A contract is a suite of tests that every selector, rate limiter, arena
or environment adapter must pass, also yours. The product never imports this package.

The contracts need pytest and hypothesis, and are loaded on first use.
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
    from headrace.testing.env_contract import EnvContract as EnvContract
    from headrace.testing.lease_contract import LeaseContract as LeaseContract
    from headrace.testing.rank_based import RankBased as RankBased
    from headrace.testing.rate_limiter_contract import RateLimiterContract as RateLimiterContract
    from headrace.testing.replay_contract import ReplayContract as ReplayContract
    from headrace.testing.selector_contract import SelectorContract as SelectorContract
    from headrace.testing.storage_contract import StorageContract as StorageContract
    from headrace.testing.writer_contract import WriterContract as WriterContract

_LAZY = {
    "EnvContract": "headrace.testing.env_contract",
    "LeaseContract": "headrace.testing.lease_contract",
    "RankBased": "headrace.testing.rank_based",
    "RateLimiterContract": "headrace.testing.rate_limiter_contract",
    "ReplayContract": "headrace.testing.replay_contract",
    "SelectorContract": "headrace.testing.selector_contract",
    "StorageContract": "headrace.testing.storage_contract",
    "WriterContract": "headrace.testing.writer_contract",
}

__all__ = [
    "CounterEnv",
    "EnvContract",
    "FakeClock",
    "LeaseContract",
    "RankBased",
    "RateLimiterContract",
    "ReplayContract",
    "SelectorContract",
    "StorageContract",
    "WriterContract",
    "counter_env_fns",
    "counter_observation",
    "counter_transitions",
    "counter_vector_env",
    "in_forked_child",
    "in_turn",
]


# Hidden from type checkers: with this function every name would exist for them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
        globals()[name] = found = getattr(importlib.import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
