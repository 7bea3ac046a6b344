"""The settings of `headrace serve`: everything that its file says, checked."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.cli.serve.document import Document, Key
from headrace.cli.serve.sections import (
    CheckpointSection,
    FileSections,
    LimiterSection,
    MinSizeSection,
    PageSection,
    QueueOfBatchesSection,
    QueueSection,
    ReplaySection,
    SampleToInsertRatioSection,
    StackSection,
    TableSection,
    TokenSection,
)
from headrace.cli.serve.tls import server_context
from headrace.server.addresses import Address, can_be_host, parse_address
from headrace.server.limits import Limits
from headrace.spec import ArraySpec, Signature
from headrace.tables.description.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from headrace.tables.description.selectors import Selector
from headrace.tables.description.table import Table
from headrace.tables.description.table_json import SelectorJson, selector_from_json


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Arguments of a `Replay`; see there."""

    signature: Signature
    tables: tuple[Table, ...]
    capacity: int | None
    path: Path | None
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """Arguments of a `BatchQueue`; see there."""

    signature: Signature
    batch_size: int
    num_buffers: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that `headrace serve` needs.

    Attributes:
        document: the file, for errors that are found later.
        address, unix, insecure, token, tls, limits: see `hr.Server`.
        drain_timeout: see `Server.stop`.
        checkpoint, page: None for none.
        page_token: that visitors of the page show.
        replays, queues: by name.
    """

    document: Document
    address: str | None
    unix: Path | None
    insecure: bool
    tls: ssl.SSLContext | None
    limits: Limits
    drain_timeout: float
    checkpoint: CheckpointSection | None
    page: PageSection | None
    replays: dict[str, ReplaySettings]
    queues: dict[str, QueueSettings]
    token: str | None = field(repr=False)
    page_token: str | None = field(repr=False)


def read_settings(path: Path) -> Settings:
    """Reads a file, and those of its tokens and certificates.

    Raises:
        click.BadParameter: a mistake; names the file, the line and the key, what was expected, and what came.
    """
    document = Document(path)
    for key in (("token",), ("page", "token")):
        _refuse_secret(document, key)
    given = document.section((), FileSections)
    if given.address is None and given.unix is None:
        raise document.error((), 'expected address = "tcp://HOST:PORT", unix = "PATH", or both, got none')
    if given.address is not None:
        with document.at(("address",)):
            parse_address(given.address)
    if not given.replays and not given.queues:
        raise document.error((), "expected at least one table [replays.NAME] or [queues.NAME], got none")
    for name in given.replays.keys() & given.queues.keys():
        raise document.error(
            ("queues", name), "expected another name than that of a replay; rename one of them"
        )
    _check_protection(document, given)
    page = given.page
    if page is not None and not can_be_host(page.host):
        raise document.error(
            ("page", "host"), f"expected the name or IP address of this machine, got {page.host!r}"
        )
    if page is not None and page.token is None and not Address(host=page.host).is_local:
        raise document.error(
            ("page", "host"),
            f'other machines reach {page.host}; add token = {{ environment = "NAME" }} to [page]',
        )
    # Clients in other folders use the paths that they are told: the socket, and the folders of checkpoints.
    folder, checkpoint = path.parent.absolute(), given.checkpoint
    if checkpoint is not None:
        checkpoint = msgspec.structs.replace(checkpoint, directory=str(folder / checkpoint.directory))
    return Settings(
        document=document,
        address=given.address,
        unix=None if given.unix is None else folder / given.unix,
        insecure=given.insecure,
        tls=None if given.tls is None else server_context(document, given.tls),
        drain_timeout=given.drain_timeout,
        limits=_limits(document, given.limits),
        checkpoint=checkpoint,
        page=page,
        replays={name: _replay(document, ("replays", name)) for name in given.replays},
        queues={name: _queue(document, ("queues", name)) for name in given.queues},
        token=_token(document, ("token",), given.token),
        page_token=_token(document, ("page", "token"), None if page is None else page.token),
    )


def _check_protection(document: Document, given: FileSections) -> None:
    """Refuses an address that strangers reach; `hr.Server` does, too, in words of Python."""
    has_certificates = given.tls is not None and given.tls.client_authorities is not None
    if given.address is None or given.token is not None or has_certificates or given.insecure:
        return
    if not parse_address(given.address).is_local:
        raise document.error(
            ("address",),
            f"other machines reach {given.address}, and anyone there could read and write; add "
            'token = { environment = "NAME" } above the first table, or client_authorities to [tls] '
            "(insecure = true allows it)",
        )


def _limits(document: Document, given: dict[str, Any]) -> Limits:
    limits = Limits()
    known = [each.name for each in fields(Limits)]
    for name, value in given.items():
        if name not in known:
            raise document.error(("limits", name), f"unknown key; expected one of {', '.join(known)}")
        with document.at(("limits", name)):
            limits = replace(limits, **{name: value})
    return limits


def _replay(document: Document, key: Key) -> ReplaySettings:
    given = document.section(key, ReplaySection)
    return ReplaySettings(
        signature=_signature(document, (*key, "signature"), given.signature),
        tables=tuple(_table(document, (*key, "tables", name)) for name in given.tables),
        capacity=given.capacity,
        path=None if given.path is None else document.path.parent / given.path,
        seed=given.seed,
    )


def _queue(document: Document, key: Key) -> QueueSettings:
    given = document.section(key, QueueOfBatchesSection)
    return QueueSettings(
        signature=_signature(document, (*key, "signature"), given.signature),
        batch_size=given.batch_size,
        num_buffers=given.num_buffers,
    )


def _table(document: Document, key: Key) -> Table:
    given = document.section(key, TableSection)
    with document.at((*key, "rate_limiter")):
        limiter = _limiter(given.rate_limiter)
    sampler = _selector(document, (*key, "sampler"), given.sampler)
    remover = _selector(document, (*key, "remover"), given.remover)
    with document.at(key):
        return Table(
            key[-1],
            sampler=sampler,
            remover=remover,
            max_size=given.max_size,
            rate_limiter=limiter,
            max_times_sampled=given.max_times_sampled,
            new_priority=given.new_priority,
        )


# The record of selectors has the keys of all kinds. One that the kind has no use for is a mistake, not a wish.
_KEYS_OF_SELECTORS = {"Uniform": ("kind", "replacement"), "Prioritized": ("kind", "priority_exponent")}


def _selector(document: Document, key: Key, given: SelectorJson) -> Selector:
    known = _KEYS_OF_SELECTORS.get(given.kind, ("kind",))
    for name in document.value(key):
        if name not in known:
            raise document.error(
                (*key, name), f"unknown key of {given.kind}; expected one of {', '.join(known)}"
            )
    with document.at(key):
        return selector_from_json(given)


def _limiter(given: LimiterSection) -> RateLimiter:
    match given:
        case MinSizeSection(n=n):
            return MinSize(n)
        case QueueSection(n=n):
            return Queue(n)
        case StackSection(n=n):
            return Stack(n)
        case SampleToInsertRatioSection(
            samples_per_insert=ratio, min_size_to_sample=size, error_buffer=buffer
        ):
            return SampleToInsertRatio(ratio, size, buffer)


def _signature(document: Document, key: Key, given: dict[str, Any]) -> Signature:
    tree = _tree(document, key, given)
    with document.at(key):
        return Signature(tree)


def _tree(document: Document, key: Key, given: Any) -> Any:
    """Returns the tree of `ArraySpec` of a table; a table with a `dtype` is an array, and a list is a tuple."""
    if isinstance(given, list) and given:
        return tuple(_tree(document, key, each) for each in given)
    if not isinstance(given, dict) or not given:
        raise document.error(key, _WANTED_COLUMN.format(given))
    if not isinstance(given.get("dtype"), str):
        return {name: _tree(document, (*key, name), each) for name, each in given.items()}
    unknown = [name for name in given if name not in ("shape", "dtype")]
    if unknown:
        raise document.error((*key, unknown[0]), "unknown key of an array; expected dtype and shape")
    with document.at(key):
        return ArraySpec(given.get("shape", ()), given["dtype"])


_WANTED_COLUMN = (
    'expected an array such as {{ dtype = "float32", shape = [3] }}, or a table of them, got {!r:.80}'
)


def _refuse_secret(document: Document, key: Key) -> None:
    found: Any = document.values
    for name in key:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str):
        raise document.error(
            key,
            'expected the place of the secret: { environment = "NAME" } or { file = "PATH" }. The secret itself '
            "does not belong in this file; if others can read the file, make a new secret",
        )


def _token(document: Document, key: Key, given: TokenSection | None) -> str | None:
    if given is None:
        return None
    match given.environment, given.file:
        case str(name), None:
            found = os.environ.get(name, "")
            if not found:
                raise document.error(
                    (*key, "environment"), f"the environment variable {name} is not set; set it"
                )
        case None, str(file):
            try:
                found = (document.path.parent / file).read_text("utf-8").strip()
            except (OSError, ValueError) as error:  # Not UTF-8, or a name that cannot be one.
                raise document.error((*key, "file"), f"expected a file with a secret, got {error}") from error
            if not found:
                raise document.error((*key, "file"), f"{file} is empty; write the secret into it")
        case _:
            raise document.error(key, 'expected either environment = "NAME" or file = "PATH"')
    return found
