"""Plays episodes in one environment, and prints what came of them."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import gymnasium

from headrace import trees
from headrace.cli import episodes, interruption, output_folder, run_record, tables
from headrace.cli.dqn import fitting, problem
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.cli.dqn.pytorch import torch
from headrace.cli.episodes import EndedEpisode
from headrace.cli.file_names import RUN
from headrace.cli.progress import ProgressLine

# Names of videos: play-episode-0.mp4.
_PREFIX = "play"


@dataclass(frozen=True)
class Request:
    """The options of the command; see its help."""

    policy: Path
    env_id: str | None
    episodes: int
    seed: int
    epsilon: float
    video: Path | None
    overwrite: bool


def run(request: Request, *, as_json: bool) -> None:
    """Plays, and prints the result.

    Raises:
        CheckpointError: the file is not a policy of `headrace train`.
        click.BadParameter: the policy does not fit the environment.
        click.ClickException: videos of an earlier run exist; Ctrl-C, after what was played is printed.
    """
    env_id = request.env_id or fitting.environment_of(request.policy)
    policy = fitting.load_for(request.policy, env_id, request.epsilon)
    played: list[EndedEpisode] = []
    stop: BaseException | None = None
    with _videos(request) as folder:
        try:
            with _environment(env_id, folder) as env:
                _play(env, policy, request, played, quiet=as_json)
        except (KeyboardInterrupt, Exception) as error:
            stop = error
        if folder is not None and played:
            run_record.write(folder, environment=env_id, seed=request.seed)
    if played or stop is None:
        _print(env_id, played, request, as_json=as_json)
    interruption.raise_stop(stop, f"Aborted by Ctrl-C after {len(played)} of {request.episodes} episodes")


@contextlib.contextmanager
def _videos(request: Request) -> Iterator[Path | None]:
    if request.video is None:
        yield None
        return
    names = [f"{_PREFIX}-episode-{number}.mp4" for number in range(request.episodes)] + [RUN]
    with output_folder.folder_for(request.video, names, request.overwrite) as folder:
        yield folder


@contextlib.contextmanager
def _environment(env_id: str, folder: Path | None) -> Iterator[gymnasium.Env[Any, Any]]:
    """Builds the environment, which records videos into the folder."""
    if folder is None:
        with closing(problem.make(env_id)) as env:
            yield env
        return
    try:
        # The folder is there already: `folder_for` has made it. An environment that cannot draw leaves no frames.
        with warnings.catch_warnings(), closing(problem.make(env_id, render_mode="rgb_array")) as env:
            for text in ("Overwriting existing videos", "Ignored saving a video"):
                warnings.filterwarnings("ignore", f".*{text}")
            recorder = gymnasium.wrappers.RecordVideo(
                env, str(folder), episode_trigger=lambda _: True, name_prefix=_PREFIX
            )
            with closing(recorder):
                yield recorder
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(
            f'videos of {env_id} need libraries: pip install "headrace[video]" ({error})'
        ) from error


def _play(
    env: gymnasium.Env[Any, Any],
    policy: EpsilonGreedy,
    request: Request,
    played: list[EndedEpisode],
    *,
    quiet: bool,
) -> None:
    torch.manual_seed(request.seed)
    frames = 0
    with ProgressLine(request.episodes, "episodes", quiet=quiet) as line:
        for number in range(request.episodes):
            observation, _ = env.reset(seed=request.seed + number)
            total, length, terminated, truncated = 0.0, 0, False, False
            while not (terminated or truncated):
                action = policy(trees.map_leaves(_batch_of_one, observation))
                observation, reward, terminated, truncated, _ = env.step(int(action[0]))
                total, length = total + float(reward), length + 1
            frames += length
            played.append(EndedEpisode(number, total, length, bool(terminated), bool(truncated), frames))
            line.show(number + 1, f"return {tables.number(total)}")


def _batch_of_one(leaf: Any) -> torch.Tensor:
    return torch.as_tensor(leaf)[None]


def _print(env_id: str, played: list[EndedEpisode], request: Request, *, as_json: bool) -> None:
    result = {
        "environment": env_id,
        "policy": str(request.policy),
        "seed": request.seed,
        "episodes": len(played),
        **episodes.spreads(played),
        "returns": [episode.return_ for episode in played],
        "video": None if request.video is None else str(request.video),
    }
    if as_json:
        click.echo(json.dumps(result))
        return
    rows = [
        (
            episode.episode_id,
            request.seed + episode.episode_id,
            episode.return_,
            episode.length,
            _end(episode),
        )
        for episode in played
    ]
    tables.show(f"{env_id}: {len(played)} episodes", rows, ("episode", "seed", "return", "length", "end"))
    tables.show_spreads("all episodes", episodes.spreads(played))


def _end(episode: EndedEpisode) -> str:
    return "terminated" if episode.terminated else "truncated"
