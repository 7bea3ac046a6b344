"""Flashbax: flat, prioritised and trajectory buffers, compiled by JAX, the state given away at each call."""

from __future__ import annotations

from typing import Any

import flashbax
import jax
import jax.numpy as jnp

from bench.measure import Run
from bench.peers.streams import MOST_STACKS, Columns, transition, transitions
from bench.steps import BATCH, LANES


def _step(step: Columns) -> dict[str, Any]:
    # A flat buffer takes the next observation from the row after.
    return {name: jnp.asarray(value) for name, value in step.items() if name != "next_observation"}


def _first(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: value[0] for name, value in rows.items()}


def _appends(buffer: Any, lanes: int) -> Run:
    step = _step(transition(3, lanes))
    if lanes == 1:
        step = _first(step)
    state = buffer.init(_first(_step(transition(3, 1))))
    add = jax.jit(buffer.add, donate_argnums=0)

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state = add(state, step)
        jax.block_until_ready(state)

    return run


def _filled(buffer: Any, size: int) -> Any:
    state = buffer.init(_first(_step(transition(0, 1))))
    add = jax.jit(buffer.add, donate_argnums=0)
    for step in transitions(size):
        state = add(state, _step(step))
    return state


def _samples(buffer: Any, state: Any) -> Run:
    sample = jax.jit(buffer.sample)
    key = jax.random.key(0)

    def run(count: int) -> Any:
        nonlocal key
        batch = None
        for _ in range(count):
            key, mine = jax.random.split(key)
            batch = jax.block_until_ready(sample(state, mine))
        return batch

    return run


def _flat(size: int, lanes: int | None = LANES) -> Any:
    return flashbax.make_flat_buffer(size, BATCH, BATCH, add_batch_size=lanes)


def _prioritised(size: int, exponent: float = 0.6) -> Any:
    return flashbax.make_prioritised_flat_buffer(
        size, BATCH, BATCH, add_batch_size=LANES, priority_exponent=exponent
    )


def _uniform(size: int) -> Run:
    buffer = _flat(size)
    return _samples(buffer, _filled(buffer, size))


def _prioritized(size: int, exponent: float) -> Run:
    buffer = _prioritised(size, exponent)
    state = _filled(buffer, size)
    sample = jax.jit(buffer.sample)
    update = jax.jit(buffer.set_priorities, donate_argnums=0)
    key, priorities = jax.random.key(0), jax.random.uniform(jax.random.key(1), (BATCH,)) + 0.01

    def run(count: int) -> Any:
        nonlocal state, key
        batch = None
        for _ in range(count):
            key, mine = jax.random.split(key)
            batch = sample(state, mine)
            state = jax.block_until_ready(update(state, batch.indices, priorities))
        return batch

    return run


def _sequences(size: int) -> Run:
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=LANES,
        sample_batch_size=32,
        sample_sequence_length=64,
        period=16,
        min_length_time_axis=64,
        max_length_time_axis=size // LANES,
    )
    state = buffer.init(_first(_step(transition(0, 1))))
    add = jax.jit(buffer.add, donate_argnums=0)
    for step in transitions(size):
        state = add(state, {name: value[:, None] for name, value in _step(step).items()})
    return _samples(buffer, state)


def _frames(size: int) -> Run:
    rows = min(size, MOST_STACKS)
    buffer = _flat(rows, None)
    step = {"observation": jnp.zeros((4, 84, 84), jnp.uint8), "reward": jnp.zeros(())}
    state = buffer.init(step)
    add = jax.jit(buffer.add, donate_argnums=0)
    for _ in range(rows):
        state = add(state, step)
    return _samples(buffer, state)


WORK = {
    "append_one": lambda size: _appends(_flat(size, None), 1),
    "append_64": lambda size: _appends(_flat(size), LANES),
    "append_64_prioritized": lambda size: _appends(_prioritised(size), LANES),
    "uniform": _uniform,
    "prioritized": _prioritized,
    "sequences": _sequences,
    "frames": _frames,
}
