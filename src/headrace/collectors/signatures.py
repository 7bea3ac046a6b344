"""The signature of a replay that a collector fills."""

# Rules: collectors CF1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.task import Task
from headrace.spec import ArraySpec, Signature
from headrace.views import View


def signature(
    create_env_fn: Any,
    policy: Any = None,
    create_env_kwargs: Mapping[str, Any] | None = None,
    info_columns: Mapping[str, ArraySpec] | None = None,
    views: Mapping[str, View] | None = None,
) -> Signature:
    """Returns the columns that a collector over these environments writes.

    Builds one environment and closes it. A policy is called once, to see which columns it adds; for its observation the
    environment is reset. A ready environment stays open.

    Args:
        create_env_fn, policy, create_env_kwargs, info_columns, views: as for `Collector`.

    >>> sorted(signature("CartPole-v1").columns)
    ['action', 'observation', 'reward', 'terminated', 'truncated']
    """
    task = Task(
        create_env_fn=create_env_fn,
        create_env_kwargs=create_env_kwargs,
        info_columns=info_columns,
        policy=policy,
        views=views,
        frames_per_batch=1,
    )
    loop = CollectingLoop(task, refresh=lambda: 0)
    try:
        if policy is not None:
            loop.restart(None)
            loop.learn_columns()
        return loop.signature
    finally:
        loop.close_built()
