"""Experience between processes and machines, and batches straight from many senders.

`shards` and `Weights` are imported at first use: a queue needs no client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.server.batch_queue import BatchQueue
from headrace.server.limits import Limits
from headrace.server.queue_info import BatchQueueInfo

if TYPE_CHECKING:
    from headrace.server.client.shards import shards as shards
    from headrace.server.weights import Weights as Weights

_MODULES = {"Weights": "headrace.server.weights", "shards": "headrace.server.client.shards"}

__all__ = ["BatchQueue", "BatchQueueInfo", "Limits", "Weights", "shards"]


# Hidden from type checkers, to which every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'headrace.server' has no attribute {name!r}")
        found = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
