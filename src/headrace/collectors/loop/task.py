"""The work of one collecting loop, as it travels to a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.envs import make_stepper
from headrace.envs.closing import ClosesLate
from headrace.envs.protocol import AsyncStepper, VectorStepper
from headrace.policies import ExplorationType, placed_policy
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.weights import WeightReceiver


@dataclass(frozen=True, kw_only=True)
class Task:
    """The environments, the policy, and the size of a rollout.

    Attributes:
        create_env_fn, create_env_kwargs, num_envs, info_columns: see `make_stepper`.
        policy, policy_factory: the policy, or a callable that makes it; both None: random actions.
        views: see `Collector`.
        frames_per_batch: of all environments, before it is rounded up to whole steps.
        init_random_frames, exploration_type, max_frames_per_traj: see `Collector`.
        reset_at_each_iter, reset_when_done, set_truncated: see `Collector`.
        policy_device, env_device: names of torch devices; None: not given.
        max_staleness: the bound on the age of the rows of a batch, which some loops cannot keep; None: none.
        replay: the signature of the replay that rows go into; None: no replay.
        postproc: changes the batches of rollouts before their rows go into a replay; None: rows go there as they are.
        model_paths: dotted paths of parts of the policy whose weights can be replaced.
        weight_ends: receiving ends of the models that have a publishing end of their own.
    """

    create_env_fn: Any
    create_env_kwargs: Mapping[str, Any] | None = None
    num_envs: int = 1
    info_columns: Mapping[str, ArraySpec] | None = None
    policy: Any = None
    policy_factory: Any = None
    views: Mapping[str, View] | None = None
    frames_per_batch: int
    init_random_frames: int | None = None
    exploration_type: ExplorationType | None = None
    policy_device: Any = None
    env_device: Any = None
    max_frames_per_traj: int | None = None
    reset_at_each_iter: bool = False
    reset_when_done: bool = True
    set_truncated: bool = False
    max_staleness: int | None = None
    replay: Signature | None = None
    postproc: Callable[[Any], Any] | None = None
    model_paths: Sequence[str] = ()
    weight_ends: Mapping[str, WeightReceiver] = field(default_factory=dict)

    def make_policy(self) -> Any:
        """Returns the policy that acts, on its device; None: random actions.

        Raises:
            TypeError: the factory returned None, which is rather a missing `return` than random actions.
        """
        if self.policy_factory is None:
            return placed_policy(self.policy, self.policy_device)
        policy = self.policy_factory()
        if policy is None:
            raise TypeError(
                "policy_factory: expected it to return a policy, got None; is a `return` missing?"
            )
        return placed_policy(policy, self.policy_device)

    def make_stepper(self, closes_late: ClosesLate) -> VectorStepper | AsyncStepper:
        """Builds the environments, unless they are ready; see `headrace.envs.make_stepper`."""
        return make_stepper(
            self.create_env_fn,
            create_env_kwargs=self.create_env_kwargs,
            num_envs=self.num_envs,
            info_columns=self.info_columns,
            device=self.env_device,
            closes_late=closes_late,
        )

    @property
    def random_frames(self) -> int:
        """The number of frames begun before which actions are random."""
        return max(0, self.init_random_frames or 0)

    def steps(self, num_envs: int) -> int:
        """Returns T, the steps of one rollout of `num_envs` environments."""
        # Rules: collectors CR1
        return -(-self.frames_per_batch // num_envs)
