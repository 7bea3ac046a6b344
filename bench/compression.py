"""Batches of frames over TCP, compressed by zstd and not: frames of a game, and noise that does not shrink.

Beside them another client's round trips: frames of Pong, and Poisson numbers, which take zstd the longest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import headrace as hr
from bench.case import Case, contest_case
from bench.frames import FRAME, STACK, frame_signature
from bench.measure import Contest, Plan, Row, Run, Spread
from bench.server import started_child
from bench.steps import BATCH, table
from bench.uniform import samples
from headrace.envs.registered import register_atari
from headrace.server.compression import zstd

CONTENTS = ("pong", "noise")
_SLOW_CONTENTS = ("pong", "poisson")
_PING_SECONDS = 1e-2
_VIEWS = hr.views.transition(frame_stack=STACK)


def cases() -> list[Case]:
    if not zstd.is_installed():
        return []
    return [
        *(contest_case(f"compression/{content}, tcp", _rates(content)) for content in CONTENTS),
        *(Case(f"compression/{content}, bytes", _bytes(content)) for content in CONTENTS),
        *(
            Case(f"compression/ping beside {content}", _pings(f"compression/ping beside {content}", content))
            for content in _SLOW_CONTENTS
        ),
    ]


def game_frames(content: str, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yields frames of 84 x 84 bytes: of Pong, halved and cut, or random bytes, or Poisson numbers around 3."""
    if content != "pong":
        random = np.random.default_rng(0)
        for _ in range(count):
            if content == "poisson":
                yield random.poisson(3, FRAME).astype(np.uint8)
            else:
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


def frame_batches(client: hr.Client) -> Run:
    """Returns a run that draws batches of stacked frames."""
    return samples(client.replay("r"), _VIEWS, BATCH)


def _rates(content: str) -> Any:
    @contextmanager
    def prepare(plan: Plan) -> Iterator[Contest]:
        with _clients(content, plan.size(2000, 300)) as (packed, plain):
            yield Contest(
                ours=frame_batches(packed),
                limit=frame_batches(plain),
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


def _pings(name: str, content: str) -> Any:
    def rows(plan: Plan) -> Iterator[Row]:
        with ExitStack() as stack:
            games = stack.enter_context(started_child("games", content, plan.size(2000, 300)))
            address = games.line()
            games.line()
            client = stack.enter_context(hr.Client(address))
            idle = _round_trips(client, plan.seconds)
            beside = {}
            for compression in ("zstd", ""):
                drawing = stack.enter_context(started_child("drawing", address, compression))
                drawing.line()
                drawing.begin(0)
                drawing.line()
                beside[compression] = _round_trips(client, 4 * plan.rounds * plan.seconds)
                drawing.close()
        row = Row(name, "ms", _spread(beside["zstd"]), _spread(beside[""]), "batches as they are")
        within = [f"{np.percentile(each, 99):.3g} ms" for each in beside.values()]
        row.notes.append(f"99 of 100 within {within[0]}, and {within[1]} beside batches as they are")
        row.notes.append(f"{statistics.median(idle):.3g} ms with no other client")
        yield row

    return rows


def _spread(found: list[float]) -> Spread:
    return Spread(statistics.median(found), min(found), max(found))


def _round_trips(client: hr.Client, seconds: float) -> list[float]:
    """Returns the milliseconds of round trips at random times."""
    random, end = np.random.default_rng(0), time.monotonic() + seconds
    found = []
    while time.monotonic() < end:
        time.sleep(random.uniform(0.5, 1.5) * _PING_SECONDS)
        found.append(1e3 * client.ping())
    return found
