"""Publishing ends that workers read by themselves."""

# Rules: collectors CV1, CV2, CW7

from __future__ import annotations

from collections.abc import Mapping

from headrace.weights import WeightScheme


class PublishingEnds:
    """The numbers of the sets on publishing ends that workers read: other publishers may use these ends as well.

    Args:
        ends: by model.

    >>> from headrace.weights import SharedMemory
    >>> import numpy as np
    >>> scheme = SharedMemory({"w": np.zeros(2)})
    >>> ends = PublishingEnds({"policy": scheme})
    >>> scheme.publish({"w": np.ones(2)}), ends.newest
    (1, 1)
    >>> ends.skip_present()
    >>> ends.newest
    0
    >>> scheme.close()
    """

    def __init__(self, ends: Mapping[str, WeightScheme]) -> None:
        self._ends = ends
        self._skipped: dict[str, int] = {}

    @property
    def newest(self) -> int:
        """The number of the newest set that was not skipped; 0: there is none."""
        versions = {model_id: end.version for model_id, end in self._ends.items()}
        return max(
            (version for model_id, version in versions.items() if version != self._skipped.get(model_id)),
            default=0,
        )

    def skip_present(self) -> None:
        """Leaves out the present sets, because workers have loaded others in their place."""
        self._skipped = {model_id: end.version for model_id, end in self._ends.items()}
