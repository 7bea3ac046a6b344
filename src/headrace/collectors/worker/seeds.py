"""Seeds of a worker's environments and of its process's global generators."""

# Rules: collectors CS1, CS3, CX3

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from headrace.collectors.messages import Start
from headrace.envs import environment_seeds


class WorkerSeeds:
    """Seeds a worker: by the collector's seed alone, or, started again, by a stream of its own.

    Args:
        start: the collector's first message.
    """

    def __init__(self, start: Start) -> None:
        self._worker_idx = start.worker_idx
        self._seed = start.seed
        self._restarts = start.restarts

    def of_environments(self, num_envs: int) -> list[int] | None:
        """Returns the seeds of the worker's environments; None: unseeded. All workers have as many environments."""
        if self._seed is None:
            return None
        if not self._restarts:
            return environment_seeds(self._seed, num_envs, first=self._worker_idx * num_envs)
        return self._stream(3 + num_envs)[3:]

    def use(self, seed: int) -> None:
        """Seeds the global generators by a new seed of the collector."""
        self._seed, self._restarts = seed, 0
        self.seed_generators()

    def seed_generators(self) -> None:
        """Seeds the global generators of this process, unless the collector has no seed."""
        if self._seed is not None:
            streams = self._stream(2)
            random.seed(streams[0])
            np.random.seed(streams[1])  # noqa: NPY002 - what environments use is the global generator
            self._seed_torch()

    def follow_imports(self) -> None:
        """Seeds torch's global generators also where torch is imported later, for example in a step."""
        if "torch" not in sys.modules:
            sys.meta_path.insert(0, _TorchFinder(self._seed_torch))

    def _seed_torch(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and self._seed is not None:
            torch.manual_seed(self._stream(3)[2])

    def _stream(self, count: int) -> list[int]:
        """Returns the first numbers of the worker's stream, of 31 bits each: some environments take no longer seeds."""
        restarts = [self._restarts] if self._restarts else []
        sequence = np.random.SeedSequence([self._seed or 0, self._worker_idx, *restarts])
        return [int(each) >> 1 for each in sequence.generate_state(count)]


class _TorchFinder(MetaPathFinder):
    """Calls a function as soon as torch has been imported for the first time.

    Args:
        imported: the function.
    """

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - of the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Returns the spec of torch, whose loader calls the function; None for other modules."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._imported()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
