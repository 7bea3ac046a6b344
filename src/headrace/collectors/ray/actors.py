"""The actors of one collector in a cluster."""

# Rules: collectors CY1, CY5

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.collectors.ray.actor import WorkerActor
from headrace.collectors.ray.cluster import Cluster
from headrace.collectors.ray.connecting import Secret
from headrace.collectors.ray.options import RayOptions
from headrace.collectors.ray.worker import RayWorker
from headrace.weights.ray import import_ray

# The thread that collects, one for weights that arrive, one for rows that are fetched, and one for each question of Ray
# beside them.
_CALLS = 5


class RayActors:
    """Starts actors, and ends the connection to the cluster after them.

    Args:
        options: of placement.
        environment: variables of the environment of each actor.
        connect_timeout: seconds that an actor waits for this process once it runs.

    Raises:
        ImportError, ValueError, ConnectionError: see `Cluster`.
    """

    def __init__(self, options: RayOptions, environment: Mapping[str, str], connect_timeout: float) -> None:
        self._cluster = Cluster(options.address)
        self._ray = import_ray()
        self._connect_timeout = connect_timeout
        runtime_env = dict(options.runtime_env)
        runtime_env["env_vars"] = {**environment, **runtime_env.get("env_vars", {})}
        self._actor = self._ray.remote(WorkerActor).options(
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            resources=dict(options.resources),
            runtime_env=runtime_env,
            scheduling_strategy="SPREAD" if options.scheduling == "spread" else "DEFAULT",
            max_concurrency=_CALLS,
            max_restarts=0,
        )

    def new_worker(self) -> RayWorker:
        """Starts an actor."""
        return RayWorker(self._ray, self._new_actor, self._connect_timeout)

    def _new_actor(self, secret: Secret) -> Any:
        return self._actor.remote(secret)

    def close(self) -> None:
        """Ends the use of the cluster, after the actors."""
        self._cluster.close()
