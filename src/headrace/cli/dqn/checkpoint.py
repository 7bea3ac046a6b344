"""Writes a trained policy to a file, and reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.cli.dqn.pytorch import torch
from headrace.datasets.exporting.atomic import writing
from headrace.errors import CheckpointError

_FORMAT = 1


def save(path: Path, policy: EpsilonGreedy, about: dict[str, Any]) -> None:
    """Writes the weights of a policy and the arguments that build it, as plain containers and tensors.

    Args:
        path: the file; it is replaced completely, or not at all.
        policy: the policy.
        about: numbers and strings to keep with the weights: the environment, the settings, the result.
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
    """Returns the policy that `headrace train` wrote; by default it acts greedily.

    Nothing in the file is executed (`weights_only=True`).

    Raises:
        CheckpointError: `path` is not such a file.
    """
    with _named(path):
        content = _content(path)
        policy = EpsilonGreedy(NetworkShape(**content["shape"]), content["first_action"], epsilon)
        policy.load_state_dict(content["weights"])
    policy.epsilon.fill_(epsilon)
    return policy


def about(path: Path) -> dict[str, Any]:
    """Returns the `about` that `save` was given.

    Raises:
        CheckpointError: `path` is not such a file.
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
    """Turns any error on a damaged file into one with the name of the file."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: not a policy of headrace train ({type(error).__name__}: {error})"
        ) from error
