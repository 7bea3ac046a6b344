"""Frame stacks of Atari from single stored frames: what a step costs in memory, and what a batch looks like.

An agent sees four frames at once. A buffer of observations holds every frame four times, and another four times for the
next observations. Here the environment gives single frames, each is stored once, and views stack them when a batch is
drawn: at the start of an episode its first frame is repeated, and no stack crosses an end.

    pip install "headrace[atari]"
    python examples/atari_frames.py --steps 20000
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import ale_py
import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing

import headrace as hr

NUM_ENVS, BATCH = 4, 32


def make_env() -> gym.Env[Any, Any]:
    """Breakout in grey frames uint8[84, 84], every action held for 4 frames; a wrapper that stacks is left out."""
    gym.register_envs(ale_py)
    return AtariPreprocessing(gym.make("ALE/Breakout-v5", frameskip=1))


def collect(steps: int, seed: int) -> hr.Replay:
    """Returns a replay with `steps` random steps: transitions, and windows of 20 rows, over the same frames."""
    tables = [hr.Table.uniform(steps, name="transitions"), hr.Table.uniform(steps, name="windows")]
    rules = [
        hr.ItemRule("transitions", length=1, lookahead=3),
        hr.ItemRule("windows", length=20, stride=10, end=hr.EndOfEpisode.LAST),
    ]
    replay = hr.Replay(hr.collectors.signature(make_env), tables, seed=seed)
    options = {"frames_per_batch": 400, "num_envs": NUM_ENVS, "seed": seed}
    with hr.Collector(
        make_env, total_frames=steps, replay_buffer=replay, items=rules, **options
    ) as collector:
        for _ in collector:  # What it gives is in the replay as well.
            pass
    return replay


def show_memory(replay: hr.Replay) -> float:
    """Prints the memory of a step, here and in a buffer of stacked observations; returns the quotient."""
    told = replay.statistics()
    tables = sum(table.bytes for table in told.tables.values())
    steps = told.tables["transitions"].size
    here = (told.store.bytes + tables) / steps
    stacked = 2 * 4 * 84 * 84 + 8 + 4 + 1 + 1  # Observation, next observation; action, reward, two flags.
    print(f"{steps} transitions in {told.store.rows} rows of {told.store.row_bytes} bytes")
    print(f"a step takes {here:,.0f} bytes with both tables; a buffer of stacks takes {stacked:,}")
    return stacked / here


def show_batch(title: str, data: dict[str, Any]) -> None:
    """The columns of a batch."""
    print(f"\n{title}: {sum(column.nbytes for column in data.values()) / 1e6:.1f} MB")
    for name, column in data.items():
        print(f"  {name:17} {column.dtype!s:8} {list(column.shape)}")


def main(steps: int = 10_000, seed: int = 0) -> float:
    """Collects, and shows stored rows and batches; returns how many times less memory a step takes."""
    with collect(steps, seed) as replay:
        factor = show_memory(replay)

        # For a Q-network: stacks of four and 3-step returns. Another depth or another n needs no new data.
        views = hr.views.transition(n_step=3, gamma=0.99, frame_stack=4)
        show_batch("32 transitions", replay.sample("transitions", BATCH, views=views).data)

        # For a recurrent network: 20 rows each, in pairs of frames, with the frame that follows each row.
        views = {
            "pair": hr.View("observation", shift="-1:0", fill="edge"),
            "next_frame": hr.View("observation", shift=1, mask=True),
            "action": hr.View("action"),
        }
        show_batch("32 windows", replay.sample("windows", BATCH, views=views).data)

        views, began = hr.views.transition(n_step=3, frame_stack=4), time.perf_counter()
        for _ in range(100):
            replay.sample("transitions", BATCH, views=views)
        print(f"\n{100 / (time.perf_counter() - began):.0f} batches of 32 transitions a second")
    return factor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=10_000, help="frames of all copies together, a multiple of 400"
    )
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
