"""A replay of the episodes of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from headrace import trees
from headrace.replay import Replay, Table
from headrace.spec import Signature
from headrace.trajectories.episode import Episode
from headrace.trajectories.writers.transition_writer import TransitionWriter


def to_replay(source: Iterable[Episode], table: Table, *, n_step: int = 1, seed: int | None = None) -> Replay:
    """Returns a replay in memory with all transitions of a dataset, such as an offline learner draws from.

    Its columns are those of the first episode: `observation`, `action`, `reward`, `terminated`, `truncated`, and
    `extras` where it has some. Infos are left out.

    Args:
        source: a dataset, or another iterable of `hr.Episode`; it is read once, one episode at a time.
        table: holds the items, one for each transition; beyond its `max_size` the remover chooses which ones leave.
        n_step: of the `hr.views.transition` views that will be drawn, at most.
        seed: of the draws.

    Raises:
        ValueError: the source has no episodes.
        SpecError: an episode has other columns than the first.
        TypeError: an element of the source is not an episode.

    >>> import headrace as hr
    >>> episode = hr.Episode([0.0, 1.0, 2.0], [1, 0], [0.0, 1.0], [False, True], [False, False])
    >>> with to_replay([episode, episode], hr.Table.uniform(1000), seed=0) as replay:
    ...     batch = replay.sample(100, views=hr.views.transition())
    ...     len(replay.table("replay")), sorted(set(batch["next_observation"].tolist()))
    (4, [1.0, 2.0])
    """
    episodes = iter(source)
    first = next(episodes, None)
    if first is None:
        raise ValueError("expected one episode or more, got none")
    replay = Replay(_signature(first), [table], seed=seed)
    try:
        with TransitionWriter(replay, n_step=n_step) as writer:
            for episode in itertools.chain([first], episodes):
                writer.add_episode(episode)
    except BaseException:
        replay.close()
        raise
    return replay


def _signature(episode: Episode) -> Signature:
    if not isinstance(episode, Episode):
        raise TypeError(f"expected hr.Episode, got {type(episode).__name__}")
    step: dict[str, Any] = {
        "observation": episode.observations,
        "action": episode.actions,
        "reward": episode.rewards,
        "terminated": episode.terminations,
        "truncated": episode.truncations,
    }
    if episode.extras:
        step["extras"] = episode.extras
    return Signature.like(trees.map_leaves(lambda rows: rows[0], step))
