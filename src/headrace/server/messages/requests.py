"""Requests of clients. Each has a number, and the answer has the same."""

from __future__ import annotations

from typing import TypeAlias

from headrace.leases.messages import Goodbye, Hello, Message
from headrace.server.messages.samples import MAX_IN_FLIGHT
from headrace.server.messages.views import ViewRecord
from headrace.tables.description.table_json import LimiterJson

MOST_BATCHES = 64
"""Batches of one request at most."""


class Request(Message):
    """The root of all requests.

    Attributes:
        number: of this request in its connection.
    """

    number: int = 0


class Cancel(Request, kw_only=True):
    """The answer to the request of this number is not wanted any more; a wait for it ends."""


class Ping(Request, kw_only=True):
    """Asks for `Done`."""


class GetServerStatistics(Request, kw_only=True):
    """Asks for `ServerRecord`."""


class SaveReplays(Request, kw_only=True):
    """Saves each replay to the server's directory for checkpoints, and asks for `Saved`."""


class OfReplay(Request, kw_only=True):
    """A request to one replay.

    Attributes:
        replay: its name.
    """

    replay: str


class CheckOpen(OfReplay, kw_only=True):
    """Asks for `Done`, if the replay is open."""


class GetFinalColumns(OfReplay, kw_only=True):
    """Asks for `Names`."""


class GetStatistics(OfReplay, kw_only=True):
    """Asks for `ReplayRecord`."""


class OfTable(OfReplay, kw_only=True):
    """A request to one table.

    Attributes:
        table: its name.
    """

    table: str


class GetTableStatistics(OfTable, kw_only=True):
    """Asks for `TableRecord`."""


class GetDistribution(OfTable, kw_only=True):
    """Asks for `DistributionRecord`."""


class Configure(OfTable, kw_only=True):
    """Changes a table, and asks for `Done`. None leaves a setting as it is."""

    max_size: int | None
    rate_limiter: LimiterJson | None


class CanInsert(OfTable, kw_only=True):
    """Asks for `Flag`."""

    n: int


class CanSample(OfTable, kw_only=True):
    """Asks for `Flag`."""

    n: int


class Reset(OfTable, kw_only=True):
    """Removes all items, and asks for `Done`."""


class UpdatePriorities(OfTable, kw_only=True):
    """Asks for `Count`. The payload is the keys, uint64[n], and then the priorities, float64[m].

    Attributes:
        keys: their number n.
    """

    keys: int


class Delete(OfTable, kw_only=True):
    """Asks for `Count`. The payload is the keys, uint64[n]."""


class Sample(OfTable, kw_only=True):
    """Asks for `Sampled` or `SampledAgain`, one for each batch. `Done` instead: this batch is not drawn.

    Attributes:
        batch_size: number of items.
        count: number of batches, at most `MOST_BATCHES`. Their answers have the numbers from that of the request on.
            After a batch without a form, or when the message is full, the rest is not drawn.
        timeout: seconds to wait for the rate limiter; None waits without limit.
        views: number of the views, which the client chooses; None presents the signature's tree.
        described: the views of this number, from this request on.
    """

    batch_size: int
    timeout: float | None
    count: int = 1
    views: int | None = None
    described: dict[str, ViewRecord] | None = None


class Peek(OfTable, kw_only=True):
    """Asks for `Sampled`: a random item, which is not counted as a sample.

    Attributes:
        max_rows: of the item; None for all.
        seed: of the generator that chooses the item; None takes a new one.
    """

    max_rows: int | None
    seed: int | None


class ListKeys(OfTable, kw_only=True):
    """Asks for `Count`, the number of items; behind it the keys in the order of insertion, uint64[n]."""


class GetItems(OfTable, kw_only=True):
    """Asks for `Sampled`: items by their keys, which are not counted as samples. The payload is the keys, uint64[n].

    Attributes:
        views, described: see `Sample`.
    """

    views: int | None = None
    described: dict[str, ViewRecord] | None = None


