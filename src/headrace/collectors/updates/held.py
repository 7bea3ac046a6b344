"""New weights that are kept back while workers begin a batch that is to have one version."""

# Rules: collectors CW3, CV6

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.collectors.updates.models import CheckedWeights, ModelWeights
from headrace.errors import SpecError


class HeldPublication(NamedTuple):
    """A call of `WeightTarget.publish`, with arrays of its own; without weights it is a new number alone."""

    weights: Mapping[str, CheckedWeights]
    number: int
    workers: Sequence[int] | None


class HeldPublications:
    """Keeps publications in their order, without those that a later one replaces: a slow batch costs no more memory."""

    def __init__(self) -> None:
        self._held: list[HeldPublication] = []

    def add(self, weights: Mapping[str, CheckedWeights], number: int, workers: Sequence[int] | None) -> None:
        """Keeps a copy."""
        copies: dict[str, CheckedWeights] = {}
        for model_id, new in weights.items():
            arrays = [array.copy() for array in new.arrays]
            copies[model_id] = CheckedWeights(new.layout, new.layout.tree(arrays), arrays)
        newest = HeldPublication(copies, number, workers)
        self._held = [*(each for each in self._held if not _replaces(newest, each)), newest]

    def newest(self, model_id: str) -> CheckedWeights | None:
        """Returns the newest weights of a model; None: there are none."""
        for publication in reversed(self._held):
            newest: CheckedWeights | None = publication.weights.get(model_id)
            if newest is not None:
                return newest
        return None

    def state_dict(self) -> list[dict[str, Any]]:
        """Returns the publications, to be saved."""
        return [
            {
                "weights": {model_id: new.copy() for model_id, new in each.weights.items()},
                "number": each.number,
                "workers": None if each.workers is None else list(each.workers),
            }
            for each in self._held
        ]

    @classmethod
    def from_state(
        cls, state: Sequence[Mapping[str, Any]], models: Mapping[str, ModelWeights]
    ) -> HeldPublications:
        """Returns the publications of a state.

        Raises:
            SpecError: weights that do not fit their models.
        """
        held = cls()
        for number, each in enumerate(state):
            path = f"collector/held/publications/{number}/weights"
            weights = {
                model_id: _checked(f"{path}/{model_id}", models[model_id], tree)
                for model_id, tree in each["weights"].items()
            }
            held.add(weights, each["number"], each["workers"])
        return held

    def take(self) -> Iterator[HeldPublication]:
        """Yields all of them. Each is forgotten when the next one is asked for: Ctrl-C before that loses none."""
        while self._held:
            yield self._held[0]
            self._held = self._held[1:]


def _checked(path: str, model: ModelWeights, tree: Any) -> CheckedWeights:
    try:
        return model.checked(tree)
    except SpecError as error:
        raise SpecError(f"load_state_dict: {path}: {error}; nothing was changed") from None


def _replaces(newer: HeldPublication, older: HeldPublication) -> bool:
    """Whether all models of all workers that the older one gives weights get newer ones."""
    reaches = newer.workers is None or (
        older.workers is not None and set(older.workers) <= set(newer.workers)
    )
    return reaches and older.weights.keys() <= newer.weights.keys()
