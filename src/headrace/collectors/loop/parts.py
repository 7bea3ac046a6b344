"""The parts of a collector whose loop is in this process, as questions name them."""

# Rules: collectors CQ4 to CQ6

from __future__ import annotations

from typing import Any

from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.paths import follow_path
from headrace.collectors.profiling.config import ProfileConfig


class LoopParts:
    """Names the parts of a collecting loop, inline and in a worker alike."""

    _loop: CollectingLoop

    @property
    def env(self) -> Any:
        """The first environment."""
        return self._loop.stepper.environments[0]

    @property
    def policy(self) -> Any:
        """The policy that acts."""
        return self._loop.policy

    def _env_attribute(self, name: str) -> Any:
        return self._loop.stepper.get_attr(name)

    def _policy_attribute(self, name: str) -> Any:
        if self.policy is None:
            raise AttributeError(
                f"getattr_policy: {name}: expected a collector with a policy; this one acts at random"
            )
        return getattr(self.policy, name)

    def _begin_profile(self, config: ProfileConfig, worker_idx: int) -> None:
        """Records rollouts if this worker is to be profiled."""
        if worker_idx in config.workers:
            self._loop.begin_profile(config, worker_idx)

    def _end_profile(self) -> None:
        self._loop.end_profile()

    def _part(self, path: str) -> Any:
        return follow_path(self, path)
