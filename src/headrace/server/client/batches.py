"""Batches out of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import HeadraceError
from headrace.leases.frames import ProtocolError
from headrace.replay.sampling.packing import BatchLayout
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.placed_arrays import arrays_of
from headrace.server.client.reply import Reply
from headrace.server.messages.answers import Sampled
from headrace.spec import Signature
from headrace.views.columns import METADATA, Columns
from headrace.views.view import View

_INFO = ("<u8", "<f8", "<i8", "<f8", "<i8")


def batch_of(
    reply: Reply, blocks: MappedBlocks, signature: Signature, views: Mapping[str, View] | None
) -> ReplaySample:
    """Returns the batch of an answer that has come.

    Args:
        reply: the answer.
        blocks: of the connection.
        signature: of the replay.
        views: of the request.

    Raises:
        ProtocolError: the answer is not a batch of these views.
    """
    answer, payload = reply.result()
    try:
        if reply.form is not None:
            return _batch_of(reply.form.answer, reply.form.arrays(payload), signature, views)
        return _batch_of(answer, arrays_of(answer.arrays, payload, blocks), signature, views)
    except (HeadraceError, AttributeError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"the server sent something that is not a batch: {error}") from error


def _batch_of(
    answer: Sampled, arrays: list[NDArray[Any]], signature: Signature, views: Mapping[str, View] | None
) -> ReplaySample:
    mask = arrays.pop() if answer.has_mask else None
    values, info = arrays[: -len(_INFO)], arrays[-len(_INFO) :]
    if [each.dtype.str for each in info] != list(_INFO) or any(each.ndim != 1 for each in info):
        raise ValueError("expected the numbers of its items")
    data = columns_of(signature, values) if views is None else _views(answer, signature, views, values)
    layout = BatchLayout(answer.length, tuple((name, every) for name, every in answer.every))
    return ReplaySample(data, SampleInfo(*info), mask, layout)


def columns_of(signature: Signature, values: list[NDArray[Any]]) -> Any:
    """Returns the tree of arrays, one per column, `[n, ...]`.

    Raises:
        ValueError: they are not of this signature.
    """
    check_columns(signature, values)
    data = dict(zip(signature.columns, values, strict=True))
    return data if signature.is_flat else signature.unflatten(data)


def check_columns(signature: Signature, values: list[NDArray[Any]]) -> None:
    """Checks arrays, one per column, `[n, ...]`.

    Raises:
        ValueError: they are not of this signature.
    """
    for (name, spec), array in zip(signature.columns.items(), values, strict=True):
        _check_spec(name, array, spec.shape, spec.dtype)


def _check_spec(name: str, values: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if values.dtype != dtype or values.shape[values.ndim - len(shape) :] != shape:
        raise ValueError(f"{name}: expected {dtype}{list(shape)}, got {values.dtype}{list(values.shape)}")


def _views(
    answer: Sampled, signature: Signature, views: Mapping[str, View], values: list[NDArray[Any]]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    trees: dict[str, dict[str, NDArray[Any]]] = {}
    for (name, leaf), array in zip(answer.names or [], values, strict=True):
        if leaf:
            data.setdefault(name, None)
            trees.setdefault(name, {})[leaf] = array
        else:
            data[name] = array
    columns = Columns(signature, METADATA)
    for name, leaves in trees.items():
        path = views[name].data_col or name
        data[name] = columns.subtree(path).unflatten(leaves)
    return data