class GetRemaining(GetItems, kw_only=True):
    """The same, without those keys that have no item any more. Asks for `Done` if none has."""


class OfQueue(Request, kw_only=True):
    """A request to one queue.

    Attributes:
        queue: its name.
    """

    queue: str


class OpenSender(OfQueue, kw_only=True):
    """Asks for `SenderOpened`; samples follow.

    A descriptor may come along, of a sealed memory file with a place for each sample in flight
    (`headrace.server.messages.samples`). Sample n then lies in place `(n - 1) % places`, and the server writes there
    which samples are stored, without a message. A second descriptor may follow, of a sealed memory file with blocks
    that are laid out as batches (`headrace.server.messages.sample_blocks`), for some of the samples.

    Attributes:
        session: the name of the session, 16 random bytes.
        stored: number of the last sample that the client knows to be stored. A queue that does not know the session,
            such as a new one behind the same address, goes on after it.
        places: number of samples that the client may send without an acknowledgement, at most as many as fit into
            4 MiB, or 2.
    """

    session: bytes
    stored: int = 0
    places: int = MAX_IN_FLIGHT


class SendSamples(OfQueue, kw_only=True):
    """Brings samples, as the payload or in shared memory. Its number is that of the request that opened the sender.

    `SamplesStored` follows when they are in the queue; in shared memory only after `ConfirmSamples`.

    Attributes:
        first: number of the first sample in its session; the first of all is 1.
        count: number of samples.
        block: index of the block in which all of them lie; -1: they lie in no block.
        row: of the first of them in its block.
    """

    first: int
    count: int
    block: int = -1
    row: int = 0


class ConfirmSamples(OfQueue, kw_only=True):
    """Asks for `SamplesStored` when this sample or a later one is in the queue. Its number is that of `SendSamples`.

    A client of shared memory sends it before it waits. Of several only the one with the lowest `last` is sure to be
    answered.

    Attributes:
        last: number of the sample in its session.
    """

    last: int


class TakeBatch(OfQueue, kw_only=True):
    """Asks for `QueueBatch` or `SmallQueueBatch`.

    Attributes:
        timeout: seconds to wait for a full batch; None waits without limit.
    """

    timeout: float | None


class TakeTail(OfQueue, kw_only=True):
    """Asks for the samples of a closed queue that filled no batch, as a batch; `Done` if there are none any more."""


class GetQueueStatistics(OfQueue, kw_only=True):
    """Asks for `QueueRecord`."""


class OfWeights(Request, kw_only=True):
    """A request to published weights.

    Attributes:
        weights: their name.
    """

    weights: str


class AwaitVersion(OfWeights, kw_only=True):
    """Asks for `Count`, the version of the newest set, as soon as it is another than the client has.

    Attributes:
        known: the version that the client has.
        publisher: of that set (`Count`); 0: any.
    """

    known: int
    publisher: int = 0


class GetWeights(OfWeights, kw_only=True):
    """Asks for `Count`, the version of the newest set, with the set behind it.

    Attributes:
        layout: fingerprint of the names, shapes and dtypes that the client expects.
    """

    layout: str


class ReturnBlocks(Message):
    """Client to server: no array over these blocks of the batch arena is alive. There is no answer."""

    blocks: list[int]


AnyRequest: TypeAlias = (
    Hello
    | Goodbye
    | Cancel
    | Ping
    | GetServerStatistics
    | SaveReplays
    | CheckOpen
    | GetFinalColumns
    | GetStatistics
    | GetTableStatistics
    | GetDistribution
    | Configure
    | CanInsert
    | CanSample
    | Reset
    | UpdatePriorities
    | Delete
    | Sample
    | Peek
    | ListKeys
    | GetItems
    | GetRemaining
    | OpenSender
    | SendSamples
    | ConfirmSamples
    | TakeBatch
    | TakeTail
    | GetQueueStatistics
    | AwaitVersion
    | GetWeights
    | ReturnBlocks
)
LARGEST_NBYTES = 1 << 20
"""Largest message of a client, without its payload."""
