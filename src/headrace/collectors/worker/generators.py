"""The state of this process's global generators."""

# Rules: collectors CQ3, CS3

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def generators_state() -> dict[str, Any]:
    """Returns the states of the generators of `random`, NumPy and torch, if torch is loaded."""
    torch = sys.modules.get("torch")
    return {
        "random": random.getstate(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 - what environments use is the global generator
        "torch": None if torch is None else torch.get_rng_state().numpy(),
    }


def load_generators_state(state: Mapping[str, Any]) -> None:
    """Restores what `generators_state` returned."""
    version, internal, gauss = state["random"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None and state["torch"] is not None:
        torch.set_rng_state(torch.from_numpy(np.array(state["torch"])))
