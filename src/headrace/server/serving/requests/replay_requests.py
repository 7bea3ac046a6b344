"""Requests to a replay that are answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.leases.frames import Payload
from headrace.replay.public import Replay
from headrace.server.messages.answers import (
    Answer,
    Count,
    DistributionRecord,
    Done,
    Flag,
    Names,
    ReplayRecord,
    TableRecord,
)
from headrace.server.messages.columns import unpacked_numbers
from headrace.server.messages.requests import (
    CanInsert,
    CanSample,
    CheckOpen,
    Configure,
    Delete,
    GetDistribution,
    GetFinalColumns,
    GetStatistics,
    GetTableStatistics,
    OfReplay,
    Reset,
    UpdatePriorities,
)
from headrace.tables.description.table_json import limiter_from_json

KEYS = np.dtype("<u8")
PRIORITIES = np.dtype("<f8")


def answer_replay(replay: Replay, request: OfReplay, payload: Payload) -> Answer:
    """Returns the answer to a request.

    Raises:
        Exception: what the call raises, for the client.
    """
    return _CALLS[type(request)](replay, request, payload)


def _check_open(replay: Replay, request: CheckOpen, _: Payload) -> Answer:
    replay.check_open()
    return Done(number=request.number)


def _final_columns(replay: Replay, request: GetFinalColumns, _: Payload) -> Answer:
    return Names(number=request.number, values=sorted(replay.final_columns))


def _statistics(replay: Replay, request: GetStatistics, _: Payload) -> Answer:
    return ReplayRecord(number=request.number, record=replay.statistics())


def _table_statistics(replay: Replay, request: GetTableStatistics, _: Payload) -> Answer:
    return TableRecord(number=request.number, record=replay.table(request.table).statistics())


def _distribution(replay: Replay, request: GetDistribution, _: Payload) -> Answer:
    return DistributionRecord(number=request.number, record=replay.table(request.table).distribution())


def _configure(replay: Replay, request: Configure, _: Payload) -> Answer:
    limiter = None if request.rate_limiter is None else limiter_from_json(request.rate_limiter)
    replay.table(request.table).configure(max_size=request.max_size, rate_limiter=limiter)
    return Done(number=request.number)


def _can_insert(replay: Replay, request: CanInsert, _: Payload) -> Answer:
    return Flag(number=request.number, value=replay.can_insert(request.table, request.n))


def _can_sample(replay: Replay, request: CanSample, _: Payload) -> Answer:
    return Flag(number=request.number, value=replay.can_sample(request.table, request.n))


def _reset(replay: Replay, request: Reset, _: Payload) -> Answer:
    replay.reset(request.table)
    return Done(number=request.number)


def _delete(replay: Replay, request: Delete, payload: Payload) -> Answer:
    keys = unpacked_numbers("keys", payload, KEYS)
    return Count(number=request.number, value=replay.delete(request.table, keys))


def _update_priorities(replay: Replay, request: UpdatePriorities, payload: Payload) -> Answer:
    end = request.keys * KEYS.itemsize
    if not 0 <= end <= len(payload):
        raise ValueError(f"keys: expected {request.keys} keys in {len(payload)} bytes")
    keys = np.frombuffer(payload[:end], KEYS)
    priorities = unpacked_numbers("priorities", payload[end:], PRIORITIES)
    return Count(number=request.number, value=replay.update_priorities(request.table, keys, priorities))


_CALLS: dict[type[OfReplay], Callable[[Replay, Any, Payload], Answer]] = {
    CheckOpen: _check_open,
    GetFinalColumns: _final_columns,
    GetStatistics: _statistics,
    GetTableStatistics: _table_statistics,
    GetDistribution: _distribution,
    Configure: _configure,
    CanInsert: _can_insert,
    CanSample: _can_sample,
    Reset: _reset,
    Delete: _delete,
    UpdatePriorities: _update_priorities,
}
