"""Ends and resets of single lanes: what one kernel call takes in, against writers of one lane (trajectories V2, V3).

Pages are small, so that windows and the final rows of one call span several of them.
"""

import numpy as np
import pytest

import headrace as hr
from headrace.checks import check_timeout
from headrace.replay.public import core_of
from headrace.store.block import LaneBlock
from headrace.tables.description.selectors import Fifo
from headrace.testing import RankBased

LANES = 4


def signature_with(observation):
    return hr.Signature.like(
        {
            "observation": observation,
            "action": np.int64(0),
            "reward": np.float32(0),
            "terminated": False,
            "truncated": False,
        }
    )


SIGNATURE = signature_with({"lane": np.int64(0), "row": np.zeros(2, np.float32)})
TRANSITIONS = hr.NStepRule("t", 3, 0.5)
WINDOWS = hr.ItemRule("t", 3, 2, hr.EndOfEpisode.TILE)
PADDED = hr.ItemRule("t", 5, 2, hr.EndOfEpisode.PAD)
EPISODES = hr.EpisodeRule("t", 9)


def observe(lanes, rows):
    return {"lane": np.asarray(lanes), "row": np.stack([rows, rows], -1).astype(np.float32)}


def calls(count, seed):
    """Lanes that reset themselves in the next step: the rows' numbers, which lanes end and which are reset."""
    random = np.random.default_rng(seed)
    lengths, times, numbers = (
        random.integers(1, 9, LANES),
        np.zeros(LANES, np.int64),
        np.zeros(LANES, np.int64),
    )
    for _ in range(count):
        resets = times == lengths
        numbers += 1
        times = np.where(resets, 0, times + 1)
        lengths = np.where(resets, random.integers(1, 9, LANES), lengths)
        yield numbers.copy(), times == lengths, resets


def write_lanes(replay, rules, count, seed):
    keys = []
    with hr.StepWriter(replay, rules, lanes=LANES, autoreset="next_step") as writer:
        writer.add_first(observe(range(LANES), np.zeros(LANES)))
        for numbers, ended, resets in calls(count, seed):
            truncated = ended & (numbers % 2 == 0)
            terminated = ended & ~truncated
            action = np.where(resets, -1, numbers)
            reward = numbers.astype(np.float32)
            keys += writer.add(action, reward, terminated, truncated, observe(range(LANES), numbers))
        keys += writer.reset()
    assert len(keys) == len(set(keys))
    return len(keys)


def write_one(replay, rule, lane, count, seed):
    with hr.StepWriter(replay, [rule]) as writer:
        writer.add_first(observe(lane, 0))
        for numbers, ended, resets in calls(count, seed):
            number = int(numbers[lane])
            if resets[lane]:
                writer.add_first(observe(lane, number))
                continue
            truncated = bool(ended[lane]) and number % 2 == 0
            flags = bool(ended[lane]) and not truncated, truncated
            writer.add(number, float(number), *flags, observe(lane, number))


def taken(replay, views=None):
    """What is in the table, one item after the other, by lane."""
    found = [[] for _ in range(LANES)]
    while len(replay.table("t")):
        batch = replay.sample("t", 1, views=views)
        observation = batch.data["observation"]
        shown = {
            name: batch.data[name][0].tolist() for name in ("action", "reward", "terminated", "truncated")
        }
        shown["rows"] = observation["row"][0, ..., 0].tolist()
        if views is not None:
            shown["next"] = batch.data["next_observation"]["row"][0].tolist()
            shown["discount"], shown["n"] = batch.data["discount"].tolist(), batch.data["n"].tolist()
        mask = None if batch.mask is None else batch.mask[0].tolist()
        found[np.atleast_1d(observation["lane"][0])[0]].append((shown, mask))
    return found


def new_replay(kind, tmp_path):
    remover = RankBased() if kind == "custom remover" else Fifo()
    gate = (
        hr.rate_limiters.SampleToInsertRatio(1, 1, 20_000)
        if kind == "limited"
        else hr.rate_limiters.MinSize(1)
    )
    tables = [
        hr.Table(
            name, sampler=Fifo(), remover=remover, max_size=10_000, max_times_sampled=1, rate_limiter=gate
        )
        for name in ("t", "u")
    ]
    place = {"path": tmp_path / "replay"} if kind == "on disk" else {}
    # Pages of 11 rows: two steps of four lanes, or eleven final rows.
    return hr.Replay(SIGNATURE, tables, capacity=11 * 32, seed=0, **place)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["in memory", "on disk", "custom remover", "limited", "two rules"])
