"""Goals of hindsight against lists of episodes (views V3, V16, V17, V18; replay S10, B4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.replay.public import core_of
from headrace.views import View, hindsight, transition

END = hr.EndOfEpisode
GAMMA = 0.5


def reward(achieved: Any, goal: Any, info: Any) -> Any:
    """Whole numbers, so that sums are exact: all three can be read from the result."""
    return 1_000_000.0 * achieved + 1000.0 * goal + info.get("wind", 0)


def relabel(views: dict[str, View], **changes: Any) -> dict[str, View]:
    arguments: dict[str, Any] = {
        "goal": "observation/desired",
        "achieved": "observation/achieved",
        "reward": reward,
        "info": ["wind"],
    }
    return hindsight(views, **{**arguments, **changes})


class Uniforms:
    """In place of the replay's generator: the numbers it is told."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.asarray(numbers, np.float64)
        self.asked: list[tuple[int, ...]] = []

    def random(self, shape: tuple[int, ...]) -> Any:
        self.asked.append(shape)
        return np.ascontiguousarray(self.numbers[:, : shape[1]])


@dataclass
class Model:
    """Episodes as lists of numbers of rows; row `x` achieved `x`, was to reach `-x`, was rewarded `x / 2`."""

    episodes: list[list[int]] = field(default_factory=list)
    where: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    finals: set[int] = field(default_factory=set)

    def add(self, lane: list[int], row: int) -> None:
        self.where[row] = (lane, len(lane))
        lane.append(row)


SIGNATURE = hr.Signature.like(
    {
        "observation": {"achieved": np.int64(0), "desired": np.int64(0)},
        "action": np.int64(0),
        "wind": np.float64(0),
        "reward": np.float64(0),
        "terminated": False,
        "truncated": False,
    }
)


def observed(rows: Any) -> dict[str, Any]:
    return {"achieved": rows, "desired": -np.asarray(rows)}


