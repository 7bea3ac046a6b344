"""The learner's replay: prioritized transitions, and a queue that tells what is happening."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.cli.dqn.problem import Problem
from headrace.cli.dqn.settings import DqnSettings
from headrace.cli.episodes import EpisodeLog
from headrace.replay import ItemRule, Replay, Table, rate_limiters, selectors
from headrace.spec import Signature
from headrace.views import View, transition

TRANSITIONS = "transitions"
REWARDS = "rewards"
_MOST_REWARDS = 200_000
_DRAINED_AT_ONCE = 8192
_REWARD_VIEWS = {name: View(name) for name in ("reward", "terminated", "truncated", "episode_id")}


def make_replay(signature: Signature, settings: DqnSettings, frames_per_batch: int, seed: int) -> Replay:
    """The replay with its two tables.

    `transitions` is sampled by priority, as often for each insert as the settings say. Its gate has room for two
    rollouts of the worker (one that is written, one that is learnt from) and for one batch.
    `rewards` gives every transition once, in order, so that the returns of episodes are known here; it shares the
    stored steps, so it costs no copy.
    """
    room = max(2 * frames_per_batch * settings.samples_per_insert, settings.batch_size)
    return Replay(
        signature,
        [
            Table(
                TRANSITIONS,
                sampler=selectors.Prioritized(settings.priority_exponent),
                remover=selectors.Fifo(),
                max_size=settings.replay_size,
                rate_limiter=rate_limiters.SampleToInsertRatio(
                    settings.samples_per_insert, settings.learning_starts, room
                ),
            ),
            Table(
                REWARDS,
                sampler=selectors.Fifo(),
                remover=selectors.Fifo(),
                max_size=_MOST_REWARDS,
                max_times_sampled=1,
            ),
        ],
        seed=seed,
    )


def item_rules(settings: DqnSettings) -> list[ItemRule]:
    """Every transition becomes an item of both tables; for learning when its n-step return is known."""
    return [
        ItemRule(TRANSITIONS, 1, priority=settings.largest_priority, lookahead=settings.n_step),
        ItemRule(REWARDS, 1),
    ]


def training_views(problem: Problem, settings: DqnSettings) -> Mapping[str, View]:
    """The views of a batch; frames are stacked here, so each is stored once."""
    if not problem.is_image:
        return transition(settings.n_step, settings.gamma)
    views = transition(settings.n_step, settings.gamma, settings.frame_stack)
    for name in ("observation", "next_observation"):
        views[name] = views[name].replace(data_col="observation/frame")
    return views


def drain_rewards(replay: Replay, log: EpisodeLog) -> None:
    """Take over what was collected since the last call."""
    waiting = len(replay.table(REWARDS))
    while waiting > 0:
        size = min(waiting, _DRAINED_AT_ONCE)
        data = replay.sample(REWARDS, size, views=_REWARD_VIEWS, timeout=0).data
        log.add(data["episode_id"], data["reward"], data["terminated"], data["truncated"])
        waiting -= size


def samples_per_insert(replay: Replay) -> float | None:
    """How often each transition beyond the first `learning_starts` was sampled; None before there are any."""
    table = replay.table(TRANSITIONS).statistics()
    beyond = table.inserts - table.min_size
    return table.samples / beyond if beyond > 0 else None
