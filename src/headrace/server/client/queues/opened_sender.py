"""A stream of samples as the server has opened it over one connection, and waits for its confirmations."""

from __future__ import annotations

from headrace.kernels.shared_count import SharedCount
from headrace.leases.frames import ProtocolError
from headrace.server.client.link import Link
from headrace.server.client.queues.packed_samples import PackedSamples
from headrace.server.messages.answers import Answer, Failed, SamplesStored

_MOST_STORED = 1 << 62


class OpenedSender:
    """The stream at the server, over one connection; the thread that reads the connection notes answers.

    Args:
        link: the connection.
        number: of the request that opened the sender, which answers name.
        count: number of the last sample that is in the queue.
        samples: packs those on their way.
        is_shared: whether the server writes the count itself.

    Attributes:
        link, number, count, samples, is_shared: see above.
        error: the queue's refusal.
    """

    __slots__ = ("count", "error", "is_shared", "link", "number", "samples")

    def __init__(
        self, link: Link, number: int, count: SharedCount, samples: PackedSamples, *, is_shared: bool
    ) -> None:
        self.link, self.number, self.count, self.is_shared = link, number, count, is_shared
        self.samples = samples
        self.error: Exception | None = None

    def take(self, answer: Answer) -> None:
        """Notes an answer.

        Raises:
            ProtocolError: it is not one to samples.
        """
        if isinstance(answer, SamplesStored):
            if not 0 <= answer.stored <= _MOST_STORED:
                raise ProtocolError(f"expected the number of a sample, got {answer.stored}")
            if not self.is_shared:
                self.count.set(answer.stored)
        elif isinstance(answer, Failed):
            self.error = answer.failure.error
        else:
            raise ProtocolError(f"expected a confirmation of samples, got {type(answer).__name__}")


class NextConfirmation:
    """A wait until more samples are confirmed, or refused, or the connection has ended."""

    __slots__ = ("_sender", "_stored")

    def __init__(self, sender: OpenedSender, stored: int) -> None:
        self._sender, self._stored = sender, stored

    @property
    def is_done(self) -> bool:
        """Whether it is over."""
        sender = self._sender
        return (
            sender.count.get() > self._stored or sender.error is not None or sender.link.failure is not None
        )