def filled(
    seed: int,
    lanes: int,
    steps: int,
    mean_length: int,
    rule: hr.ItemRule,
    max_size: int = 10_000,
    capacity: int | None = None,
    lane_ends: bool = True,
) -> tuple[hr.Replay, Model]:
    """Random episodes that end with their last observation or without it; what is left is unfinished."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=max_size)
    replay = hr.Replay(SIGNATURE, [table], seed=seed, capacity=capacity)
    model, random, count = Model(), np.random.default_rng(seed), 1
    current: list[list[int]] = [[] for _ in range(lanes)]
    with replay.writer(lanes, items=[rule]) as writer:
        for _ in range(steps):
            rows = np.arange(count, count + lanes)
            count += lanes
            ends = random.random(lanes) < 1 / mean_length
            terminated = ends & (random.random(lanes) < 0.5)
            step = {
                "observation": observed(rows), "action": rows, "wind": rows % 7, "reward": rows / 2,
                "terminated": terminated, "truncated": ends & ~terminated,
            }  # fmt: skip
            if lanes == 1:
                step = {name: column[0] for name, column in step.items() if name != "observation"}
                step["observation"] = observed(rows[0])
            writer.append(step)
            for lane in range(lanes):
                model.add(current[lane], int(rows[lane]))
                if ends[lane]:
                    final = random.random() < 0.7
                    if final:
                        model.add(current[lane], count)
                        model.finals.add(count)
                    writer.end_episode(
                        {"observation": observed(np.int64(count))} if final else None,
                        lane=lane if lanes > 1 else None,
                    )
                    count += 1
                    current[lane] = []
    return replay, model


def expected_goals(
    model: Model, data: dict[str, Any], mask: Any, uniforms: Any, strategy: str, ratio: float
) -> dict[tuple[int, int], int]:
    """The goal of each row (item, place) that is to have another one, told row by row."""
    found: dict[tuple[int, int], int] = {}
    run = -1
    rows = data["row"]
    for item in range(len(rows)):
        episode: list[int] = []
        here: list[tuple[int, int]] = []
        runs: list[list[tuple[int, int]]] = []
        for place in range(rows.shape[1]):
            if not mask[item, place]:
                continue
            if model.where[rows[item, place]][0] is not episode or not here:
                episode = model.where[rows[item, place]][0]
                here = []
                runs.append(here)
            here.append((item, place))
        for here in runs:
            run += 1
            first = int(rows[here[0]])
            episode, at = model.where[first]
            if uniforms[0, run] >= ratio:
                continue
            oldest = at - int(data["back_mask"][here[0]].sum())
            newest = at + int(data["ahead_mask"][here[0]].sum())
            after = episode[at + 1 : newest + 1]
            candidates = {
                "future": after, "final": after[-1:], "episode": episode[oldest : newest + 1],
            }[strategy]  # fmt: skip
            shown = set()
            for each in here:
                _, t = model.where[int(rows[each])]
                shown |= {t + k for k in range(int(data["n"][each]))}
                shown |= {t} - {k for k in [t] if episode[k] in model.finals}
                shown |= {t - 1} if data["previous_mask"][each] else set()
            if candidates and all(t < newest for t in shown):
                goal = candidates[int(uniforms[1, run] * len(candidates))]
                found.update(dict.fromkeys(here, goal))
    return found


VIEWS = {
    "row": View("action"),
    "observed": View("observation/achieved", mask=True),
    "goal": View("observation/desired"),
    "goals": View("observation/desired", shift="-2:1", fill="edge", mask=True),
    "plain": View("reward"),
    "previous": View("reward", shift=-1, mask=True),
}
# Rows of final rows are told by what was achieved there: an action they have not.
BACK = View("observation/achieved", shift="-60:-1", mask=True)
# An item without lookahead does not keep the page of the row after it.
AHEAD = View("observation/achieved", shift="1:60", mask=True)


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@settings(max_examples=fewer(60))
@given(
    seed=st.integers(0, 10_000),
    lanes=st.integers(1, 3),
    mean_length=st.integers(1, 12),
    shape=st.sampled_from(
        [(1, END.DROP, 0), (1, END.DROP, 1), (1, END.DROP, 3), (4, END.DROP, 0), (4, END.PAD, 0),
         (3, END.TILE, 1), (5, END.TRUNCATE, 0), (6, END.CONTINUE, 0)]
    ),
    capacity=st.sampled_from([None, 200, 700]),
    max_size=st.sampled_from([8, 10_000]),
    strategy=st.sampled_from(["future", "final", "episode"]),
    ratio=st.sampled_from([0.0, 0.6, 1.0]),
    n_step=st.integers(1, 3),
)  # fmt: skip
def test_goals_against_lists_of_episodes(
    seed: int,
    lanes: int,
    mean_length: int,
    shape: tuple[int, Any, int],
    capacity: int | None,
    max_size: int,
    strategy: str,
    ratio: float,
    n_step: int,
):
    """The goal is that of a row of the same episode, everywhere; rewards are for it; nothing else changes (V3, V17)."""
    length, end, lookahead = shape
    rule = hr.ItemRule("t", length, end=end, lookahead=lookahead)
    replay, model = filled(seed, lanes, 60 // lanes, mean_length, rule, max_size, capacity)
    with replay:
        if not replay.can_sample("t", 1):
            return
        before = {
            name: column.copy()
            for name, column in core_of(replay).store.row_arrays.items()
            if column.size < 1e6
        }
        views = {
            **relabel({**VIEWS, **transition(n_step, GAMMA)}, strategy=strategy, ratio=ratio),
            "back": BACK,
            "ahead": AHEAD,
        }
        uniforms = np.random.default_rng(seed).random((2, 1000))
        injected = Uniforms(uniforms)
        core_of(replay).sampling.random, stored = injected, core_of(replay).sampling.random  # type: ignore[assignment]
        batch = replay.sample("t", 12, views=views)
        core_of(replay).sampling.random = stored
        data = {
            name: column if length > 1 else column[:, None]
            for name, column in batch.data.items()
            if name not in ("observation", "next_observation")
        }
        desired = {
            name: batch.data[name]["desired"].reshape(data["goal"].shape)
            for name in ("observation", "next_observation")
        }
        data["row"] = data["observed"]
        mask = data["observed_mask"]
        goals = expected_goals(model, data, mask, uniforms, strategy, ratio)
        assert len(injected.asked) == 1
        for item, place in np.ndindex(mask.shape):
            at = item, place
            goal = goals.get(at)
            assert data["relabelled"][at] == (goal is not None)
            if not mask[at]:
                assert data["goal"][at] == data["plain"][at] == data["reward"][at] == 0
                continue
            episode, t = model.where[int(data["row"][at])]
            known = data["goals_mask"][at]

            def wanted(index: int, goal: Any = goal, episode: list[int] = episode) -> int:
                return -episode[index] if goal is None else goal

            def rewarded(index: int, goal: Any = goal, episode: list[int] = episode) -> float:
                row = episode[index]
                return row / 2 if goal is None else 1_000_000.0 * episode[index + 1] + 1000.0 * goal + row % 7

            m = int(data["n"][at])
            assert data["goal"][at] == desired["observation"][at] == wanted(t)
            # Where the episode ended without its last observation, or it is gone, the one before stands there.
            newest = t + int(data["ahead_mask"][at].sum())
            assert desired["next_observation"][at] == wanted(min(t + m, newest))
            for offset, value, is_known in zip(range(-2, 2), data["goals"][at], known, strict=True):
                if is_known:
                    assert value == wanted(t + offset)
                elif offset > 0 or t + offset < 0:
                    # The nearest, also where pages of older rows are gone.
                    assert goal is None or value == goal
            is_final = episode[t] in model.finals
            assert data["plain"][at] == (0 if is_final else rewarded(t))
            if data["previous_mask"][at]:
                assert data["previous"][at] == rewarded(t - 1)
            assert data["reward"][at] == sum(GAMMA**k * rewarded(t + k) for k in range(m))
        for name, column in before.items():
            np.testing.assert_array_equal(core_of(replay).store.row_arrays[name], column)


# ---- the draw ------------------------------------------------------------------------------------------------------


def one_episode(length: int, final: bool = True, **rule: Any) -> hr.Replay:
    """A queue that gives the transitions of one episode in order: rows 1, 2, ... and `length + 1` its last one."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=99, max_times_sampled=1
    )
    replay = hr.Replay(SIGNATURE, [table], seed=0)
    with replay.writer(items=[hr.ItemRule("t", **{"length": 1, **rule})]) as writer:
        for row in range(1, length + 1):
            writer.append(
                {"observation": observed(np.int64(row)), "action": row, "wind": 0, "reward": 0,
                 "terminated": row == length, "truncated": False}
            )  # fmt: skip
        if final:
            writer.end_episode({"observation": observed(np.int64(length + 1))})
    return replay


