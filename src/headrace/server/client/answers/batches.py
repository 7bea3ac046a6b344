"""Batches out of answers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import HeadraceError
from headrace.leases.frames import ProtocolError
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.answers.batch_builder import BatchBuilder
from headrace.server.client.answers.placed_arrays import arrays_of
from headrace.server.client.reply import Reply
from headrace.spec import Signature
from headrace.views.view import View


def batch_of(reply: Reply, signature: Signature, views: Mapping[str, View] | None) -> ReplaySample:
    """Returns the batch of an answer that has come.

    Args:
        reply: the answer.
        signature: of the replay.
        views: of the request.

    Raises:
        ProtocolError: the answer is not a batch of these views.
    """
    answer, payload = reply.result()
    try:
        if reply.form is not None:
            return reply.form.batch(payload, [*reply.blocks.values()], signature, views)
        arrays = arrays_of(answer.arrays, payload, reply.blocks)
        return BatchBuilder(answer, arrays, signature, views).batch(arrays)
    except (HeadraceError, AttributeError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"the server sent something that is not a batch: {error}") from error
