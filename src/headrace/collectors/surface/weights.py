"""New weights for the policy, and their versions."""

# Rules: collectors CW1 to CW10, CV3, CV4

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.collectors.surface.parts import CollectorParts
from headrace.collectors.updates.models import POLICY, find_model
from headrace.collectors.updates.numbering import PolicyVersion
from headrace.collectors.updates.sources import Arguments
from headrace.weights import WeightReceiver


class WeightSurface(CollectorParts):
    """The public methods of weights and versions."""

    # ---- weights ---------------------------------------------------------------------------------------------------

    def update_policy_weights_(
        self,
        policy_or_weights: Any = None,
        *,
        weights: Any = None,
        policy: Any = None,
        worker_ids: Any = None,
        model_id: str = POLICY,
        weights_dict: Mapping[str, Any] | None = None,
    ) -> None:
        """Publishes new weights. Returning means published: the arrays may be changed at once.

        Weights are taken over as whole sets, between two steps. A slow worker skips to the newest set, and publishing
        waits for no worker. Any thread may call it. At most one source is given. Without one the weights are those of
        the policy object that the collector was made with, or the newest of a registered receiving end.

        Args:
            policy_or_weights: an object with `state_dict()`; a tree of arrays; or weights by worker,
                `{worker: weights}` with int keys, where each worker's set has a number of its own.
            weights: a tree of arrays (NumPy, torch, JAX, tensordict).
            policy: an object with `state_dict()`.
            worker_ids: the workers that get the weights: an index, a `policy_device`, or a list of these; None: all.
                The others keep their weights and their number.
            model_id: the model that gets the weights: the policy, or a key of `weight_sync_schemes`.
            weights_dict: weights of several models by their ids, which are taken over together. Where the policy and a
                part of it are given, the part has its own.

        Raises:
            ValueError: more than one source; none, and the collector was made without a policy object; a worker that
                does not exist; `model_id` with `weights_dict`.
            KeyError: an unknown model.
            SpecError: names, shapes or dtypes differ. Nothing is published, and no version is used.
            TypeError: a policy without `state_dict` and `load_state_dict`; `worker_ids` of a model with a scheme of
                its own.
            WorkerDied: a worker is gone for good. The others have the weights.
            Closed: after `shutdown`.
        """
        self._check_usable()
        self._updater.update(
            Arguments(
                policy_or_weights=policy_or_weights,
                weights=weights,
                policy=policy,
                worker_ids=worker_ids,
                model_id=model_id,
                weights_dict=weights_dict,
            )
        )
        self._check_workers()

    def register_scheme_receiver(
        self, schemes: Mapping[str, WeightReceiver], *, synchronize_weights: bool = True
    ) -> None:
        """Takes weights from another publisher from now on, under its version numbers.

        An inline collector looks for newer weights at each step. A collector with workers passes them on.

        Args:
            schemes: receiving ends by model: "policy", or a key of `weight_sync_schemes`.
            synchronize_weights: apply the sets that they have now.

        Raises:
            KeyError: an unknown model; nothing is registered.
            TypeError: not a receiving end.
            SpecError: the present set does not fit.
            Closed: after `shutdown`.
        """
        self._check_usable()
        self._updater.register(schemes, synchronize=synchronize_weights)
        self._follow_receivers()

    def receive_weights(
        self, policy_or_weights: Any = None, *, weights: Any = None, policy: Any = None
    ) -> None:
        """Applies the newest weights of the registered receiving ends now.

        Without receiving ends it does the same as `update_policy_weights_` with these arguments.

        Raises:
            ValueError: an argument, with receiving ends; two arguments.
            Exception: raised by `update_policy_weights_`.
        """
        arguments = Arguments(policy_or_weights=policy_or_weights, weights=weights, policy=policy)
        if arguments.sources() and self._updater.receivers:
            raise ValueError("receive_weights: expected no arguments, because receiving ends are registered")
        self.update_policy_weights_(policy_or_weights, weights=weights, policy=policy)

    def get_cached_weights(self, model_id: str) -> Any:
        """Returns the newest published weights of a model, read-only; None before the first, or if it is unknown."""
        return self._updater.cached(model_id)

    def get_model(self, model_id: str) -> Any:
        """Returns the object of a model: the policy of this process, or the part of it that the id names.

        Raises:
            ValueError: an unknown id; or this process has no policy object.
        """
        if model_id not in self._updater.model_ids:
            raise ValueError(
                f"get_model: expected one of {', '.join(self._updater.model_ids)}, got {model_id!r}"
            )
        if self.policy is None:
            raise ValueError(
                f"get_model: {model_id!r}: this process has no policy object; map_fn calls methods of the workers'"
            )
        return find_model(self.policy, model_id)

    def init_updater(self, *args: Any, **kwargs: Any) -> None:
        """Calls `init` of the schemes in `weight_sync_schemes` with these arguments; does nothing without schemes.

        Raises:
            TypeError: a scheme without `init`.
        """
        self._updater.initialize_schemes(*args, **kwargs)

    # ---- versions --------------------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int | str | None:
        """The version of the newest weights; None without `track_policy_version`."""
        self._home.check()
        tracked = self._versions.tracked
        return None if tracked is None else tracked.version_id(self._updater.newest)

    def get_policy_version(self) -> int | str | None:
        """Returns the version of the newest weights; None without `track_policy_version`."""
        return self.policy_version

    def version_id(self, number: int) -> int | str:
        """Returns the version that rows carry as `number`: the number, or with `track_policy_version="uuid"` its UUID.

        Raises:
            RuntimeError: without `track_policy_version`.
            ValueError: a negative number, which random actions carry.
        """
        return self._tracked("version_id").version_id(number)

    def increment_version(self) -> None:
        """Takes the next number without new weights. Rows carry it from the next step on.

        Raises:
            RuntimeError: without `track_policy_version`.
            Closed: after `shutdown`.
        """
        self._check_usable()
        self._tracked("increment_version")
        self._updater.renumber()

    def _tracked(self, caller: str) -> PolicyVersion:
        tracked = self._versions.tracked
        if tracked is None:
            raise RuntimeError(f"{caller}: expected a collector with track_policy_version=True")
        return tracked

    def _check_workers(self) -> None:
        """Raises `WorkerDied` if a worker is gone for good; inline there is none."""

    def _follow_receivers(self) -> None:
        """Looks for received weights from now on; inline each step looks."""
