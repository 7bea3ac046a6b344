"""The requests of one client after its handshake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import cython

from headrace.errors import CheckpointError, Disconnected
from headrace.leases.checking import LeaseError
from headrace.leases.frames import Frame
from headrace.leases.messages import Goodbye
from headrace.leases.selector import PeerSelector
from headrace.server.limits import Limits
from headrace.server.messages import requests
from headrace.server.messages.answers import Done, Failed, Saved, ServerRecord
from headrace.server.messages.failures import failure_of
from headrace.server.messages.operations import WriterMessage
from headrace.server.messages.requests import OfQueue, Request
from headrace.server.serving.batches.batch_arena import BatchArena
from headrace.server.serving.batches.batch_sender import BatchSender, Send, SendPacked
from headrace.server.serving.checkpoints import Checkpoints
from headrace.server.serving.client_queues import ClientQueues
from headrace.server.serving.deadlines import TableDeadlines
from headrace.server.serving.requests.replay_requests import answer_replay
from headrace.server.serving.samples import ClientSamples
from headrace.server.serving.served import ServedObjects
from headrace.server.serving.served_queue import ServedQueue
from headrace.server.serving.served_weights import ClientWeights, ServedWeights
from headrace.server.serving.writers.client_writers import ClientWriters

if cython.compiled:
    from cython.cimports.headrace.kernels.instances import is_of
else:
    from headrace.kernels.instances import is_of
    from headrace.kernels.kinds import Bool


class Services(Protocol):
    """The server of a client, as its requests use it.

    Attributes:
        selector: listens to the connections.
        deadlines: of waiting samples.
        served: replays and queues.
        queues, weights: by name.
        checkpoints: of the replays; None where no directory was given.
        limits: of each connection.
    """

    selector: PeerSelector
    deadlines: TableDeadlines
    served: ServedObjects
    queues: Mapping[str, ServedQueue]
    weights: Mapping[str, ServedWeights]
    checkpoints: Checkpoints | None
    limits: Limits

    def server_record(self, number: int) -> ServerRecord:
        """Returns the answer with the server's statistics."""


class ClientRequests:
    """Answers the requests of one client. Used in the thread of the selector.

    Args:
        services: of the server.
        send: to the client, without waiting.
        arena: for large batches, if the client maps memory.
        packed: sends batches, if the client wants them compressed.
    """

    def __init__(
        self, services: Services, send: Send, arena: BatchArena | None, packed: SendPacked | None
    ) -> None:
        self._services = services
        self._sender = BatchSender(send, arena, packed)
        self._samples = ClientSamples(
            services.selector, services.deadlines, self._sender, services.limits.payload_nbytes
        )
        self._queues = ClientQueues(
            services.queues, self._sender, services.limits.payload_nbytes, in_place=arena is not None
        )
        self._weights = ClientWeights(services.weights, self._sender)
        self._writers = ClientWriters(services.served, send, services.limits, in_place=arena is not None)
        # Numbers of requests for a checkpoint; another thread takes them out.
        self._saves: set[int] = set()

    def take(self, frame: Frame) -> None:
        """Takes a message. A request that fails is answered with its error.

        Raises:
            LeaseError: the message breaks the protocol.
        """
        request = frame.message
        try:
            if is_of(request, OfQueue):  # First, since samples come most often.
                self._queues.take(request, frame)
            elif is_of(request, Request):
                self._answer(request, frame)
            else:
                self._take_other(request, frame)
        except (Disconnected, LeaseError):
            raise
        except Exception as error:
            if not is_of(request, Request):
                raise
            self._sender.send(Failed(number=request.number, failure=failure_of(error)))

    def _take_other(self, message: Any, frame: Frame) -> None:
        """Takes a message that has no answer, or whose answer has another number."""
        match message:
            case WriterMessage():
                self._writers.take(frame)
            case requests.ReturnBlocks(blocks=blocks):
                self._sender.return_blocks(blocks)
            case Goodbye():
                raise Disconnected("the peer has ended")
            case _:
                raise LeaseError(f"expected a request, got {type(message).__name__}")

    def _answer(self, request: requests.Request, frame: Frame) -> None:
        services = self._services
        match request:
            case requests.Sample():
                self._samples.sample(request, services.served.core(request.replay))
            case requests.Peek():
                self._samples.peek(request, services.served.replay(request.replay))
            case requests.ListKeys():
                self._samples.list_keys(request, services.served.core(request.replay))
            case requests.GetItems():
                self._samples.get(request, services.served.core(request.replay), frame.payload)
            case requests.OfWeights():
                self._weights.take(request)
            case requests.OfReplay():
                replay = services.served.replay(request.replay)
                self._sender.send(answer_replay(replay, request, frame.payload))
            case requests.Cancel():
                self._samples.cancel(request.number)
                self._queues.cancel(request.number)
                self._weights.cancel(request.number)
                self._sender.send(Done(number=request.number))
            case requests.Ping():
                self._sender.send(Done(number=request.number))
            case requests.GetServerStatistics():
                self._sender.send(services.server_record(request.number))
            case requests.SaveReplays():
                self._save(request.number)
            case _:
                raise LeaseError(f"expected a request, got {type(request).__name__}")

    def _save(self, number: int) -> None:
        if self._services.checkpoints is None:
            raise CheckpointError(
                "the server has no directory for checkpoints; give it one with checkpoint= of hr.Server"
            )

        def answer(result: Mapping[str, Path] | Exception) -> None:
            if isinstance(result, Exception):
                self._sender.send(Failed(number=number, failure=failure_of(result)))
            else:
                self._sender.send(
                    Saved(number=number, folders={name: str(path) for name, path in result.items()})
                )
            self._saves.discard(number)

        self._saves.add(number)
        self._services.checkpoints.runs.begin(answer)

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint that the client asked for is not answered yet."""
        return bool(self._saves)

    @property
    def queued_nbytes(self) -> int:
        """About the bytes of steps and items that wait."""
        return self._writers.queued_nbytes

    @property
    def waits(self) -> Bool:
        """See `Peer.waits`."""
        return self._writers.waits

    @property
    def are_open(self) -> bool:
        """Whether the client waits for an answer, or writes: then it shows signs of life."""
        return bool(
            self._writers.is_open or self._samples.waiting or self._queues.waiting or self._weights.waiting
        )

    def look(self) -> None:
        """See `Peer.look`."""
        self._writers.look()

    def refuse_waiting(self, reason: str) -> None:
        """Refuses requests that wait, and samples that would have to wait from here on."""
        self._samples.refuse_waiting(reason)
        self._queues.refuse_takers(reason)

    def stop(self) -> None:
        """Stores nothing more of the client, which is told that the server stops.

        Writers are closed before the client hears of it, so that another server of the same replay knows their items.
        """
        self._queues.close()
        self._weights.close()
        self._writers.close()

    def close(self) -> None:
        """Gives back what belongs to a client that is gone."""
        self._samples.close()
        self._queues.close()
        self._weights.close()
        self._writers.close()
        self._sender.close()
