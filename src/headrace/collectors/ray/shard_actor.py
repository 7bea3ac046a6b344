"""The actor that holds one shard of a replay, behind a server of its own."""

# Rules: collectors CY4; replay K1

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import CheckpointError
from headrace.persist.key_of_time import key_of_now
from headrace.replay.public import Replay, core_of
from headrace.server.serving.server import Server
from headrace.weights.ray import import_ray

REPLAY_NAME = "shard"


class ShardPlace(NamedTuple):
    """Where a shard is served.

    Attributes:
        address: of its server.
        pid: of its process.
    """

    address: str
    pid: int


class ShardActor:
    """Holds a replay and serves it.

    Args:
        make_replay: returns a new replay, with the numbers of the whole in its rate limiters.
        number: of the shard.
        num_shards: of the whole.
        token: that clients know.
        checkpoint: directory for the checkpoints of all shards; None for none.
    """

    def __init__(
        self,
        make_replay: Callable[[], Replay],
        number: int,
        num_shards: int,
        token: str,
        checkpoint: Path | None,
    ) -> None:
        self._failure: Exception | None = None
        try:
            folder = None if checkpoint is None else checkpoint / f"shard-{number}"
            replay = _restored(folder) or _new_share(make_replay, number, num_shards)
            core = core_of(replay)
            with core.lock:
                # A shard that is started again must make no key a second time.
                core.keys.skip_to(key_of_now())
            host = import_ray().util.get_node_ip_address()
            served = {REPLAY_NAME: replay}
            self._server = Server(
                served,
                address=f"tcp://{host}:0",
                token=token,
                checkpoint=folder,
                keep=None if folder is None else 1,
            ).start()
        except Exception as error:
            # Ray would tell of an error in this method in words only, and start the actor again.
            self._failure = error

    def place(self) -> ShardPlace:
        """Returns where the shard is served.

        Raises:
            Exception: that of `make_replay`.
        """
        if self._failure is not None:
            raise self._failure
        return ShardPlace(self._server.address, os.getpid())


def _restored(folder: Path | None) -> Replay | None:
    """Returns the replay of the newest checkpoint; None if there is none."""
    if folder is None or not (folder / REPLAY_NAME).exists():
        return None
    try:
        return Replay.load(folder / REPLAY_NAME)
    except CheckpointError:
        if any((folder / REPLAY_NAME).iterdir()):
            raise
        return None


def _new_share(make_replay: Callable[[], Replay], number: int, num_shards: int) -> Replay:
    """Returns a new replay with its part of the rate limiters' numbers."""
    replay = make_replay()
    core = core_of(replay)
    for name in replay.table_names:
        replay.table(name).configure(rate_limiter=core.live_table(name).limiter.share(num_shards))
    with core.lock:
        # The same seed in all shards must not give the same draws.
        generator: Any = core.sampling.random.bit_generator
        if number:
            generator.state = generator.jumped(number).state
    return replay
