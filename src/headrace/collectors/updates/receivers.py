"""Weights that another publisher sends to a collector."""

# Rules: collectors CW8

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.weights import WeightReceiver


class Received(NamedTuple):
    """A set of weights as its publisher sent it.

    Attributes:
        model_id: of the model that it is for.
        version: its number there.
        weights: a tree of arrays.
    """

    model_id: str
    version: int
    weights: Any


class Receivers:
    """The receiving ends of a collector, by model.

    >>> from headrace.weights import SharedMemory
    >>> import numpy as np
    >>> scheme = SharedMemory({"w": np.zeros(2)})
    >>> receivers = Receivers()
    >>> receivers.add({"policy": scheme.receiver()}, skips_present=True)
    >>> receivers.have_news
    False
    >>> scheme.publish({"w": np.ones(2)})
    1
    >>> receivers.have_news, list(receivers.take())
    (True, [Received(model_id='policy', version=1, weights={'w': array([1., 1.])})])
    >>> scheme.close()
    """

    def __init__(self) -> None:
        self._ends: dict[str, WeightReceiver] = {}
        # The versions that were taken; None: none yet.
        self._taken: dict[str, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._ends

    def add(self, ends: Mapping[str, WeightReceiver], *, skips_present: bool) -> None:
        """Adds receiving ends, each in place of one for the same model.

        Args:
            ends: by model.
            skips_present: the sets that they have now are not taken.
        """
        for model_id, end in ends.items():
            self._taken[model_id] = end.version if skips_present else None
            self._ends[model_id] = end

    @property
    def have_news(self) -> bool:
        """Whether a newer set can be taken: one read of an integer for each end."""
        if not self._ends:  # Each step of an inline collector looks here.
            return False
        return any(end.version != self._taken[model_id] for model_id, end in self._ends.items())

    def take(self) -> Iterator[Received]:
        """Yields the newest set of each end that was not taken before. It counts as taken when the next is asked for.

        Raises:
            Exception: raised by a receiving end.
        """
        for model_id, end in list(self._ends.items()):
            if end.version == self._taken[model_id]:
                continue
            version, weights = end.read()
            if weights is not None:  # Else nothing was published yet.
                yield Received(model_id, version, weights)
            self._taken[model_id] = version
