"""What tests of Headrace, and of what is built on it, need: a clock to move by hand,
environments that count. The product never imports it.
"""

from headrace.testing.clock import FakeClock as FakeClock
from headrace.testing.envs import CounterEnv as CounterEnv
from headrace.testing.envs import counter_env_fns as counter_env_fns
from headrace.testing.envs import counter_observation as counter_observation
from headrace.testing.envs import counter_transitions as counter_transitions
from headrace.testing.envs import counter_vector_env as counter_vector_env
from headrace.testing.envs import in_turn as in_turn
from headrace.testing.forks import in_forked_child as in_forked_child

__all__ = [
    "CounterEnv",
    "FakeClock",
    "counter_env_fns",
    "counter_observation",
    "counter_transitions",
    "counter_vector_env",
    "in_forked_child",
    "in_turn",
]
