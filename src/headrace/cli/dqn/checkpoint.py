"""The trained policy as a file, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError('headrace train needs torch: pip install "headrace[torch]"') from error

from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.datasets.exporting.atomic import writing
from headrace.errors import CheckpointError

_FORMAT = 1


def save(path: Path, policy: EpsilonGreedy, about: dict[str, Any]) -> None:
    """Write weights and what is needed to build the policy again: plain containers and tensors only.

    Args:
        path: replaced whole, or not at all.
        policy: its weights are written.
        about: numbers and strings to keep beside them: the environment, the settings, the result.
    """
    content = {
        "format": _FORMAT,
        "shape": dataclasses.asdict(policy.shape),
        "first_action": policy.first_action,
        "weights": policy.state_dict(),
        "about": about,
    }
    with writing(path, overwrite=True) as temporary:
        torch.save(content, temporary)


def load(path: Path, *, epsilon: float = 0.0) -> EpsilonGreedy:
    """The policy that `headrace train` wrote, acting greedily unless told otherwise.

    Nothing in the file is executed (`weights_only=True`).

    Raises:
        CheckpointError: not such a file.
    """
    with _named(path):
        content = _content(path)
        policy = EpsilonGreedy(NetworkShape(**content["shape"]), content["first_action"], epsilon)
        policy.load_state_dict(content["weights"])
    policy.epsilon.fill_(epsilon)
    return policy


def about(path: Path) -> dict[str, Any]:
    """Returns what `save` was given to keep beside the weights.

    Raises:
        CheckpointError: not such a file.
    """
    with _named(path):
        return dict(_content(path)["about"])


def _content(path: Path) -> Any:
    content = torch.load(path, weights_only=True, map_location="cpu")
    if content["format"] != _FORMAT:
        raise CheckpointError(f"{path}: expected format {_FORMAT}, got {content['format']!r}")
    return content


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns whatever is raised on a damaged file into an error with its name."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: not a policy of headrace train ({type(error).__name__}: {error})"
        ) from error
