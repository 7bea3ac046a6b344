"""Samples of a replay on a server: the requests, and the batches out of the answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, check_mapping, check_seconds
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.answers.batches import batch_of
from headrace.server.client.calls import ReplayCalls
from headrace.server.client.connecting import NETWORK_SECONDS
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.messages.answers import Done
from headrace.server.messages.requests import GetItems, Sample
from headrace.server.messages.views import ViewRecord, described_views
from headrace.spec import Signature
from headrace.store.layout import MAX_ROWS
from headrace.views.columns import Columns
from headrace.views.view import View

Sent = TypeVar("Sent")


class ViewsKey:
    """Views as a key of a dict, which computes its hash once.

    Args:
        views: that batches present.

    Attributes:
        views: see above.
    """

    __slots__ = ("_hash", "_items", "views")

    def __init__(self, views: Mapping[str, View]) -> None:
        check_mapping("views", views, "View")
        self.views = views
        self._items = tuple(views.items())
        self._hash = hash(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> Any:
        return isinstance(other, ViewsKey) and self._items == other._items


class RemoteSampling:
    """Samples one replay. Thread-safe.

    Args:
        calls: to the server.
        signature: of the replay.

    Attributes:
        calls: see above.
    """

    def __init__(self, calls: ReplayCalls, signature: Signature) -> None:
        self.calls = calls
        self._signature = signature
        # Views of the last request: the caller's dict, and a copy of it.
        self._latest: tuple[Mapping[str, View], dict[str, View], ViewsKey] | None = None

    def key_of(self, views: Mapping[str, View] | None) -> ViewsKey | None:
        """Returns views as a key; most requests have those of the last one.

        Raises:
            TypeError: they are not views.
        """
        if views is None:
            return None
        latest = self._latest
        # The dict may have been changed since. Comparing it with a copy is quick: its values are the same objects.
        if latest is not None and latest[0] is views and latest[1] == views:
            return latest[2]
        key = ViewsKey(views)
        self._latest = views, dict(views), key
        return key

    def request(self, table: str, batch_size: int, timeout: float | None) -> Sample:
        """Returns the request for a batch.

        Raises:
            ValueError: no batch is that large.
        """
        batch_size, timeout = check_count("batch_size", batch_size, 1), check_seconds(timeout)
        if batch_size > MAX_ROWS:
            raise ValueError(f"batch_size: expected at most {MAX_ROWS}, got {batch_size}")
        return Sample(replay=self.calls.name, table=table, batch_size=batch_size, timeout=timeout)

    def ask(self, request: Sample, key: ViewsKey | None, link: Link) -> list[Reply]:
        """Sends a request; returns one reply for each of its batches.

        Args:
            request: whose views it sets, and their description if the server does not know them.
            key: the views; None presents the signature's tree.
            link: to the server.
        """
        return self._send(request, key, link, lambda: self.calls.begin_samples(link, request))

    def _send(
        self, request: Sample | GetItems, key: ViewsKey | None, link: Link, send: Callable[[], Sent]
    ) -> Sent:
        """Sends a request with its views; see `ask`."""
        if key is None:
            return send()

        def describe() -> dict[str, ViewRecord]:
            return described_views(key.views, Columns.of_store(self._signature, frozenset()))

        return link.views.send(request, (request.replay, key), describe, send)

    def sample(
        self, table: str, batch_size: int, views: Mapping[str, View] | None, timeout: float | None
    ) -> ReplaySample:
        """Draws a batch; see `Replay.sample`."""
        request = self.request(table, batch_size, timeout)
        key = self.key_of(views)
        link = self.calls.link(request.timeout)
        [reply] = self.ask(request, key, link)
        link.wait(reply, None if request.timeout is None else max(request.timeout, 0.0) + NETWORK_SECONDS)
        return self.batch(reply, views)

    def items(
        self, request: GetItems, keys: NDArray[np.uint64], views: Mapping[str, View] | None
    ) -> ReplaySample | None:
        """Returns items by their keys; None if none of them has an item any more. See `Replay.get`."""
        key = self.key_of(views)
        link = self.calls.link()
        payload = keys.astype("<u8", copy=False).tobytes()
        reply = self._send(request, key, link, lambda: self.calls.begin(link, request, payload))
        answer, _ = link.wait(reply, None)
        return None if isinstance(answer, Done) else batch_of(reply, self._signature, views)

    def batch(self, reply: Reply, views: Mapping[str, View] | None) -> ReplaySample:
        """Returns the batch of an answer that has come.

        Raises:
            Exception: the answer is an error.
        """
        answer, _ = reply.result()
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=5)
        return batch_of(reply, self._signature, views)
