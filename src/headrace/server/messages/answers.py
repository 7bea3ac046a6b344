"""Answers of servers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.leases.messages import Goodbye, Hello, Message
from headrace.server.messages.failures import Failure
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.statistics import ConnectionCounts
from headrace.statistics import ReplayStatistics, TableDistribution, TableStatistics


class Answer(Message):
    """The root of all answers.

    Attributes:
        number: of the request.
    """

    number: int = 0


class Done(Answer, kw_only=True):
    """The request was fulfilled."""


class Failed(Answer, kw_only=True):
    """The request raised an error and changed nothing."""

    failure: Failure


class Count(Answer, kw_only=True):
    """A number.

    Attributes:
        value: the number.
        publisher: of a version of weights: a random number > 0 of the object that published them; 0: not told.
    """

    value: int
    publisher: int = 0


class Flag(Answer, kw_only=True):
    """Yes or no."""

    value: bool


class Names(Answer, kw_only=True):
    """A list of names."""

    values: list[str]


class Saved(Answer, kw_only=True):
    """The replays are saved.

    Attributes:
        folders: the new checkpoint of each, by name.
    """

    folders: dict[str, str]


class ServerRecord(Answer, kw_only=True):
    """Statistics of the server.

    Attributes:
        counts, replays, queues: see `ServerStatistics`.
        closed: names of the replays that are closed, which have no record.
    """

    counts: ConnectionCounts
    replays: dict[str, ReplayStatistics]
    queues: dict[str, BatchQueueInfo]
    closed: list[str] = msgspec.field(default_factory=list)


class ReplayRecord(Answer, kw_only=True):
    """Statistics of a replay."""

    record: ReplayStatistics


class TableRecord(Answer, kw_only=True):
    """Statistics of a table."""

    record: TableStatistics


class DistributionRecord(Answer, kw_only=True):
    """Distribution of the items of a table."""

    record: TableDistribution


class PlacedArray(msgspec.Struct, array_like=True):
    """The place of an array.

    Attributes:
        dtype: little-endian, as NumPy writes it.
        shape: of the array.
        block: of the batch arena in which it lies; None: it lies in the payload.
        offset: of its first byte there.
    """

    dtype: str
    shape: tuple[int, ...]
    block: int | None
    offset: int


class Sampled(Answer, kw_only=True):
    """A batch.

    Attributes:
        names: of the arrays of the data: of the view, and of the leaf in it ("" for a view of one array). None: the
            columns of the signature.
        arrays: of the data; then keys, probabilities, table sizes, priorities, times sampled; then the mask, if any.
        has_mask: whether there is a mask.
        length, every: of the batch's layout.
        warning: for the caller.
        form: number under which `SampledAgain` names this form; None: it does not.
    """

    names: list[tuple[str, str]] | None
    arrays: list[PlacedArray]
    has_mask: bool
    length: int | None
    every: list[tuple[str, int]]
    warning: str = ""
    form: int | None = None


class SampledAgain(Answer, kw_only=True, omit_defaults=True):
    """Batches whose arrays have the places, shapes and dtypes of an earlier one.

    Attributes:
        form: number of the form, described by the last `Sampled` with it.
        count: number of batches, which lie one after the other; they answer the requests from `number` on.
        warning: for the caller.
        blocks: of the batch arena, instead of those that the description names, in the order in which it names each
            first. A form with blocks has one batch in an answer.
    """

    form: int
    count: int = 1
    warning: str = ""
    blocks: tuple[int, ...] = ()


class SenderOpened(Answer, kw_only=True):
    """Samples may be sent.

    Attributes:
        stored: number of the last sample of the session that is in the queue, or was.
        most_nbytes: of the samples in one message.
    """

    stored: int
    most_nbytes: int


class SamplesStored(Answer, kw_only=True):
    """Samples are in the queue. It has the number of the request that opened their sender.

    Attributes:
        stored: number of the last of them.
    """

    stored: int


class TakenBatch(Answer, kw_only=True):
    """The root of the two forms of a batch of a queue.

    Attributes:
        info: of the queue, taken with the batch.
    """

    info: BatchQueueInfo


class QueueBatch(TakenBatch, kw_only=True):
    """A batch whose arrays lie elsewhere.

    Attributes:
        arrays: the leaves, in the order of the signature.
    """

    arrays: list[PlacedArray]


class SmallQueueBatch(TakenBatch, kw_only=True):
    """A batch that lies in its message, with the dtypes and shapes of the signature.

    Attributes:
        rows: number of its samples.
        data: the leaves, one behind the other in the order of the signature, little-endian.
    """

    rows: int
    data: bytearray


class QueueRecord(Answer, kw_only=True):
    """Statistics of a queue."""

    record: BatchQueueInfo


class GrantBlocks(Message):
    """Blocks of the batch arena of this connection, whose descriptors come along. They follow in answers.

    Attributes:
        blocks: their numbers, at most four.
        sizes: in bytes.
    """

    blocks: list[int]
    sizes: list[int]


class ForgetBlocks(Message):
    """No answer will name these blocks any more."""

    blocks: list[int]


AnyAnswer: TypeAlias = (
    Hello
    | Goodbye
    | Done
    | Failed
    | Count
    | Flag
    | Names
    | Saved
    | ServerRecord
    | ReplayRecord
    | TableRecord
    | DistributionRecord
    | Sampled
    | SampledAgain
    | SenderOpened
    | SamplesStored
    | QueueBatch
    | SmallQueueBatch
    | QueueRecord
    | GrantBlocks
    | ForgetBlocks
)
LARGEST_NBYTES = 1 << 24
"""Largest message of a server, without its payload."""
