"""Episodes from stored rows: steps with final rows, or frames of a `Trajectory`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import trees
from headrace.checks import shown
from headrace.datasets.exporting.structure import part_of
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.trajectories.episode import Episode
from headrace.trajectories.frames import StepType, Trajectory

Rows = Mapping[str, NDArray[Any]]

_STEP = ("observation", "action", "reward", "terminated", "truncated")
_EXTRAS = "extras"


# Returns the episode of its rows, or None if it is not complete. `rows` maps each column to `[rows, ...]`.
# `final_columns` are the columns that have a value in the final row; None if the last row is not a final row.
EpisodeMaker = Callable[[Rows, Collection[str] | None], Episode | None]


def episode_maker(signature: Signature) -> EpisodeMaker:
    """Returns the builder of episodes for rows of a signature.

    Args:
        signature: of one step.

    Raises:
        SpecError: the columns are neither those of the step writers nor those of a `Trajectory`, or a reward or a flag
            is not a single number.

    >>> signature = Signature.like(dict(observation=0.0, action=0, reward=0.0, terminated=False, truncated=False))
    >>> rows = {name: np.zeros(3, spec.dtype) for name, spec in signature.columns.items()}
    >>> episode_maker(signature)(rows, ["observation"])
    Episode(2 steps, unfinished, return 0)
    """
    # Rules: datasets G2
    tree = signature.tree
    if getattr(tree, "_fields", ()) == Trajectory._fields:
        _check_single(tree._asdict(), ("step_type", "next_step_type", "reward", "discount"))
        return partial(_from_frames, signature)
    if not isinstance(tree, Mapping) or not set(_STEP) <= set(tree):
        raise SpecError(
            f"expected a replay with the columns {', '.join(_STEP)} (and {_EXTRAS}), or of a Trajectory, got "
            f"{', '.join(signature.columns)}"
        )
    _check_single(tree, ("reward", "terminated", "truncated"))
    further = [name for name in tree if name not in (*_STEP, _EXTRAS)]
    extras = tree.get(_EXTRAS, {})
    if not isinstance(extras, Mapping) or set(extras) & set(further):
        raise SpecError(
            f"extras: expected a mapping whose names are not also columns, got {extras!r} beside {', '.join(further)}"
        )
    return partial(_from_steps, signature, further)


def _check_single(tree: Mapping[str, Any], names: Collection[str]) -> None:
    for name in names:
        if not isinstance(tree[name], ArraySpec) or tree[name].shape:
            raise SpecError(f"{name}: expected one number a step, got {shown(tree[name])}")


def _from_steps(
    signature: Signature, further: Collection[str], rows: Rows, final_columns: Collection[str] | None
) -> Episode | None:
    """Builds an episode from rows of the step writers, whose final row holds the last observation."""
    if final_columns is None:
        return None
    missing = [name for name in rows if part_of(name) == "observation" and name not in final_columns]
    if missing:
        raise SpecError(f"expected final rows with the last observation, but they lack {', '.join(missing)}")
    # An action or a reward in the final row does not make a transition.
    kept = {
        name: column if name in final_columns and part_of(name) not in _STEP[1:] else column[:-1]
        for name, column in rows.items()
    }
    tree = _without_lists(signature.unflatten(kept))
    extras = {**{name: tree[name] for name in further}, **tree.get(_EXTRAS, {})}
    observations, actions, rewards, terminations, truncations = (tree[name] for name in _STEP)
    return Episode(observations, actions, rewards, terminations, truncations, extras=extras)


def _from_frames(signature: Signature, rows: Rows, _: Collection[str] | None) -> Episode | None:
    """Builds an episode from frames of a `Trajectory`, whose boundary frame holds the last observation."""
    frames = signature.unflatten(rows)
    step_type = frames.step_type
    steps = len(step_type) - 1
    if steps < 1 or step_type[0] != StepType.FIRST or step_type[-1] != StepType.LAST:
        return None
    transitions = signature.unflatten({name: column[:-1] for name, column in rows.items()})
    end = np.arange(steps) == steps - 1
    terminated = bool(transitions.discount[-1] == 0)
    has_info = any(part_of(name) == "policy_info" for name in rows)
    return Episode(
        _without_lists(frames.observation),
        _without_lists(transitions.action),
        transitions.reward,
        end & terminated,
        end & (not terminated),
        extras={"policy_info": _without_lists(frames.policy_info)} if has_info else None,
    )


def _without_lists(tree: Any) -> Any:
    """Returns a tree with tuples for lists and deques, which are containers in a signature but arrays in an episode."""
    node = trees.compile_tree(tree, lambda value: isinstance(value, np.ndarray))
    return trees.build(_as_tuples(node), {leaf.path: leaf.value for leaf in trees.leaves(node)})


def _as_tuples(node: trees.Node) -> trees.Node:
    if isinstance(node, trees.Leaf):
        return node
    kind, cls = ("tuple", tuple) if node.kind in ("list", "deque") else (node.kind, node.cls)
    return replace(node, kind=kind, cls=cls, children=tuple(map(_as_tuples, node.children)))
