"""Transitions as TensorDicts of TorchRL, and as columns of a `Replay`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.conversion import as_tensor
from headrace.errors import SpecError
from headrace.trees import map_leaves

if TYPE_CHECKING:
    from tensordict import TensorDict, TensorDictBase

_FLAGS = ("done", "terminated", "truncated")
# Keys that a sample has, and that are not stored when it comes back.
_OF_SAMPLES = ("index", "priority_weight", "steps_to_next_obs")


def transitions_of(data: TensorDictBase) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the columns of transitions, and their next observations: trees of arrays `[n, ...]`.

    Observations are the keys at the root that are also below "next". Other keys are extras.

    Args:
        data: of batch size `[n]`, with "action", and below "next" with "reward" and "terminated".

    Raises:
        SpecError: a key is missing, or a reward or a flag is not one number.
    """
    root = map_leaves(lambda leaf: leaf.detach().cpu().numpy(), data.to_dict())
    following = root.pop("next", {})
    if "action" not in root:
        raise SpecError(f"tensordicts: expected the key 'action', got {', '.join(root)}")
    for key in ("reward", "terminated"):
        if key not in following:
            raise SpecError(
                f"tensordicts: expected the key ('next', {key!r}), got {', '.join(following)} below 'next'"
            )
    count = len(data)
    terminated = _numbers(following.pop("terminated"), "terminated", count)
    step = {
        "action": root.pop("action"),
        "reward": _numbers(following.pop("reward"), "reward", count),
        "terminated": terminated,
    }
    done = _numbers(following.pop("done", terminated), "done", count)
    step["truncated"] = _numbers(following.pop("truncated", done & ~terminated), "truncated", count)
    for name in (*_FLAGS, *_OF_SAMPLES):
        root.pop(name, None)
    step["observation"] = {name: root.pop(name) for name in following if name in root}
    next_observation = {name: following.pop(name) for name in step["observation"]}
    if following:
        root["next"] = following
    return step | ({"extras": root} if root else {}), next_observation


def tensordict_of(columns: Mapping[str, Any]) -> TensorDict:
    """Returns transitions that were sampled as a TensorDict `[n]` of the keys that `transitions_of` read.

    Args:
        columns: observation, action, reward, terminated, truncated, next_observation, and perhaps extras and
            steps_to_next_obs.
    """
    from tensordict import TensorDict

    extras = dict(columns.get("extras", {}))
    terminated, truncated = columns["terminated"], columns["truncated"]
    following = {
        **extras.pop("next", {}),
        **columns["next_observation"],
        "reward": columns["reward"][:, None],
        "terminated": terminated[:, None],
        "truncated": truncated[:, None],
        "done": (terminated | truncated)[:, None],
    }
    root = {**extras, **columns["observation"], "action": columns["action"], "next": following}
    if "steps_to_next_obs" in columns:
        root["steps_to_next_obs"] = columns["steps_to_next_obs"][:, None]
    for name in _FLAGS:
        root[name] = np.zeros((len(terminated), 1), np.bool_)
    return TensorDict(map_leaves(as_tensor, root), [len(terminated)])


def _numbers(array: NDArray[Any], key: str, count: int) -> NDArray[Any]:
    """Returns `[n]` of `[n, 1]` or `[n]`."""
    if array.size != count:
        raise SpecError(f"('next', {key!r}): expected one number a transition, got shape {list(array.shape)}")
    return array.reshape(count)