@pytest.mark.parametrize(
    ("strategy", "candidates"),
    [("future", [3, 4, 5, 6, 7]), ("final", [7]), ("episode", [1, 2, 3, 4, 5, 6, 7])],
)
def test_each_candidate_is_equally_likely(strategy: str, candidates: list[int]):
    """Equal parts of [0, 1) lead to each row that can be drawn, in order; counted, not estimated."""
    views = relabel({"goal": View("observation/desired")}, strategy=strategy, ratio=1.0)
    for part in range(60 * len(candidates)):
        with one_episode(6) as replay:
            replay.sample("t", 1)
            uniform = (part + 0.5) / (60 * len(candidates))
            core_of(replay).sampling.random = Uniforms([[0.0], [uniform]])  # type: ignore[assignment]
            (goal,) = replay.sample("t", 1, views=views).data["goal"]
            assert goal == candidates[part // 60]
    with one_episode(6) as replay:
        replay.sample("t", 1)
        # The ends of the range are rows as well.
        core_of(replay).sampling.random = Uniforms([[0.0] * 2, [0.0, np.nextafter(1.0, 0.0)]])  # type: ignore[assignment]
        goals = replay.sample("t", 2, views=views).data["goal"]
        assert goals.tolist() == [candidates[0], 7]


def test_the_ratio_is_the_probability():
    """A goal is replaced where its number is below the ratio."""
    views = relabel({"goal": View("observation/desired")}, ratio=0.25, strategy="final")
    numbers = (np.arange(8) + 0.5) / 8
    with one_episode(8) as replay:
        core_of(replay).sampling.random = Uniforms([numbers, numbers])  # type: ignore[assignment]
        data = replay.sample("t", 8, views=views).data
        assert data["relabelled"].tolist() == [True, True, *[False] * 6]
        assert data["goal"].tolist() == [9, 9, -3, -4, -5, -6, -7, -8]


def test_the_same_seed_gives_the_same_goals():
    """Replay S10."""
    batches = []
    for _ in range(2):
        replay, _ = filled(3, 2, 40, 6, hr.ItemRule("t", 1, lookahead=1))
        with replay:
            views = relabel(transition())
            batches.append([replay.sample("t", 16, views=views) for _ in range(3)])
    for one, other in zip(*batches, strict=True):
        assert one.data["relabelled"].any()
        np.testing.assert_array_equal(
            one.data["observation"]["desired"], other.data["observation"]["desired"]
        )
        np.testing.assert_array_equal(one.data["reward"], other.data["reward"])
    first, second = batches[0][:2]
    assert (first.info.keys != second.info.keys).any()


def test_sampling_without_hindsight_is_as_it_was():
    """It asks the generator for nothing more (S10), and takes the fused path; a ratio of 0 gives the same batch."""
    plain = transition()
    replay, _ = filled(5, 1, 60, 9, hr.ItemRule("t", 1, lookahead=1))
    with replay:
        flat = {"goal": View("observation/desired"), "reward": View("reward")}
        assert core_of(replay).sampling.plan(flat).fused is not None
        assert core_of(replay).sampling.plan(relabel(flat)).fused is None
        for views in (plain, flat, relabel(plain)):
            # A uniform table without holes draws one number an item; hindsight two more.
            expected = np.random.default_rng()
            expected.bit_generator.state = core_of(replay).sampling.random.bit_generator.state
            expected.random(24 if "relabelled" in views else 8)
            replay.sample("t", 8, views=views)
            assert core_of(replay).sampling.random.bit_generator.state == expected.bit_generator.state
    pair = []
    for views in (plain, relabel(plain, ratio=0.0)):
        replay, _ = filled(5, 1, 60, 9, hr.ItemRule("t", 1, lookahead=1))
        with replay:
            pair.append(replay.sample("t", 8, views=views))
    ours, theirs = pair[1], pair[0]
    assert not ours.data.pop("relabelled").any()
    np.testing.assert_array_equal(ours.info.keys, theirs.info.keys)
    np.testing.assert_array_equal(ours.info.probabilities, theirs.info.probabilities)
    for name in theirs.data:
        one, other = ours.data[name], theirs.data[name]
        for leaf in other if isinstance(other, dict) else [...]:
            np.testing.assert_array_equal(one[leaf], other[leaf])


def test_probabilities_and_priorities_are_those_of_the_items():
    """Replay B3: what is told of an item has nothing to do with its goal."""
    replay, _ = filled(5, 1, 60, 9, hr.ItemRule("t", 1, lookahead=1))
    with replay:
        batch = replay.sample("t", 8, views=relabel(transition(), ratio=1.0))
        size = len(replay.table("t"))
        assert (batch.info.probabilities == 1 / size).all()
        assert replay.update_priorities("t", batch.info.keys, np.ones(8)) == 8


# ---- rewards and flags ---------------------------------------------------------------------------------------------


def test_n_step_rewards_are_all_computed_anew():
    """V18: each of the n rewards is for the new goal, with its own achieved goal and info."""
    calls: list[Any] = []

    def noted(achieved: Any, goal: Any, info: Any) -> Any:
        calls.append((achieved.tolist(), goal.tolist(), sorted(info)))
        return -(achieved != goal).astype(float)

    views = relabel(transition(3, 0.5), reward=noted, strategy="final", ratio=1.0)
    with one_episode(4) as replay:
        data = replay.sample("t", 4, views=views).data
    assert calls == [([2, 3, 4, 3, 4, 5, 4, 5, 5], [5] * 9, ["wind"])]
    assert data["reward"].tolist() == [-1.75, -1.5, -1.0, 0.0]
    assert data["n"].tolist() == [3, 3, 2, 1]
    assert data["terminated"].tolist() == [False, True, True, True]
    assert data["discount"].tolist() == [0.125, 0, 0, 0]


def test_terminated_and_discount_follow_the_goal_if_asked():
    """`terminated=`: told anew where the goal was replaced; elsewhere as it is stored."""
    views = relabel(
        {**transition(1, 0.5), "flag": View("terminated")},
        reward=lambda achieved, goal, info: 1.0 * (achieved == goal),
        terminated=lambda achieved, goal, info: achieved == goal,
        strategy="future",
    )
    with one_episode(4) as replay:
        # Goals: 2 (reached at once), 5, its own, 5 (reached at once).
        core_of(replay).sampling.random = Uniforms([[0, 0, 1, 0], [0, 0.99, 0, 0.5]])  # type: ignore[assignment]
        data = replay.sample("t", 4, views=views).data
    assert data["observation"]["desired"].tolist() == [2, 5, -3, 5]
    assert data["terminated"].tolist() == data["flag"].tolist() == [True, False, False, True]
    assert data["discount"].tolist() == [0, 0.5, 0.5, 0]
    assert data["reward"].tolist() == [1, 0, 0, 1]


def test_flags_stay_as_they_are_stored_unless_asked():
    with one_episode(3) as replay:
        data = replay.sample("t", 3, views=relabel(transition(), ratio=1.0)).data
        assert data["terminated"].tolist() == [False, False, True]
        assert data["discount"].tolist() == [0.99, 0.99, 0]


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_a_reward_that_cannot_be_told_keeps_the_goal(strategy: str):
    """V17: the last row of an episode without its last observation; the newest row of one that goes on."""
    views = relabel({"goal": View("observation/desired"), **transition()}, strategy=strategy, ratio=1.0)
    with one_episode(4, final=False) as replay:
        data = replay.sample("t", 4, views=views).data
        assert data["relabelled"].tolist()[:3] == [True] * 3
        # A row without a next one has no reward that could be wrong, but nothing later either.
        last = data["relabelled"][3]
        assert not last
        assert data["goal"][3] == -4
        assert data["reward"][3] == 0
        assert data["goal"].max() <= 4


def test_views_added_later_show_what_is_stored():
    with one_episode(3) as replay:
        views = {
            **relabel({"goal": View("observation/desired")}, ratio=1.0),
            "own": View("observation/desired"),
        }
        data = replay.sample("t", 3, views=views).data
        assert list(data) == ["goal", "relabelled", "own"]
        assert data["own"].tolist() == [-1, -2, -3]
        assert (data["goal"] > 0).all()


@pytest.mark.parametrize("strategy", ["final", "future", "episode"])
def test_achieved_goals_that_final_rows_were_not_given(strategy: str):
    """V2: the zeros of a final row are never data, so no goal, and the last transition cannot be told."""
    signature = hr.Signature.like(
        {
            "observation": 0,
            "achieved": 0,
            "desired": 0,
            "reward": 0.0,
            "terminated": False,
            "truncated": False,
        }
    )
    for given_it, goals in ((False, [4, 4, 4, 104]), (True, [5, 5, 5, 5])):
        table = hr.Table.queue("t", 9)
        with hr.Replay(signature, [table], seed=0) as replay:
            with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
                for row in range(1, 5):
                    writer.append(
                        {"observation": row, "achieved": row, "desired": 100 + row, "reward": 0.0,
                         "terminated": False, "truncated": False}
                    )  # fmt: skip
                final = {"observation": 5, "achieved": 5, "desired": 105}
                writer.end_episode(final if given_it else {"observation": 5})
            views = hindsight(
                {"goal": View("desired"), "reward": View("reward")},
                goal="desired", achieved="achieved", strategy=strategy, ratio=1.0,
                reward=lambda achieved, goal, info: achieved - goal,
            )  # fmt: skip
            # The last of the rows that can be drawn.
            core_of(replay).sampling.random = Uniforms([[0.0] * 4, [np.nextafter(1.0, 0.0)] * 4])  # type: ignore[assignment]
            assert replay.sample("t", 4, views=views).data["goal"].tolist() == goals


def test_trees_of_goals():
    """V5: goals may be trees; the functions are given such trees."""
    example = {
        "observation": {"achieved": (np.float32(0), np.zeros(2)), "desired": (np.float32(0), np.zeros(2))},
        "action": 0, "reward": 0.0, "terminated": False, "truncated": False,
    }  # fmt: skip

    def seen(row: int) -> Any:
        return {"achieved": (row, np.full(2, row)), "desired": (-row, np.full(2, -row))}

    def told(achieved: Any, goal: Any, info: Any) -> Any:
        assert achieved[1].shape == goal[1].shape == (3, 2)
        assert info["observation"]["achieved"][0].shape == (3,)
        return achieved[0] + 10 * goal[1][:, 0]

    with hr.Replay(hr.Signature.like(example), [hr.Table.queue("t", 9)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for row in range(1, 4):
                writer.append({**example, "observation": seen(row)})
            writer.end_episode({"observation": seen(4)})
        views = relabel(transition(), reward=told, strategy="final", ratio=1.0, info=["observation"])
        data = replay.sample("t", 3, views=views).data
        assert data["observation"]["desired"][0].tolist() == [4, 4, 4]
        assert data["next_observation"]["desired"][1].tolist() == [[4, 4]] * 3
        assert data["observation"]["achieved"][0].tolist() == [1, 2, 3]
        assert data["reward"].tolist() == [42, 43, 44]


def test_chunks_of_recurrent_learners_have_one_goal():
    """Windows with a burn-in: one goal for all of it, later than the row where learning begins."""
    views = relabel(hr.views.recurrent(2, burn_in=2, columns=["observation/desired", "reward"]), ratio=1.0)
    with one_episode(6, stride=2, lookahead=1) as replay:
        core_of(replay).sampling.random = Uniforms([[0.0] * 3, [0.0] * 3])  # type: ignore[assignment]
        data = replay.sample("t", 3, views=views).data
    assert data["observation/desired"].tolist() == [[0, 0, 2, 2], [4] * 4, [6] * 4]
    assert data["reward"][1].tolist() == [1_000_000.0 * row + 4000 for row in (2, 3, 4, 5)]
    assert data["relabelled"].tolist() == [True] * 3


def test_the_functions_run_outside_the_lock_and_the_guard():
    """They may use the replay, from another thread too; an error of theirs comes through."""
    with one_episode(3) as replay:
        seen = []

        def curious(achieved: Any, goal: Any, info: Any) -> Any:
            assert not core_of(replay).store._readers
            seen.append(replay.statistics().tables["t"].size)
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            replay.sample("t", 2, views=relabel(transition(), reward=curious, ratio=1.0))
        assert seen == [1]
        assert replay.sample("t", 1).data["action"].tolist() == [3]


def test_no_goal_to_tell_a_reward_for_calls_nothing():
    def never(achieved: Any, goal: Any, info: Any) -> Any:
        raise AssertionError

    with one_episode(3) as replay:
        data = replay.sample("t", 3, views=relabel(transition(), reward=never, ratio=0.0)).data
        assert not data["relabelled"].any()


def test_loaders_draw_with_hindsight():
    """Wherever `sample` can be called."""
    pytest.importorskip("torch")
    replay, _ = filled(3, 2, 40, 6, hr.ItemRule("t", 1, lookahead=1))
    with (
        replay,
        hr.loaders.Loader(replay, "t", 8, views=relabel(transition()), to="torch", prefetch=0) as loader,
    ):
        batch = next(iter(loader))
        replaced = batch.data["relabelled"]
        assert replaced.any()
        assert ((batch.data["observation"]["desired"] > 0) == replaced).all()


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"strategy": "random"}, ValueError, "strategy.*'future'.*'random'"),
        ({"ratio": 1.5}, ValueError, "ratio"), ({"ratio": float("nan")}, ValueError, "ratio"),
        ({"reward": 3}, TypeError, "reward"), ({"terminated": True}, TypeError, "terminated"),
        ({"info": "wind"}, TypeError, "info"),
    ],
)  # fmt: skip
def test_arguments(changes: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        relabel(transition(), **changes)


def test_views_that_cannot_have_a_hindsight():
    with pytest.raises(ValueError, match="'action'.*without hindsight"):
        relabel({"action": relabel(transition())["action"]})
    with pytest.raises(ValueError, match="'relabelled'"):
        relabel({"relabelled": View("action")})
    with pytest.raises(TypeError, match="'action'"):
        relabel({"action": "action"})  # type: ignore[dict-item]


def test_n_steps_whose_end_depends_on_the_goal():
    """Refused where the views are made, and where one of them was changed afterwards."""
    flags: Any = {"terminated": lambda achieved, goal, info: achieved == goal}
    with pytest.raises(ValueError, match=r"n_step=1.*n_step=2"):
        relabel(transition(2), **flags)
    views = relabel(transition(), **flags)
    views["reward"] = views["reward"].replace(n_step=2)
    with one_episode(3) as replay:
        with pytest.raises(ValueError, match="n_step=1"):
            replay.sample("t", 1, views=views)
        assert len(replay.table("t")) == 3


def test_two_hindsights_in_one_batch():
    one, other = relabel(transition()), relabel(transition(), ratio=0.5)
    with one_episode(3) as replay, pytest.raises(ValueError, match="one hindsight"):
        replay.sample("t", 1, views={"a": one["reward"], "b": other["reward"]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"goal": "observation/wanted"}, "hindsight: goal.*'observation/wanted'.*observation/desired"),
        ({"achieved": "nothing"}, "hindsight: achieved.*'nothing'"),
        ({"info": ["storm"]}, "'storm'"),
        ({"achieved": "wind"}, "alike"), ({"achieved": "observation"}, "alike"), ({"goal": "t"}, "signature"),
        ({"info": ["wind", "t"]}, "hindsight: info.*signature.*'t'"),
        ({"goal": "reward", "achieved": "wind"}, "hindsight: goal.*'reward'"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(changes: dict[str, Any], words: str):
    """V10: SpecError, and nothing is drawn."""
    with one_episode(3) as replay:
        with pytest.raises(SpecError, match=words):
            replay.sample("t", 1, views=relabel(transition(), **changes))
        assert len(replay.table("t")) == 3


@pytest.mark.parametrize("name", ["reward", "terminated"])
def test_results_that_do_not_fit(name: str):
    """Nothing is broadcast and nothing cast unsafely (accumulator A20)."""
    changes: dict[str, Any] = {"terminated": lambda achieved, goal, info: achieved == goal}
    changes[name] = lambda achieved, goal, info: False
    with one_episode(3) as replay, pytest.raises(SpecError, match=rf"what {name}\(\) returned.*\[3\]"):
        replay.sample("t", 3, views=relabel(transition(), ratio=1.0, **changes))


def test_plans_of_views_made_anew_for_each_batch_are_not_kept_for_ever():
    with one_episode(3) as replay:
        for _ in range(250):
            views = relabel({"goal": View("observation/desired")}, reward=lambda achieved, goal, info: 0)
            core_of(replay).sampling.plan(views)
        assert len(core_of(replay).sampling._plans) <= 100


def test_equality_and_text():
    """They are views: comparable, with a readable text (views, part 2)."""
    assert relabel(transition()) == relabel(transition())
    assert relabel(transition()) != relabel(transition(), ratio=0.5)
    assert "strategy='future'" in repr(relabel(transition())["reward"])
