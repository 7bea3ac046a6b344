"""Chunks with burn-in and stored state against lists of episodes (views V3, V6, V9, V17)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.views import View, recurrent

SIGNATURE = hr.Signature.like(
    {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False,
     "memory": {"h": np.zeros(2), "c": 0}, "state_in_0": 0}
)  # fmt: skip


def filled(
    lengths: list[int], rule: hr.ItemRule, max_size: int, capacity: int | None, lanes: int, open_end: bool
) -> tuple[hr.Replay, dict[int, tuple[list[int], int]]]:
    """Episodes of rows 1, 2, ... (row x: action x, reward x, state -x), the same lengths in each lane."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=max_size)
    replay = hr.Replay(SIGNATURE, [table], seed=0, capacity=capacity)
    where: dict[int, tuple[list[int], int]] = {}
    count = 1
    with replay.writer(lanes, items=[rule]) as writer:
        for number, length in enumerate(lengths):
            episodes: list[list[int]] = [[] for _ in range(lanes)]
            for _ in range(length):
                rows = np.arange(count, count + lanes)
                count += lanes
                step = {
                    "observation": rows, "action": rows, "reward": rows * 1.0,
                    "terminated": np.zeros(lanes, bool), "truncated": np.zeros(lanes, bool),
                    "memory": {"h": np.stack([-1.0 * rows] * 2, 1), "c": -rows}, "state_in_0": -rows,
                }  # fmt: skip
                if lanes == 1:
                    step = {name: column[0] for name, column in step.items() if name != "memory"}
                    step["memory"] = {"h": np.full(2, -1.0 * rows[0]), "c": -rows[0]}
                writer.append(step)
                for lane in range(lanes):
                    where[int(rows[lane])] = episodes[lane], len(episodes[lane])
                    episodes[lane].append(int(rows[lane]))
            if number == len(lengths) - 1 and open_end:
                break
            last = np.arange(count, count + lanes)
            count += lanes
            writer.end_episode({"observation": last if lanes > 1 else last[0]})
            for lane in range(lanes):
                episodes[lane].append(int(last[lane]))
    return replay, where


@settings(max_examples=fewer(60))
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=8),
    length=st.integers(1, 5),
    burn_in=st.integers(0, 6),
    overlap=st.booleans(),
    size=st.sampled_from([(1000, None), (3, None), (3, 160), (3, 400), (1000, 800)]),
    lanes=st.integers(1, 3),
    open_end=st.booleans(),
)
def test_chunks_against_lists_of_episodes(
    lengths: list[int],
    length: int,
    burn_in: int,
    overlap: bool,
    size: tuple[int, int | None],
    lanes: int,
    open_end: bool,
):
    """Rows of the chunk's own episode and lane, or nothing where the mask says so; the state of the first (V3, V17)."""
    stride = max(1, length // 2) if overlap else length
    rule = hr.ItemRule("t", 1, stride=stride, lookahead=length - 1)
    replay, where = filled(lengths, rule, *size, lanes, open_end)
    with replay:
        if not replay.can_sample("t", 1):
            return
        views = {
            **recurrent(length, burn_in, state=["memory", "state_in_0"]),
            "start": View("action"),
            "oldest": View("observation", shift="-200:0", mask=True),
        }
        data = replay.sample("t", 16, views=views).data
    width = burn_in + length
    assert data["observation"].shape == data["action_mask"].shape == (16, width)
    assert data["memory"]["h"].shape == (16, 2)
    for item in range(16):
        episode, start = where[int(data["start"][item])]
        assert start % stride == 0
        oldest = start + 1 - int(data["oldest_mask"][item].sum())
        for place in range(width):
            t = start - burn_in + place
            known = oldest <= t < len(episode)
            assert data["observation_mask"][item, place] == known
            assert data["observation"][item, place] == (episode[t] if known else 0)
            acted = known and episode[t] in where
            assert data["action_mask"][item, place] == data["reward_mask"][item, place] == acted
            assert data["action"][item, place] == (episode[t] if acted else 0)
            assert data["reward"][item, place] == (episode[t] if acted else 0)
        first = episode[max(start - burn_in, oldest)]
        assert data["state_in_0"][item] == data["memory"]["c"][item] == -first
        assert data["memory"]["h"][item].tolist() == [-first, -first]


def test_every_step_is_learned_from_once():
    """Without overlap: the steps after the burn-in are those of the episodes, the first ones included."""
    replay, where = filled([7, 3, 11], hr.ItemRule("t", 1, stride=4, lookahead=3), 1000, None, 2, False)
    with replay:
        keys: set[int] = set()
        rows: list[int] = []
        while len(keys) < len(replay.table("t")):
            batch = replay.sample("t", 8, views=recurrent(4, burn_in=4))
            for key, action, mask in zip(
                batch.info.keys, batch.data["action"], batch.data["action_mask"], strict=True
            ):
                if int(key) not in keys:
                    keys.add(int(key))
                    rows += action[4:][mask[4:]].tolist()
    assert sorted(rows) == sorted(where)


def test_items_of_several_rows_have_an_axis_of_one():
    """V9: `every` keeps the first row of an item; the views reach as far as they say, inside the episode."""
    rule = hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.PAD)
    replay, _ = filled([9], rule, 1000, None, 1, False)
    with replay:
        data = replay.sample("t", 8, views=recurrent(4, 2, state="state_in_0", columns=["action"])).data
    assert data["action"].shape == (8, 1, 6)
    assert data["state_in_0"].shape == (8, 1)
    for actions, state in zip(data["action"][:, 0].tolist(), data["state_in_0"][:, 0].tolist(), strict=True):
        assert (actions, state) in [
            ([0, 0, 1, 2, 3, 4], -1), ([3, 4, 5, 6, 7, 8], -3), ([7, 8, 9, 0, 0, 0], -7)
        ]  # fmt: skip


def test_the_views_themselves():
    """What is presented can be told without `recurrent`."""
    replay, _ = filled([9], hr.ItemRule("t", 1, stride=3, lookahead=2), 1000, None, 1, False)
    with replay:
        views = {
            "burn_in": View("action", shift="-4:-1", every=3, mask=True),
            "state": View("state_in_0", every=3),
            "start": View("action"),
        }
        data = replay.sample("t", 8, views=views).data
    assert (data["state"] == -data["start"]).all()
    offsets = np.arange(-4, 0)
    wanted = data["start"][:, None] + offsets
    assert (data["burn_in"] == np.where(wanted > 0, wanted, 0)).all()
    assert (data["burn_in_mask"] == (wanted > 0)).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0,), ValueError),
        ((2, -1), ValueError),
        ((2.0,), TypeError),
        ((True,), TypeError),
        ((2, 1.0), TypeError),
    ],
)
def test_arguments(arguments: tuple[Any, ...], error: type[Exception]):
    with pytest.raises(error, match="length|burn_in"):
        recurrent(*arguments)


def test_a_state_is_not_shown_row_by_row_as_well():
    """One name cannot stand for both; none of the two is taken in silence."""
    with pytest.raises(ValueError, match="state.*action in both"):
        recurrent(2, state=["action", "state_in_0"])
    with pytest.raises(TypeError, match="columns.*'observation'"):
        recurrent(2, columns="observation")
