"""The tables of a file of settings, as records: their keys, types and defaults."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.tables.description.table_json import SelectorJson

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
# An empty one would be the folder of the file.
_Path = Annotated[str, msgspec.Meta(min_length=1)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class MinSizeSection(_Section, frozen=True, tag_field="kind", tag="MinSize"):
    """See `rate_limiters.MinSize`."""

    n: int


class QueueSection(_Section, frozen=True, tag_field="kind", tag="Queue"):
    """See `rate_limiters.Queue`."""

    n: int


class StackSection(_Section, frozen=True, tag_field="kind", tag="Stack"):
    """See `rate_limiters.Stack`."""

    n: int


class SampleToInsertRatioSection(_Section, frozen=True, tag_field="kind", tag="SampleToInsertRatio"):
    """See `rate_limiters.SampleToInsertRatio`."""

    samples_per_insert: float
    min_size_to_sample: int
    error_buffer: float | tuple[float, float]


LimiterSection = MinSizeSection | QueueSection | StackSection | SampleToInsertRatioSection


class TableSection(_Section, frozen=True):
    """`[replays.NAME.tables.TABLE]`: a table of a replay; see `hr.Table`."""

    sampler: SelectorJson
    remover: SelectorJson
    max_size: int
    rate_limiter: LimiterSection = MinSizeSection(n=1)
    max_times_sampled: int = 0
    new_priority: Any = 1.0  # `Table` says best what is wrong with it.


class ReplaySection(_Section, frozen=True):
    """`[replays.NAME]`: a replay; see `hr.Replay`."""

    signature: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    capacity: int | None = None
    path: _Path | None = None
    seed: int | None = None


class QueueOfBatchesSection(_Section, frozen=True):
    """`[queues.NAME]`: a queue of batches; see `hr.BatchQueue`."""

    signature: dict[str, Any]
    batch_size: int
    num_buffers: int = 3


class TokenSection(_Section, frozen=True):
    """`[token]`: the place of a secret. The secret itself is never in the file.

    Attributes:
        environment: name of an environment variable.
        file: path of a file; spaces and ends of lines around the secret are left out.
    """

    environment: str | None = None
    file: _Path | None = None


class TlsSection(_Section, frozen=True):
    """`[tls]`: encrypts the TCP address; all files are PEM.

    Attributes:
        certificate: of the server, followed by those of its authorities up to the root.
        key: of the certificate, without a pass phrase.
        client_authorities: clients must have a certificate of one of these; None asks for none.
    """

    certificate: _Path
    key: _Path
    client_authorities: _Path | None = None


class CheckpointSection(_Section, frozen=True):
    """`[checkpoint]`: the replays are saved to `directory/NAME`, and at the end.

    Attributes:
        directory: made if it does not exist.
        every_seconds: time from one save to the next; None saves only at the end.
        keep: removes all but the newest checkpoints of each replay; None removes none.
        load_newest: begins with the newest checkpoint of each replay without a path, if there is one.
    """

    directory: _Path
    every_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep: _Count | None = None
    load_newest: bool = False


class PageSection(_Section, frozen=True):
    """`[page]`: the live page; see `hr.monitor.serve`.

    Attributes:
        token: of the visitors. It is not the token of the server, because browsers send it as it is.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8080
    token: TokenSection | None = None


class FileSections(_Section, frozen=True):
    """The whole file."""

    address: str | None = None
    unix: _Path | None = None
    insecure: bool = False
    drain_timeout: _Seconds = 5.0
    token: TokenSection | None = None
    tls: TlsSection | None = None
    limits: dict[str, Any] = {}
    checkpoint: CheckpointSection | None = None
    page: PageSection | None = None
    replays: dict[str, dict[str, Any]] = {}
    queues: dict[str, dict[str, Any]] = {}
