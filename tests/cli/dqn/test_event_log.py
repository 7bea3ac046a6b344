"""Event files for TensorBoard."""

import dataclasses
import struct
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from tensorboardX.proto.event_pb2 import Event, SessionLog

from headrace.cli import main
from headrace.cli.dqn.event_log import EventLog
from headrace.cli.dqn.training import Progress
from headrace.cli.episodes import EpisodeLog

FIRST = Progress(
    frames=3, episodes=1, updates=0, seconds=0.5, return_mean=None, frames_per_second=6.0, samples_per_insert=None,
    samples_per_insert_target=8.0, policy_lag=0.0, epsilon=1.0, loss=None,
)  # fmt: skip
LAST = dataclasses.replace(
    FIRST, frames=5, episodes=2, updates=4, return_mean=2.5, samples_per_insert=7.5, loss=0.25
)


def end_episode(log, number, rewards):
    ended = np.arange(len(rewards)) == len(rewards) - 1
    log.add(np.full(len(rewards), number), np.array(rewards), ended, np.zeros(len(rewards), bool))


def events(folder):
    """Yields the events of all files, by the format of TFRecord: length, checksum, event, checksum."""
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            yield Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]


def scalars(folder):
    return [
        (each.tag, event.step, each.simple_value) for event in events(folder) for each in event.summary.value
    ]


def test_numbers_and_episodes_come_back(tmp_path):
    log = EpisodeLog()
    with EventLog(tmp_path, log) as written:
        end_episode(log, 0, [1.0, 1.0, 2.0])
        written.write(FIRST)
        end_episode(log, 1, [0.5, 0.5])
        written.write(LAST)
    found = scalars(tmp_path)
    assert [each for each in found if each[0].startswith("episode")] == [
        ("episode/return", 3, 4.0), ("episode/length", 3, 3.0),
        ("episode/return", 5, 1.0), ("episode/length", 5, 2.0),
    ]  # fmt: skip
    for progress in (FIRST, LAST):
        expected = {name: value for name, value in vars(progress).items() if value is not None}
        frames = expected.pop("frames")
        assert {tag: value for tag, step, value in found if step == frames and "train" in tag} == {
            f"train/{name}": value for name, value in expected.items()
        }


def test_a_run_that_goes_on_replaces_what_came_after_its_state(tmp_path):
    log = EpisodeLog()
    end_episode(log, 0, [1.0, 1.0, 2.0])
    with EventLog(tmp_path, log) as written:
        written.write(FIRST)
    # TensorBoard drops the events of earlier files from the step of a new session on.
    sessions = [event.step for event in events(tmp_path) if event.session_log.status == SessionLog.START]
    assert sessions == [3]
    assert not any(tag.startswith("episode") for tag, _, _ in scalars(tmp_path))


def test_a_missing_library_is_named_and_nothing_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    done = CliRunner().invoke(main, ["train", "CartPole-v1", "--tensorboard", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert 'pip install "headrace[tensorboard]"' in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("collects_in_this_process")
def test_the_command_writes_them(tmp_path):
    done = CliRunner().invoke(
        main,
        [
            "train",
            "CartPole-v1",
            "--steps=64",
            "--num-envs=4",
            "--tensorboard",
            "--json",
            f"--out={tmp_path}",
        ],
    )
    assert done.exit_code == 0, done.output
    found = scalars(tmp_path / "tensorboard")
    assert ("train/samples_per_insert_target", 64, 32.0) in found
    assert any(tag == "episode/return" for tag, _, _ in found)
