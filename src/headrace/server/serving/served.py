"""The replays, queues and weights of a server, by name."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.checks import check_mapping, is_name
from headrace.replay.public import Replay, core_of
from headrace.replay.replay import ReplayCore
from headrace.server.batch_queue import BatchQueue
from headrace.server.batch_queue import core_of as queue_core_of
from headrace.server.messages.handshake import Served
from headrace.server.serving.shared_runs import SharedRuns
from headrace.server.weights import Weights
from headrace.server.weights import core_of as weight_core_of


class ServedObjects:
    """The replays, queues and weights that a server makes reachable.

    Args:
        served: by name.

    Raises:
        TypeError: not a dict of replays, queues and weights.
        ValueError: none, or a name that is not a non-empty string.
        SpecError: a signature that only this program can build.
    """

    def __init__(self, served: Mapping[str, Replay | BatchQueue | Weights]) -> None:
        check_mapping("served", served, "Replay, BatchQueue and Weights")
        if not served:
            raise ValueError("served: expected at least one Replay, BatchQueue or Weights, got none")
        for name, each in served.items():
            if not is_name(name):
                raise ValueError(
                    f"served: expected names that are non-empty strings and fit into UTF-8, got {name!r}"
                )
            if not isinstance(each, Replay | BatchQueue | Weights):
                raise TypeError(
                    f"served: {name!r}: expected a Replay, BatchQueue or Weights of this process, "
                    f"got {type(each).__name__}"
                )
        self.replays = {name: each for name, each in served.items() if isinstance(each, Replay)}
        self.queues = {name: each for name, each in served.items() if isinstance(each, BatchQueue)}
        self.weights = {
            name: weight_core_of(each) for name, each in served.items() if isinstance(each, Weights)
        }
        self._cores = {name: core_of(replay) for name, replay in self.replays.items()}
        self._syncs = {name: SharedRuns(replay.sync, "headrace-sync") for name, replay in self._cores.items()}
        self.described = {
            **{
                name: Served("replay", replay.signature.to_json(), list(replay.table_names))
                for name, replay in self.replays.items()
            },
            **{
                name: Served("queue", queue.signature.to_json(), batch_size=queue_core_of(queue).batch_size)
                for name, queue in self.queues.items()
            },
            **{name: Served("weights", None) for name in self.weights},
        }

    def replay(self, name: str) -> Replay:
        """Returns a replay.

        Raises:
            KeyError: no such replay.
        """
        found = self.replays.get(name)
        if found is None:
            raise KeyError(f"no replay {name!r}; there are {', '.join(map(repr, self.replays))}")
        return found

    def sync(self, name: str) -> SharedRuns[None]:
        """Returns the runs that make a replay durable; see `replay`."""
        self.replay(name)
        return self._syncs[name]

    def core(self, name: str) -> ReplayCore:
        """Returns the inside of a replay; see `replay`."""
        if name not in self._cores:
            self.replay(name)
        return self._cores[name]
