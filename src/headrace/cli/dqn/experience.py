"""The learner's replay: a table of prioritized transitions, and a queue of rewards."""

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
_MAX_REWARDS = 200_000
_REWARDS_PER_SAMPLE = 8192
_REWARD_VIEWS = {name: View(name) for name in ("reward", "terminated", "truncated", "episode_id")}


def make_replay(signature: Signature, settings: DqnSettings, frames_per_batch: int, seed: int) -> Replay:
    """Returns the replay with its two tables.

    `transitions` is sampled by priority, `samples_per_insert` times per insert. Its rate limiter tolerates an error of
    two rollouts of the worker (one being written, one being learnt from), and of one batch at least.
    `rewards` gives every transition once, in order, so that the learner knows the returns of episodes. The tables
    share the stored steps, so nothing is copied.
    """
    error_buffer = max(2 * frames_per_batch * settings.samples_per_insert, settings.batch_size)
    return Replay(
        signature,
        [
            Table(
                TRANSITIONS,
                sampler=selectors.Prioritized(settings.priority_exponent),
                remover=selectors.Fifo(),
                max_size=settings.replay_size,
                rate_limiter=rate_limiters.SampleToInsertRatio(
                    settings.samples_per_insert, settings.learning_starts, error_buffer
                ),
            ),
            Table(
                REWARDS,
                sampler=selectors.Fifo(),
                remover=selectors.Fifo(),
                max_size=_MAX_REWARDS,
                max_times_sampled=1,
            ),
        ],
        seed=seed,
    )


def item_rules(settings: DqnSettings) -> list[ItemRule]:
    """Returns rules: each transition becomes an item of both tables; to learn from, once its n-step return is known."""
    return [
        ItemRule(TRANSITIONS, 1, priority=settings.largest_priority, lookahead=settings.n_step),
        ItemRule(REWARDS, 1),
    ]


def training_views(problem: Problem, settings: DqnSettings) -> Mapping[str, View]:
    """Returns the views of a batch. They stack frames, so each frame is stored once."""
    if not problem.is_image:
        return transition(settings.n_step, settings.gamma)
    views = transition(settings.n_step, settings.gamma, settings.frame_stack)
    for name in ("observation", "next_observation"):
        views[name] = views[name].replace(data_col="observation/frame")
    return views


def drain_rewards(replay: Replay, log: EpisodeLog) -> None:
    """Moves the transitions collected since the last call to the log."""
    waiting = len(replay.table(REWARDS))
    while waiting > 0:
        size = min(waiting, _REWARDS_PER_SAMPLE)
        data = replay.sample(REWARDS, size, views=_REWARD_VIEWS, timeout=0).data
        log.add(data["episode_id"], data["reward"], data["terminated"], data["truncated"])
        waiting -= size


def samples_per_insert(replay: Replay) -> float | None:
    """Returns samples per insert, not counting the first `learning_starts` inserts; None before there are more."""
    table = replay.table(TRANSITIONS).statistics()
    beyond = table.inserts - table.min_size
    return table.samples / beyond if beyond > 0 else None
