"""`headrace train --resume`: a run goes on from its saved state."""

import csv
import json

import pytest
import torch
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.dqn import checkpoint, problem, saved_training
from headrace.cli.dqn import training as dqn_training
from headrace.cli.dqn.settings import DqnSettings
from headrace.cli.dqn.training import Training
from headrace.cli.train import run as train_run
from headrace.errors import CheckpointError

SETTINGS = DqnSettings(learning_starts=64, batch_size=16, samples_per_insert=4, hidden_units=16)
ARGUMENTS = {"steps": 320, "num_envs": 4, "seed": 0, "goal": None}


def train(*arguments):
    return CliRunner().invoke(main, ["train", *arguments])


def new(saved=None):
    return Training(problem.describe("CartPole-v1"), SETTINGS, **ARGUMENTS, saved=saved)


def learn(training, updates):
    while training._learner.updates < updates:
        training._learn_once()


def weights(training):
    return {name: value.clone() for name, value in training._learner.weights().items()}


def check_that_a_save_cut_short_leaves_the_state_before(training, folder, monkeypatch):
    training.save(folder)
    before = training.log.frames
    learn(training, 10)

    def killed(*_arguments, **_options):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(saved_training, "writing", killed)
        with pytest.raises(OSError, match="the disk is gone"):
            training.save(folder)
    assert count_folders(folder) == 2
    saved, rows = saved_training.load(folder)
    assert saved.log["frames"] == before
    assert rows.is_dir()


def count_folders(folder):
    return sum(path.is_dir() for path in folder.iterdir())


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("collects_in_this_process")
def test_a_training_goes_on_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    write = saved_training.save
    uninterrupted = {}
    with new() as training:
        training._collector.start()
        learn(training, 1)
        check_that_a_save_cut_short_leaves_the_state_before(training, tmp_path, monkeypatch)
        learn(training, 20)

        def save(*arguments):
            write(*arguments)
            uninterrupted["frames"], uninterrupted["before"] = training.log.frames, weights(training)
            training._learn_once()
            uninterrupted["after"] = weights(training)

        with monkeypatch.context() as patched:
            patched.setattr(saved_training, "save", save)
            training.save(tmp_path)
    # The rows of earlier states are removed.
    assert count_folders(tmp_path) == 1
    with new(saved_training.load(tmp_path)) as training:
        assert training.log.frames == training._collector.statistics().frames == uninterrupted["frames"]
        torch.testing.assert_close(weights(training), uninterrupted["before"], rtol=0, atol=0)
        # The same batch is drawn, and the optimizer goes on: the same weights come of it.
        training._learn_once()
        torch.testing.assert_close(weights(training), uninterrupted["after"], rtol=0, atol=0)
        assert training._learner.updates == 21
        final = training.run(lambda _: None)
        # All frames are there: the collector has ended, and the learner may still be saved.
        training.save(tmp_path)
        ids = [episode.episode_id for episode in training.log.ended]
        under_way = sum(length for _, length in training.log._open.values())
    assert saved_training.load(tmp_path)[0].log["frames"] == ARGUMENTS["steps"]
    # Each frame is counted once, and no number of an episode is used again.
    assert final.frames == ARGUMENTS["steps"]
    assert sum(episode.length for episode in training.log.ended) + under_way == final.frames
    assert len(set(ids)) == len(ids)


def test_a_damaged_state_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"training\.pt"):
        saved_training.load(tmp_path)
    torch.save({"format": 99}, tmp_path / "training.pt")
    with pytest.raises(CheckpointError, match="expected format 1, got 99"):
        saved_training.load(tmp_path)


@pytest.mark.timeout(120)
def test_an_interrupted_run_is_resumed_by_the_command(tmp_path, monkeypatch):
    out = tmp_path / "run"

    def interrupted(saver):
        if saver._training.log.frames >= 200:
            raise KeyboardInterrupt

    # A report after each update: a quick machine ends the run within the usual quarter of a second.
    monkeypatch.setattr(dqn_training, "_REPORT_EVERY", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(train_run._Saver, "save_if_due", interrupted)
        begun = train(
            "CartPole-v1", "--steps=480", f"--out={out}", "--quiet", "--learning-starts=64", "--hidden-units=16",
            "--batch-size=16", "--samples-per-insert=4", "--seed=5", "--num-envs=4",
        )  # fmt: skip
    assert begun.exit_code == 1, begun.output
    assert f"headrace train --resume {out} goes on" in begun.output
    first = checkpoint.about(out / "policy.pt")["result"]
    with monkeypatch.context() as patched:
        saves = []
        patched.setattr(train_run, "_SAVE_EVERY", 0.0)
        save = Training.save
        patched.setattr(Training, "save", lambda training, folder: saves.append(save(training, folder)))
        done = train("--resume", str(out), "--json")
    assert done.exit_code == 0, done.output
    assert saves
    result = json.loads(done.stdout)
    assert 200 <= first["frames"] < result["frames"] == 480
    assert result["updates"] > first["updates"]
    assert result["seconds"] > first["seconds"]
    assert (result["seed"], result["goal"]) == (5, first["goal"])
    assert checkpoint.about(out / "policy.pt")["settings"]["hidden_units"] == 16
    with (out / "episodes.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == result["episodes"] > first["episodes"]
    # A run that has ended leaves no state.
    assert not (out / "resume").exists()
    again = train("--resume", str(out))
    assert again.exit_code == 2
    assert "its run has ended" in again.output


@pytest.mark.usefixtures("collects_in_this_process")
def test_a_state_that_cannot_be_saved_is_not_promised(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "save", full)
    monkeypatch.setattr(Training, "_learn_once", interrupted)
    begun = train("CartPole-v1", "--steps=64", f"--out={tmp_path / 'run'}", "--quiet")
    assert begun.exit_code == 1, begun.output
    assert "could not be saved for --resume: no space left" in begun.output
    assert "what was learnt is in" in begun.output
    assert "goes on" not in begun.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["CartPole-v1"], "ENV cannot be given with --resume"),
        (["--steps", "9"], "--steps cannot be given with --resume"),
        (["--gamma", "0.9"], "--gamma cannot be given with --resume"),
        ([], "no run of headrace train saved its state there"),
    ],
)
def test_wrong_use_is_2(tmp_path, arguments, told):
    done = train("--resume", str(tmp_path), *arguments)
    assert done.exit_code == 2, done.output
    assert told in done.output


def test_saves_take_at_most_a_twentieth_of_the_time():
    now = [0.0]

    class Slow:
        saves = 0

        def save(self, _folder):
            self.saves += 1
            now[0] += 10.0
            if self.saves == 2:
                raise OSError("no space left")

    training, told = Slow(), []
    saver = train_run._Saver(training, None, told.append, clock=lambda: now[0])
    for second in range(60, 60 + 10 + 200):
        now[0] = max(now[0], float(second))
        saver.save_if_due()
    assert (training.saves, told) == (1, [])
    now[0] += 1
    saver.save_if_due()
    # A save that fails does not end the training.
    assert training.saves == 2
    assert ["no space left" in text for text in told] == [True]
