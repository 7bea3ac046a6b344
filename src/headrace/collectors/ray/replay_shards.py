"""A replay whose shards are actors of a Ray cluster."""

# Rules: collectors CY4, CY5

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from headrace.checks import check_count
from headrace.collectors.ray.cluster import Cluster
from headrace.collectors.ray.options import ShardOptions
from headrace.collectors.ray.shard_actor import REPLAY_NAME, ShardActor, ShardPlace
from headrace.errors import DeadlineExceeded, Disconnected
from headrace.replay.public import Replay
from headrace.server.client.client import Client
from headrace.server.client.shards import CALL_SECONDS, ShardOpener, ShardsOfServers
from headrace.weights.ray import import_ray

# The answer of an actor that runs takes milliseconds; that of one without a place comes at some later call.
_ANSWER_SECONDS = 0.5


class ShardsOfActors(ShardsOfServers):
    """Shards in actors of a cluster. It can be given to tasks and actors, which then use the same shards.

    Args:
        actors: handles of `ShardActor`.
        token: of their servers.
        first_lane: as `ShardedReplay`.
    """

    def __init__(self, actors: Sequence[Any], token: str, first_lane: int = 0) -> None:
        self._actors = actors
        self._token = token
        connect = partial(Client, token=token, timeout=CALL_SECONDS)
        openers = [ShardOpener(connect, _AddressOf(actor), REPLAY_NAME) for actor in actors]
        super().__init__(openers, first_lane=first_lane)

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_another_process, (self._actors, self._token)


def _in_another_process(actors: Sequence[Any], token: str) -> ShardsOfActors:
    # Processes that write one lane each fill all shards.
    return ShardsOfActors(actors, token, first_lane=secrets.randbelow(len(actors)))


class ReplayShards(ShardsOfActors):
    """A replay whose shards are actors of a Ray cluster, with the interface of `Replay`.

    Each lane of a writer belongs to one shard, and batches have the distribution of one replay with the items of all
    shards. Steps and batches travel between this process and the actors without Ray. An actor that dies is started
    again by Ray, empty or from its last checkpoint. Until then the other shards are used, and
    `statistics().shards` tells so.

    It can be given to tasks and actors of the cluster, which then read and write the same shards. Only the process that
    made it ends the actors, with `close` or `shutdown`.

    Args:
        make_replay: returns the replay of one shard. Its rate limiters have the numbers of the whole, of which each
            shard holds its part. Its `capacity` and the tables' `max_size` are those of one shard.
        num_shards: number of actors.
        options: `num_cpus`, `num_gpus`, `resources`, `scheduling`, `runtime_env` and `address` as in `backend_options`
            of `MultiCollector`; `start_timeout`, in seconds, for all actors to start; and `checkpoint`, a directory
            that all machines share: a shard begins with its last checkpoint in there, which `checkpoint()` makes.

    Raises:
        ImportError: Ray is not installed.
        DeadlineExceeded: the cluster has no place for an actor.
        Exception: that of `make_replay`.
        ValueError: a rate limiter has too little to be divided.
    """

    def __init__(
        self, make_replay: Callable[[], Replay], num_shards: int, *, options: Mapping[str, Any] | None = None
    ) -> None:
        num_shards = check_count("num_shards", num_shards, 1)
        checked = ShardOptions.of(options)
        self._cluster = Cluster(checked.address)
        self._own: list[Any] = []
        token = secrets.token_hex(32)
        try:
            self._own = _new_actors(make_replay, num_shards, token, checked)
            _wait_for_places(self._own, checked.start_timeout)
            super().__init__(self._own, token)
        except BaseException:
            self._end()
            raise

    def checkpoint(self) -> None:
        """Saves every shard to the directory for checkpoints; its last checkpoint before is removed.

        Raises:
            CheckpointError: `options` has no such directory, or a shard could not be saved.
            Disconnected: a shard is down.
        """
        self.check_open()
        for opener in self._openers:
            opener.client().checkpoint()

    def close(self) -> None:
        """Does the same as `shutdown`."""
        super().close()
        self._end()

    def shutdown(self) -> None:
        """Ends every wait with `Closed`, and the actors. The cluster, and the other actors in it, stay."""
        self.close()

    def _end(self) -> None:
        own, self._own = self._own, []
        for actor in own:
            with suppress(Exception):  # It is gone, or the connection to the cluster.
                import_ray().kill(actor)
        self._cluster.close()


def _new_actors(
    make_replay: Callable[[], Replay], num_shards: int, token: str, options: ShardOptions
) -> list[Any]:
    actor = (
        import_ray()
        .remote(ShardActor)
        .options(
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            resources=dict(options.resources),
            runtime_env=dict(options.runtime_env),
            scheduling_strategy="SPREAD" if options.scheduling == "spread" else "DEFAULT",
            max_restarts=-1,
        )
    )
    checkpoint = None if options.checkpoint is None else Path(options.checkpoint)
    return [actor.remote(make_replay, number, num_shards, token, checkpoint) for number in range(num_shards)]


def _wait_for_places(actors: Sequence[Any], timeout: float) -> None:
    """Waits until all actors are ready.

    Raises:
        DeadlineExceeded: some have no place.
        Exception: that of an actor.
    """
    ray = import_ray()
    asked = [actor.place.remote() for actor in actors]
    ready, waiting = ray.wait(asked, num_returns=len(asked), timeout=timeout)
    for each in ready:
        _result(each)
    if waiting:
        numbers = [number for number, each in enumerate(asked) if each in waiting]
        raise DeadlineExceeded(
            f"shards {numbers} are without a place in the cluster after {timeout:g} s; it has "
            f"{ray.available_resources()} left, see options"
        )


class _AddressOf:
    """Asks an actor for the address of its server, which is another one after each start.

    Args:
        actor: its handle.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._asked: Any = None

    def __call__(self) -> str:
        """Returns the address.

        Raises:
            Disconnected: the actor does not run now.
        """
        ray = import_ray()
        if self._asked is None:
            self._asked = self._actor.place.remote()
        if not ray.wait([self._asked], timeout=_ANSWER_SECONDS)[0]:
            raise Disconnected("its actor is being started")
        asked, self._asked = self._asked, None
        return _result(asked).address


def _result(asked: Any) -> ShardPlace:
    """Returns the answer of an actor.

    Raises:
        Disconnected: it is gone.
        Exception: that of the actor.
    """
    errors = import_ray().exceptions
    try:
        return ShardPlace(*import_ray().get(asked))
    except errors.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
    except errors.RayError as error:
        raise Disconnected(f"its actor is gone: {error}") from error
