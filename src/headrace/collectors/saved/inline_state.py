"""Checks of the state of a collector in this process."""

# Rules: collectors CQ3

from __future__ import annotations

from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.saved.checks import Check, array, optional, record
from headrace.collectors.saved.parts import (
    batch_columns,
    counts,
    lanes,
    partial_rollout,
    tally,
    turn,
    versions,
)


def inline_state(loop: CollectingLoop) -> Check:
    """Returns a check for the state of a collector with this loop, but for the loop's own and the weights."""
    num_envs, known = loop.stepper.num_envs, loop.signature.columns
    observed = {name: known[name] for name in loop.observed}
    steps = partial_rollout(known, observed, num_envs)
    return record(
        unreturned=optional(batch_columns(num_envs)),
        rollout=optional(record(turn=turn(loop.steps), steps=optional(steps), counts=counts)),
        tally=tally,
        versions=versions,
        to_reset=array("bool", [num_envs]),
        **lanes(num_envs),
    )
