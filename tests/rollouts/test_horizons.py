"""Horizons (views-rollouts H1 to H3)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_rollouts import Recurrent, counters, steps_of, worker

import headrace as hr
from headrace.rollouts import Callbacks


def ends(batch: Any) -> list[tuple[bool, bool]]:
    return list(zip(batch["terminated"].tolist(), batch["truncated"].tolist(), strict=True))


GOES_ON = (False, False)


@pytest.mark.parametrize(
    ("soft", "no_flag", "flags", "resets"),
    [
        (False, False, (False, True), 2),
        (False, True, GOES_ON, 2),
        (True, False, GOES_ON, 1),
        (True, True, GOES_ON, 1),
    ],
)
def test_a_horizon_cuts_an_episode_that_goes_on(soft: bool, no_flag: bool, flags: Any, resets: int):
    # H1
    with worker(counters(50), horizon=4, soft_horizon=soft, no_done_at_end=no_flag) as made:
        batch = made.sample()
        assert len(made.envs[0].seeds) == resets
    assert ends(batch) == [GOES_ON, GOES_ON, GOES_ON, flags, GOES_ON, GOES_ON]
    assert batch["t"].tolist() == [0, 1, 2, 3, 0, 1]
    assert len(set(batch["episode_id"])) == 2
    assert batch["next_observation"][3].tolist() == [0, 0, 4]
    assert steps_of(batch)[4] == ([0, 0, 4] if soft else [0, 1, 0])


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("no_flag", [False, True])
def test_an_end_of_the_environment_at_the_horizon_is_its_own(ending: Any, soft: bool, no_flag: bool):
    # H1
    made = worker(counters(4, ending=ending), horizon=4, soft_horizon=soft, no_done_at_end=no_flag)
    with made:
        batch = made.sample()
        assert len(made.envs[0].seeds) == 2
    own = (ending == "terminated", ending == "truncated")
    assert ends(batch)[3] == (GOES_ON if no_flag else own)
    assert steps_of(batch)[4] == [0, 1, 0]


@pytest.mark.parametrize("horizon", [None, 2, 9])
def test_a_horizon_raises_a_smaller_limit_of_the_environment(horizon: int | None):
    # H1
    def create():
        return gymnasium.wrappers.TimeLimit(counters(50)(Index()), max_episode_steps=5)

    class Index:
        env_index = 0

    with worker(create, horizon=horizon, batch_mode="complete_episodes") as made:
        batch = made.sample()
    assert batch.count == (horizon or 5)
    assert ends(batch)[-1] == (False, True)


def test_whole_episodes_end_at_a_soft_horizon_and_the_next_goes_on():
    # H2
    with worker(
        counters(10), Recurrent(), horizon=4, soft_horizon=True, batch_mode="complete_episodes"
    ) as made:
        batches = [made.sample() for _ in range(4)]
    assert [batch["observation"][:, 2].tolist() for batch in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [0, 1, 2, 3],
    ]
    assert [batch["t"].tolist() for batch in batches[:3]] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]]
    assert len({batch["episode_id"][0] for batch in batches}) == 4


def test_history_goes_on_across_a_soft_horizon():
    # H2
    policy = Recurrent({"last": hr.View("observation", shift=-1, mask=True)})
    with worker(counters(50), policy, horizon=4, soft_horizon=True) as made:
        batch = made.sample()
    assert batch["last"][:, 2].tolist() == [0, 0, 1, 2, 3, 4]
    assert batch["last_mask"].tolist() == [False] + [True] * 5
    assert batch["state_in_0"].tolist() == [0, 1, 2, 3, 4, 5]
    assert [int(seen["state_in_0"][0]) for seen in policy.seen] == [0, 1, 2, 3, 4, 5]


def test_without_flags_ids_are_the_boundaries():
    # H3
    policy = Recurrent({"last": hr.View("observation", shift=-1, mask=True)})
    with worker(counters(3), policy, no_done_at_end=True) as made:
        batch = made.sample()
    assert not batch["terminated"].any()
    assert not batch["truncated"].any()
    assert batch["last_mask"].tolist() == [False, True, True] * 2
    assert batch["state_in_0"].tolist() == [0, 1, 2, 0, 1, 2]
    assert [part.count for part in batch.split_by_episode()] == [3, 3]


def test_a_soft_horizon_ends_an_episode_for_callbacks_and_postprocessing():
    # H2
    told: list[Any] = []

    class Tell(Callbacks):
        def on_episode_start(self, *, worker, episode, env_index):
            told.append(("start", episode.episode_id))

        def on_episode_end(self, *, worker, episode, env_index):
            told.append(("end", episode.episode_id, episode.length, episode.total_reward))

        def on_postprocess_trajectory(self, *, postprocessed_batch, episode, **_):
            told.append(("rows", episode.episode_id, postprocessed_batch["t"].tolist()))

    with worker(
        counters(50), lambda seen: np.ones(len(seen), int), horizon=4, soft_horizon=True, callbacks=Tell
    ) as made:
        made.sample()
    assert told == [
        ("start", 0),
        ("rows", 0, [0, 1, 2, 3]),
        ("end", 0, 4, 4.0 + 4 * 6),
        ("start", 1),
        ("rows", 1, [0, 1]),
    ]
