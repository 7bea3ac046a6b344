"""Publication of new weights, by the learner's call or from a receiving end."""

# Rules: collectors CW1, CW5 to CW10, CV1, CV5

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from headrace.checks import check_mapping
from headrace.collectors.updates.models import POLICY, CheckedWeights, check_model_id
from headrace.collectors.updates.numbering import Versions
from headrace.collectors.updates.receivers import Receivers
from headrace.collectors.updates.sources import Arguments, Publication, own_model
from headrace.collectors.updates.target import WeightTarget
from headrace.errors import SpecError
from headrace.weights import NoSync, WeightReceiver, WeightScheme, read_weights
from headrace.weights.layout import same_bytes


class WeightUpdater:
    """Checks, numbers and publishes the weights of a collector. Thread-safe.

    Args:
        target: the policies.
        versions: of the collector.
        schemes: publishing ends of the models that have one of their own.
        policy: the policy object that the collector was made with; None: there is none.

    Attributes:
        receivers: the receiving ends that were registered.
    """

    def __init__(
        self,
        target: WeightTarget,
        versions: Versions,
        schemes: Mapping[str, WeightScheme],
        policy: Any,
    ) -> None:
        self._target = target
        self._versions = versions
        self._schemes = schemes
        self._policy = policy
        self.receivers = Receivers()
        # One publication at a time, so that numbers rise in the order of the sets.
        self._lock = threading.Lock()
        # Copies of the arrays that were published last, for `mirror`; None: unlike those of any one set.
        self._mirrors = False
        self._mirrored: list[NDArray[Any]] | None = None
        self._begin_with_schemes()

    def _begin_with_schemes(self) -> None:
        """Applies what the publishing ends have published before, under their newest number."""
        versions, target = self._versions, self._target
        versions.reach(max((scheme.version for scheme in self._schemes.values()), default=0))
        if versions.newest:
            target.renumber(versions.newest)
        for model_id, scheme in self._schemes.items():
            if scheme.version:
                _, weights = scheme.receiver().read()
                target.publish({model_id: target.models[model_id].checked(weights)}, versions.newest, None)

    def update(self, arguments: Arguments) -> None:
        """Publishes the weights of a call of `update_policy_weights_`."""
        if not arguments.sources() and self.receivers:
            self.receive()
            return
        target = self._target
        self._check_scheme(arguments)
        publications = arguments.publications(target.models, target.devices, self._policy)
        for publication in publications:
            target.check_workers(publication.workers)
        checked = [(self._checked(publication), publication.workers) for publication in publications]
        with self._lock:
            for weights, workers in checked:
                self._publish(weights, workers)

    def _check_scheme(self, arguments: Arguments) -> None:
        if arguments.worker_ids is None:
            return
        for model_id in arguments.weights_dict or (arguments.model_id,):
            if model_id in self._schemes:
                scheme = type(self._schemes[model_id]).__name__
                raise TypeError(
                    f"worker_ids: expected a model with the default scheme, got {model_id!r} with {scheme}, which "
                    "cannot tell workers apart"
                )

    def _checked(self, publication: Publication) -> dict[str, CheckedWeights]:
        # The policy comes first, so that the weights of a part act where both are given.
        return {
            model_id: model.checked(publication.weights[model_id])
            for model_id, model in self._target.models.items()
            if model_id in publication.weights and not isinstance(self._schemes.get(model_id), NoSync)
        }

    def _publish(self, weights: Mapping[str, CheckedWeights], workers: Any) -> None:
        if not weights:
            return
        own = {model_id: self._schemes[model_id] for model_id in weights if model_id in self._schemes}
        # Another publisher may have used the ends meanwhile: their numbers rise.
        self._versions.reach(max((scheme.version for scheme in own.values()), default=0))
        number = self._take_number()
        for model_id, scheme in own.items():
            scheme.publish(weights[model_id].tree, version=number)
        self._target.publish(weights, number, workers)
        self._note_published(weights, workers)

    def _take_number(self) -> int:
        """Takes the number after that of the newest set, whoever has published it."""
        self._versions.reach(self._target.newest_elsewhere)
        return self._versions.take()

    # ---- mirroring -------------------------------------------------------------------------------------------------

    def begin_mirroring(self) -> None:
        """Remembers the present weights of the policy object, which version 0 names."""
        # Rules: collectors CW5
        if isinstance(self._schemes.get(POLICY), NoSync):
            return
        with self._lock:
            self._mirrors = True
            self._mirrored = [array.copy() for array in self._own_policy().arrays]

    def mirror(self) -> None:
        """Publishes the weights of the policy object, if they differ from those published last."""
        # Rules: collectors CW5
        with self._lock:
            if not self._mirrors:
                return
            new = self._own_policy()
            if self._mirrored is None or not same_bytes(new.arrays, self._mirrored):
                self._publish({POLICY: new}, None)

    def _own_policy(self) -> CheckedWeights:
        return self._target.models[POLICY].checked(read_weights(own_model(self._policy, POLICY)))

    def _note_published(self, weights: Mapping[str, CheckedWeights], workers: Any) -> None:
        """Keeps a copy of the newest weights of the whole policy; None: workers differ, or a part is newer."""
        if not self._mirrors:
            return
        is_whole = workers is None and list(weights) == [POLICY]
        self._mirrored = [array.copy() for array in weights[POLICY].arrays] if is_whole else None

    # ---- receiving -------------------------------------------------------------------------------------------------

    def register(self, ends: Mapping[str, WeightReceiver], *, synchronize: bool) -> None:
        """Looks at these receiving ends from now on, in place of earlier ones for the same models.

        Args:
            ends: by model.
            synchronize: apply the sets that they have now.

        Raises:
            KeyError: an unknown model; nothing is registered.
            ValueError: a model that has a publishing end.
            TypeError: not a receiving end.
        """
        check_mapping("schemes", ends, "receiving ends by model")
        for model_id, end in ends.items():
            check_model_id(model_id, self._target.models)
            if model_id in self._schemes:
                raise ValueError(
                    f"schemes: {model_id}: expected a model without a publishing end in weight_sync_schemes"
                )
            if not isinstance(end, WeightReceiver):
                raise TypeError(
                    f"schemes: {model_id}: expected a receiving end, with version, read() and close(), got "
                    f"{type(end).__name__}"
                )
        with self._lock:
            self.receivers.add(ends, skips_present=not synchronize)
        if synchronize:
            self.receive()

    def receive(self) -> None:
        """Publishes the newest sets of the receiving ends that were not taken yet."""
        with self._lock:
            for received in self.receivers.take():
                new = self._target.models[received.model_id].checked(received.weights)
                self._target.publish(
                    {received.model_id: new}, self._number(received.model_id, received.version), None
                )

    def _number(self, model_id: str, version: int) -> int:
        """The number of a received set: of the policy, where it is received; of a part, where only parts are."""
        self._versions.reach(self._target.newest_elsewhere)
        if model_id == POLICY or POLICY not in self.receivers:
            return self._versions.follow(version)
        return self._versions.newest

    @property
    def model_ids(self) -> Collection[str]:
        """The ids of the models."""
        return self._target.models.keys()

    # ---- about -----------------------------------------------------------------------------------------------------

    def renumber(self) -> None:
        """Gives the present weights the next number."""
        with self._lock:
            self._target.renumber(self._take_number())

    def cached(self, model_id: str) -> Any:
        """Returns the newest published weights of a model as read-only arrays; None before the first, or if unknown."""
        return self._target.cached(model_id)

    def initialize_schemes(self, *args: Any, **kwargs: Any) -> None:
        """Calls `init` of the schemes."""
        for model_id, scheme in self._schemes.items():
            init = getattr(scheme, "init", None)
            if init is None:
                raise TypeError(f"init_updater: {model_id}: {type(scheme).__name__} has no init")
            init(*args, **kwargs)

    @property
    def newest(self) -> int:
        """The number of the newest set."""
        return max(self._versions.newest, self._target.newest_elsewhere)

    def state(self) -> dict[str, Any]:
        """Returns the versions, to be saved."""
        with self._lock:
            self._versions.reach(self._target.newest_elsewhere)
            return self._versions.state()

    def load_state(self, state: Mapping[str, Any], workers: Sequence[tuple[Any, int]] = ()) -> None:
        """Restores what `state` returned: the present weights have its newest number.

        Args:
            state: as it was returned.
            workers: of workers that have loaded weights: these, and their number.
        """
        with self._lock:
            self._versions.load_state(state)
            self._target.renumber(self._versions.newest)
            self._publish_loaded([(weights, number) for weights, number in workers if weights is not None])

    def _publish_loaded(self, workers: Sequence[tuple[Any, int]]) -> None:
        """Publishes what workers have loaded: a process that is started again in place of one begins with it."""
        # Rules: collectors CV5, CX3
        if not workers or POLICY in self._schemes or not self._are_alike():
            return
        model = self._target.models[POLICY]
        checked = [(model.checked(weights), number) for weights, number in workers]
        first, newest = checked[0]
        if all(number == newest and same_bytes(new.arrays, first.arrays) for new, number in checked):
            self._target.publish({POLICY: first}, newest, None)
            return
        for worker, (new, number) in enumerate(checked):
            self._target.publish({POLICY: new}, number, [worker])

    def _are_alike(self) -> bool:
        try:
            self._target.check_workers(None)
        except SpecError:
            return False
        return True