@pytest.mark.parametrize(
    "rule", [TRANSITIONS, WINDOWS, PADDED, EPISODES], ids=["steps", "tile", "pad", "whole"]
)
def test_each_lane_is_as_if_it_were_alone(rule, kind, seed, tmp_path):
    """V2, V3: in every kind of table, and by rules whose windows at an end are of several shapes."""
    views = hr.views.transition(3, 0.5) if rule is TRANSITIONS else None
    rules = [rule, hr.ItemRule("u", 1)] if kind == "two rules" else [rule]
    with new_replay(kind, tmp_path) as replay:
        made = write_lanes(replay, rules, 55, seed)
        assert made == len(replay.table("t")) + len(replay.table("u"))
        found = taken(replay, views)
        replay.reset("u")
        assert replay.statistics().store.pages == 0  # What was pinned was given back.
    for lane in range(LANES):
        with new_replay("in memory", tmp_path) as alone:
            write_one(alone, rule, lane, 55, seed)
            assert len(found[lane]) > 5
            assert found[lane] == taken(alone, views)[lane]


def test_a_row_that_was_idle_is_zeros():
    """V3: nothing of the step that is a reset is stored, whatever stood in the row's place before."""
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=2)
    with hr.Replay(SIGNATURE, [table], capacity=640, seed=0) as replay:
        with hr.TransitionWriter(replay, "t", lanes=2, autoreset="next_step") as writer:
            writer.add_first(observe([7, 7], np.ones(2)))
            for call in range(12):
                ends = np.array([call % 2 == 0, False])
                no = np.zeros(2, bool)
                writer.add(np.full(2, 7), np.full(2, 7.0, np.float32), ends, no, observe([7, 7], np.ones(2)))
                if call % 2:
                    row = int(writer._writer._lanes.blocks[0].newest_rows[0])
                    stored = {name: column[row] for name, column in core_of(replay).store.columns.items()}
                    assert not any(np.any(value) for value in stored.values())


@pytest.mark.parametrize(
    ("timeout", "error"), [(True, TypeError), ("1", TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_timeouts(timeout, error):
    """O10, A6: None, or seconds."""
    assert check_timeout(None) is None
    assert check_timeout(0) == 0.0
    with pytest.raises(error, match="timeout: expected seconds"):
        check_timeout(timeout)


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_an_interrupt_while_all_lanes_end_mixes_no_observations(mode, monkeypatch):
    """Ctrl-C before final rows are taken in: the next row begins with one observation, not with parts of two."""
    signature = signature_with({"small": np.int64(0), "wide": np.zeros(20, np.int64)})

    def observation(number):
        return {"small": np.full(2, number), "wide": np.full((2, 20), number)}

    def interrupted(block):
        raise KeyboardInterrupt

    no, reward = np.zeros(2, np.bool_), np.ones(2, np.float32)
    fifo = hr.selectors.Fifo()
    with hr.Replay(signature, [hr.Table("t", sampler=fifo, remover=fifo, max_size=99)], seed=0) as replay:
        with hr.TransitionWriter(replay, "t", lanes=2, autoreset=mode) as writer:
            writer.add_first(observation(0))
            writer.add(np.full(2, 1), reward, no, no, observation(1))
            final = [observation(2)] if mode == "same_step" else []
            with monkeypatch.context() as patch:
                patch.setattr(LaneBlock, "commit_final", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    writer.add(np.full(2, 2), reward, ~no, no, observation(2), None, *final)
            with pytest.raises(ValueError, match="an earlier call was interrupted"):
                writer.add(np.full(2, 3), reward, no, no, observation(3))
            writer.add_first(observation(4))
            writer.add(np.full(2, 3), reward, no, no, observation(5))
            columns = core_of(replay).store.columns
            rows = columns["action"] == 3
            assert rows.sum() == 2
            assert (columns["observation/wide"][rows] == columns["observation/small"][rows][:, None]).all()
            writer.reset(write_cached_steps=False)


def test_a_refused_signature_leaves_no_writer_behind():
    bad = hr.Signature.like({"observation": 0, "action": 0, "reward": 0.0, "terminated": False})
    fifo = hr.selectors.Fifo()
    with hr.Replay(bad, [hr.Table("t", sampler=fifo, remover=fifo, max_size=99)], seed=0) as replay:
        with pytest.raises(hr.errors.SpecError, match="missing: truncated") as caught:
            hr.TransitionWriter(replay, "nowhere", lanes=300, autoreset="disabled")
        # The error is still at hand, and with its traceback whatever the call had made.
        assert not core_of(replay).writers._writers, caught
