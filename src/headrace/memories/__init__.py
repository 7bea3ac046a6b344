"""Named torch tensors in circular buffers, for agents that own their memory.

A memory stands alone: no server, no items, no keys. It follows the interface of skrl's memories, so the
agents of skrl 1.4 and 2 run on it unchanged. For tables, priorities and several processes that write, see
`headrace.Replay`.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError('headrace.memories needs torch: pip install "headrace[torch]"') from error

from headrace.memories.memory import Memory
from headrace.memories.random_memory import RandomMemory

__all__ = ["Memory", "RandomMemory"]
