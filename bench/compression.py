"""Batches of frames over TCP, compressed by zstd and not: frames of a game, and noise that does not shrink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import headrace as hr
from bench.case import Case, contest_case
from bench.frames import FRAME, STACK, frame_signature
from bench.measure import Contest, Plan, Row, Spread
from bench.server import started_child
from bench.steps import BATCH, table
from bench.uniform import samples
from headrace.envs.registered import register_atari
from headrace.server.compression import zstd

CONTENTS = ("pong", "noise")
_VIEWS = hr.views.transition(frame_stack=STACK)


def cases() -> list[Case]:
    if not zstd.is_installed():
        return []
    return [
        *(contest_case(f"compression/{content}, tcp", _rates(content)) for content in CONTENTS),
        *(Case(f"compression/{content}, bytes", _bytes(content)) for content in CONTENTS),
    ]


def game_frames(content: str, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yields frames of 84 x 84 bytes: of Pong, halved and cut, or random bytes."""
    if content == "noise":
        random = np.random.default_rng(0)
        for _ in range(count):
            yield random.integers(0, 256, FRAME, np.uint8)
        return
    register_atari("ALE/Pong-v5")
    env = gymnasium.make("ALE/Pong-v5", obs_type="grayscale")
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(count):
        yield observation[34:202:2, :160:2][:, np.r_[:80, 76:80]]
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()


@contextmanager
def filled_games(content: str, steps: int) -> Iterator[hr.Replay]:
    """A replay of so many frames."""
    with hr.Replay(frame_signature(), [table(steps)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for number, frame in enumerate(game_frames(content, steps)):
                step = {"observation": frame, "action": np.int64(number), "reward": np.float32(number)}
                writer.append({**step, "terminated": False, "truncated": False})
            yield replay


@contextmanager
def _clients(content: str, steps: int) -> Iterator[tuple[hr.Client, hr.Client]]:
    """Yields a client that asks for compression, and one that does not."""
    with ExitStack() as stack:
        child = stack.enter_context(started_child("games", content, steps))
        address = child.line()
        child.line()
        yield tuple(
            stack.enter_context(hr.Client(address, compression=each, timeout=60)) for each in ("zstd", None)
        )


def _rates(content: str) -> Any:
    @contextmanager
    def prepare(plan: Plan) -> Iterator[Contest]:
        with _clients(content, plan.size(2000, 300)) as (packed, plain):
            yield Contest(
                ours=samples(packed.replay("r"), _VIEWS, BATCH),
                limit=samples(plain.replay("r"), _VIEWS, BATCH),
                limit_name="as they are",
            )

    return prepare


def _bytes(content: str) -> Any:
    def rows(plan: Plan) -> Iterator[Row]:
        with _clients(content, plan.size(2000, 300)) as clients:
            sent = [_sent(client) for client in clients]
        share = sent[0] / sent[1]
        yield Row(f"compression/{content}, bytes", "of the bytes as they are", Spread(share, share, share))

    return rows


def _sent(client: hr.Client) -> int:
    """Returns the bytes that the server sends for a batch, once it knows the views."""
    replay = client.replay("r")
    replay.sample("t", BATCH, views=_VIEWS)
    before = _bytes_out(client)
    replay.sample("t", BATCH, views=_VIEWS)
    return _bytes_out(client) - before


def _bytes_out(client: hr.Client) -> int:
    client.ping()  # The server counts what it has sent before it reads on.
    return client.statistics().bytes_out
