"""Step writers of many lanes (trajectories V1 to V7), against lists and the closed form of windows."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.tables.description.selectors import Fifo
from headrace.trajectories.windows import windows

DROP, PAD, TILE = hr.EndOfEpisode.DROP, hr.EndOfEpisode.PAD, hr.EndOfEpisode.TILE
CONTINUE = hr.EndOfEpisode.CONTINUE
MODES = ["next_step", "same_step", "disabled"]
STEP = {
    "observation": np.int64(0),
    "action": np.int64(0),
    "reward": np.float64(0),
    "terminated": False,
    "truncated": False,
    "extras": {"seen": np.int64(0), "done": np.int64(0)},
}
PLAIN = {name: value for name, value in STEP.items() if name != "extras"}


def new_replay(*names, step=PLAIN, **settings):
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=10_000, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(hr.Signature.like(step), tables, seed=0, **settings)


def items(replay, table="t"):
    taken = []
    while len(replay.table(table)):
        batch = replay.sample(table, 1)
        rows = np.atleast_1d(batch.data["observation"][0])
        taken.append(rows[: len(rows) if batch.mask is None else batch.mask[0].sum()].tolist())
    return taken


def numbers(*values):
    return np.array(values, np.int64)


def flags(*values):
    return np.array(values, bool)


@pytest.mark.parametrize("mode", ["next_step", "NEXT_STEP", "member"])
def test_the_example(mode):
    """V3: lane 0 ends at call 2 (T = 2), lane 1 runs on; call 3's action for lane 0 is nowhere."""
    if mode == "member":
        from gymnasium.vector import AutoresetMode

        mode = AutoresetMode.NEXT_STEP
    with new_replay() as replay:
        writer = hr.SequenceWriter(replay, "t", 2, 1, DROP, lanes=2, autoreset=mode)
        writer.add_first(numbers(0, 1000))
        for call, (left, right, ends) in enumerate(
            [(1, 1001, False), (2, 1002, True), (100, 1003, False), (101, 1004, False)]
        ):
            writer.add(
                numbers(7 + call, 0),
                np.ones(2),
                flags(ends, False),
                flags(False, False),
                numbers(left, right),
            )
        found = items(replay)
        assert [item for item in found if item[0] < 1000] == [[0, 1], [1, 2]]
        assert [item for item in found if item[0] >= 1000] == [[1000, 1001], [1001, 1002], [1002, 1003]]
        record = writer.statistics()
        assert (record.steps_written, record.episodes, record.steps_cached) == (8, 1, 5)
        writer.reset(False)
        writer.close()


@pytest.mark.parametrize(
    "final",
    [
        np.array([999, 2, 999]),
        np.array([None, np.int64(2), None], object),
        [None, 2, None],
    ],
)
def test_final_observations_of_the_same_step(final):
    """V4: only the rows of ended lanes are read."""
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 3, 3, DROP, lanes=3, autoreset="same_step") as writer,
    ):
        writer.add_first(numbers(0, 0, 0))
        none = flags(False, False, False)
        writer.add(numbers(0, 0, 0), np.ones(3), none, none, numbers(1, 1, 1))
        keys = writer.add(
            numbers(0, 0, 0), np.ones(3), none, flags(False, True, False), numbers(2, 50, 2), None, final
        )
        assert len(keys) == 1
        assert items(replay) == [[0, 1, 2]]
        writer.add(numbers(0, 0, 0), np.ones(3), none, none, numbers(3, 51, 3), None, final)
        writer.reset(False)


def test_final_observations_that_are_trees():
    """V4: also for dict observations, as a tree of arrays or one tree for each lane."""
    step = {**PLAIN, "observation": {"a": np.zeros(2, np.float32), "b": np.int64(0)}}

    def observe(*values):
        return {"a": np.array([[v, v] for v in values], np.float32), "b": np.array(values)}

    for final in (
        observe(77, 2),
        np.array([None, {"a": np.full(2, 2, np.float32), "b": np.int64(2)}], object),
    ):
        with (
            new_replay(step=step) as replay,
            hr.SequenceWriter(replay, "t", 2, 2, DROP, lanes=2, autoreset="same_step") as writer,
        ):
            writer.add_first(observe(0, 0))
            writer.add(
                numbers(0, 0), np.ones(2), flags(False, True), flags(False, False), observe(1, 9), None, final
            )
            assert replay.sample("t", 1).data["observation"]["b"].tolist() == [[0, 2]]
            writer.reset(False)


@pytest.mark.parametrize("final", [None, np.array([None, None], object), np.array([5, None], object)])
def test_an_end_without_a_final_observation_names_the_lanes(final):
    """V4, V6: nothing is stored for any lane."""
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, lanes=2, autoreset="same_step") as writer,
    ):
        writer.add_first(numbers(0, 0))
        with pytest.raises(ValueError, match=r"lanes \[1\].*final_obs"):
            writer.add(
                numbers(0, 0), np.ones(2), flags(False, True), flags(False, False), numbers(1, 1), None, final
            )
        assert writer.statistics().steps_written == 0
        writer.add(numbers(0, 0), np.ones(2), flags(False, False), flags(False, False), numbers(1, 1))
        assert items(replay) == [[0], [0]]


def test_a_final_observation_where_there_is_none():
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, lanes=2, autoreset="next_step") as writer,
    ):
        writer.add_first(numbers(0, 0))
        with pytest.raises(ValueError, match="final_observation"):
            writer.add(
                numbers(0, 0),
                np.ones(2),
                flags(False, False),
                flags(False, False),
                numbers(1, 1),
                None,
                numbers(1, 1),
            )
        assert items(replay) == []


def test_a_flag_in_a_reset_step():
    """V3, V6."""
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, lanes=2, autoreset="next_step") as writer,
    ):
        writer.add_first(numbers(0, 10))
        writer.add(numbers(0, 0), np.ones(2), flags(True, False), flags(False, False), numbers(1, 11))
        before = writer.statistics()
        with pytest.raises(ValueError, match=r"lanes \[0\].*reset"):
            writer.add(numbers(0, 0), np.ones(2), flags(False, True), flags(True, False), numbers(5, 12))
        assert writer.statistics() == before
        writer.add(numbers(0, 0), np.ones(2), flags(False, False), flags(False, False), numbers(5, 12))
        writer.add(numbers(0, 0), np.ones(2), flags(True, False), flags(False, False), numbers(6, 13))
        assert items(replay) == [[0], [10], [11], [5], [12]]


def test_disabled_lanes_are_reopened_by_mask():
    """V5."""
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 2, 1, DROP, lanes=2, autoreset="disabled") as writer,
    ):
        none = flags(False, False)
        with pytest.raises(ValueError, match=r"lanes \[0, 1\].*add_first"):
            writer.add(numbers(0, 0), np.ones(2), none, none, numbers(1, 11))
        writer.add_first(numbers(0, -1), mask=flags(True, False))
        with pytest.raises(ValueError, match=r"lanes \[1\]"):
            writer.add(numbers(0, 0), np.ones(2), none, none, numbers(1, 11))
        writer.add_first(numbers(-1, 10), mask=flags(False, True))
        writer.add(numbers(0, 0), np.ones(2), flags(True, False), none, numbers(1, 11))
        with pytest.raises(ValueError, match=r"lanes \[0\]"):
            writer.add(numbers(0, 0), np.ones(2), none, none, numbers(1, 12))
        with pytest.raises(ValueError, match=r"lanes \[1\] are unfinished"):
            writer.add_first(numbers(5, 5))
        with pytest.raises(ValueError, match=r"lanes \[1\] are unfinished"):
            writer.add_first(numbers(5, 5), mask=flags(True, True))
        writer.add_first(numbers(5, -1), mask=flags(True, False))
        writer.add(numbers(0, 0), np.ones(2), none, flags(True, True), numbers(6, 12))
        writer.add_first(numbers(7, 17))
        assert items(replay) == [[0, 1], [10, 11], [5, 6], [11, 12]]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_mask_only_reopens_what_was_reset(mode):
    """V5."""
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 2, 1, DROP, lanes=2, autoreset=mode) as writer,
    ):
        none = flags(False, False)
        with pytest.raises(ValueError, match="mask"):
            writer.add_first(numbers(0, 0), mask=flags(True, False))
        writer.add_first(numbers(0, 10))
        writer.add(numbers(0, 0), np.ones(2), none, none, numbers(1, 11))
        assert len(writer.reset(mask=flags(False, True))) == 1
        with pytest.raises(ValueError, match=r"lanes \[1\]"):
            writer.add(numbers(0, 0), np.ones(2), none, none, numbers(2, 12))
        with pytest.raises(ValueError, match="unfinished"):
            writer.add_first(numbers(0, 0), mask=flags(True, True))
        writer.add_first(numbers(-1, 20), mask=flags(False, True))
        writer.add(numbers(0, 0), np.ones(2), none, none, numbers(2, 21))
        writer.reset()
        assert items(replay) == [[10, 11], [0, 1], [1, 2], [20, 21]]


@pytest.mark.parametrize(
    ("mask", "error"),
    [([1, 0], TypeError), (np.ones(3, bool), ValueError), (True, ValueError), ("no", TypeError)],
)
def test_masks_that_are_none(mask, error):
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, lanes=2, autoreset="disabled") as writer,
    ):
        with pytest.raises(error, match="mask"):
            writer.add_first(numbers(0, 0), mask=mask)
        with pytest.raises(error, match="mask"):
            writer.reset(mask=mask)
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 1, 1, DROP) as writer:
        with pytest.raises(ValueError, match="mask"):
            writer.add_first(np.int64(0), mask=flags(True))


@pytest.mark.parametrize("name", ["action", "reward", "terminated", "truncated", "next_observation"])
def test_every_leaf_has_the_axis_of_lanes(name):
    """V1, P1."""
    good = {
        "action": numbers(0, 0),
        "reward": np.ones(2),
        "terminated": flags(False, False),
        "truncated": flags(False, False),
        "next_observation": numbers(1, 1),
    }
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, lanes=2, autoreset="disabled") as writer,
    ):
        writer.add_first(numbers(0, 0))
        for wrong in (good[name][0], good[name][:1], np.concatenate([good[name]] * 2)):
            with pytest.raises(hr.SpecError, match=name.removeprefix("next_")):
                writer.add(**{**good, name: wrong})
        writer.add(**good)
        assert items(replay) == [[0], [0]]


@pytest.mark.parametrize("mode", MODES)
def test_extras_at_a_seam(mode):
    """A5, V3, V7: in the same step the observation's extras belong to the new episode, and the final row has zeros."""
    with (
        new_replay(step=STEP) as replay,
        hr.SequenceWriter(replay, "t", 3, 3, PAD, lanes=2, autoreset=mode) as writer,
    ):
        seen = lambda *values: {"seen": numbers(*values)}  # noqa: E731
        none = flags(False, False)

        def add(observed, terminated=none, final=None):
            both = {**seen(*(10 * each for each in observed)), "done": numbers(5, 6)}
            writer.add(numbers(0, 0), np.ones(2), terminated, none, numbers(*observed), both, final)

        writer.add_first(numbers(1, 101), seen(10, 1010))
        same = mode == "same_step"
        add((20 if same else 2, 102), flags(True, False), numbers(2, 0) if same else None)
        if mode == "next_step":
            add((20, 103))
        elif mode == "disabled":
            writer.add_first(numbers(20, 0), seen(200, 0), mask=flags(True, False))
        add((21, 104), flags(True, False), numbers(21, 0) if same else None)
        found = []
        while len(replay.table("t")):
            data = replay.sample("t", 1).data
            if data["observation"][0, 0] < 100:
                found.append((data["extras"]["seen"][0].tolist(), data["extras"]["done"][0].tolist()))
        assert found == [([10, 0 if same else 20, 0], [5, 0, 0]), ([200, 0 if same else 210, 0], [5, 0, 0])]
        writer.reset(False)


def test_limits_of_lanes():
    """A14 "raise" for lanes, V6."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 2, lanes=2, autoreset="next_step") as writer:
        none = flags(False, False)
        writer.add_first(numbers(0, 10))
        writer.add(numbers(0, 0), np.ones(2), flags(True, False), none, numbers(1, 11))
        writer.add(numbers(0, 0), np.ones(2), none, none, numbers(20, 12))
        with pytest.raises(ValueError, match=r"lanes \[1\].*max_length=2"):
            writer.add(numbers(0, 0), np.ones(2), none, none, numbers(21, 13))
        writer.reset(mask=flags(False, True))
        writer.add_first(numbers(0, 30), mask=flags(False, True))
        writer.add(numbers(0, 0), np.ones(2), none, none, numbers(21, 31))
        writer.add(numbers(0, 0), np.ones(2), flags(True, True), none, numbers(22, 32))
        assert items(replay) == [[0, 1], [10, 11, 12], [20, 21, 22], [30, 31, 32]]


def test_a_full_store_changes_no_lane():
    """P1, V6: where final rows find no room."""
    with new_replay(capacity=32 * 4) as replay:
        filler = replay.writer(history=1, items=[hr.ItemRule("t", 1)])
        with hr.SequenceWriter(replay, "t", 2, 1, DROP, lanes=3, autoreset="next_step") as writer:
            none = flags(False, False, False)
            writer.add_first(numbers(1, 101, 201))
            with pytest.raises(hr.StoreFull):  # noqa: PT012
                while True:
                    filler.append({**PLAIN, "observation": np.int64(0)})
            filler.close()
            for _ in range(2):
                with pytest.raises(hr.StoreFull):
                    writer.add(
                        numbers(0, 0, 0), np.ones(3), none, flags(True, False, False), numbers(2, 102, 202)
                    )
                assert writer.statistics().steps_written == 0
            replay.sample("t", 4)
            # One page is free: it takes the step, and none is left for the final row.
            with pytest.raises(hr.StoreFull):
                writer.add(
                    numbers(0, 0, 0), np.ones(3), none, flags(True, False, False), numbers(2, 102, 202)
                )
            assert writer.statistics().steps_written == 0
            replay.sample("t", 4)
            writer.add(numbers(0, 0, 0), np.ones(3), none, flags(True, False, False), numbers(2, 102, 202))
            assert items(replay)[-1] == [1, 2]
            writer.reset(False)


# ---- against lists ---------------------------------------------------------------------------------------------------


@st.composite
def rule_of(draw):
    kind = draw(st.sampled_from(["window", "window", "n_step", "episode", "continue"]))
    if kind == "n_step":
        return hr.NStepRule("t", draw(st.integers(1, 4)))
    if kind == "episode":
        return hr.EpisodeRule("t", draw(st.integers(1, 5)), draw(st.sampled_from(["drop", "split"])))
    length = draw(st.integers(1, 5))
    if kind == "continue":
        return hr.ItemRule("t", length, draw(st.integers(1, 6)), CONTINUE)
    end = draw(st.sampled_from([end for end in hr.EndOfEpisode if end is not CONTINUE]))
    most = length if end in (PAD, hr.EndOfEpisode.TRUNCATE) else 6
    return hr.ItemRule("t", length, draw(st.integers(1, most)), end)


@dataclass
class Lane:
    """What was given for one lane: its finished runs, and the one under way."""

    runs: list[list[int]] = field(default_factory=list)
    streams: list[list[int]] = field(default_factory=lambda: [[]])
    rows: list[int] = field(default_factory=list)

    def end(self, last: int) -> None:
        self.rows.append(last)
        self.runs.append(self.rows)
        self.streams[-1].extend(self.rows)
        self.rows = []

    def items(self, rule) -> list[list[int]]:
        if isinstance(rule, hr.ItemRule) and rule.end is CONTINUE:
            final = [run[-1] for run in self.runs]
            streams = [[row for row in rows if rule.length > 1 or row not in final] for rows in self.streams]
            return [
                rows[start : start + real]
                for rows in streams
                for start, real, _ in windows(len(rows), rule.length, rule.stride, CONTINUE)
            ]
        return [item for run in self.runs for item in items_of_run(rule, run)]

    def dropped(self, rule) -> int:
        """Rows that are in no item; final rows count where windows have more than one row."""
        if isinstance(rule, hr.NStepRule):
            return 0
        one_row = isinstance(rule, hr.ItemRule) and rule.length == 1
        counted = [row for run in self.runs for row in (run[:-1] if one_row else run)]
        kept = {row for item in self.items(rule) for row in item}
        return sum(row not in kept for row in counted)


def items_of_run(rule, run: list[int]) -> list[list[int]]:
    if isinstance(rule, hr.NStepRule):
        return [[row] for row in run[:-1]]
    if isinstance(rule, hr.EpisodeRule):
        most, steps = rule.max_length, len(run) - 1
        if rule.overflow == "drop":
            return [run] if steps <= most else []
        return [run[start : start + most + 1] for start in range(0, steps, most)]
    count = len(run) - 1 if rule.length == 1 else len(run)
    return [
        run[start : start + real] for start, real, _ in windows(count, rule.length, rule.stride, rule.end)
    ]


@settings(max_examples=80)
@given(
    rule_of(),
    st.sampled_from(MODES),
    st.integers(1, 4),
    st.sampled_from([None, 32 * 4, 32 * 5]),
    st.booleans(),
    st.data(),
)
def test_lanes_make_what_each_would_make_alone(rule, mode, lanes, capacity, asks, data):
    """V2 to V5, W5, W6, A6, A10, A11, A14, P2 under random episodes, ends, resets and pages."""
    priority = (lambda rows: float(rows["observation"][0])) if asks else 1.0
    given_rule = type(rule)(
        **{name: getattr(rule, name) for name in rule.__dataclass_fields__ if name != "priority"},
        priority=priority,
    )
    replay = new_replay(capacity=capacity)
    writer = hr.StepWriter(replay, [given_rule], lanes=lanes, autoreset=mode)
    model = [Lane() for _ in range(lanes)]
    found: list[list[list[int]]] = [[] for _ in range(lanes)]
    keys: list[int] = []
    made: list[int] = []
    counts = np.arange(lanes) * 10_000 + 1
    resetting = np.zeros(lanes, bool)
    none = np.zeros(lanes, bool)

    def fresh(chosen):
        counts[chosen] += 100 - counts[chosen] % 100
        return counts.copy()

    def take():
        while len(replay.table("t")):
            batch = replay.sample("t", 1)
            rows = np.atleast_1d(batch.data["observation"][0])
            rows = rows[: len(rows) if batch.mask is None else batch.mask[0].sum()].tolist()
            found[rows[0] // 10_000].append(rows)
            made.append(int(batch.info.keys[0]))
            if asks:
                assert batch.info.priorities[0] == rows[0]

    # Left by an exception where Hypothesis gives an example up.
    with warnings.catch_warnings(), writer:
        warnings.simplefilter("ignore", UserWarning)
        writer.add_first(counts.copy())
        for _ in range(data.draw(st.integers(1, 25))):
            before = counts.copy()
            ends = np.array(data.draw(st.lists(st.integers(0, 3), min_size=lanes, max_size=lanes))) == 0
            ends &= ~resetting
            counts += 1
            last = counts.copy()
            observed = (
                last if mode == "disabled" else fresh(resetting) if mode == "next_step" else fresh(ends)
            )
            terminated = ends & np.array(data.draw(st.lists(st.booleans(), min_size=lanes, max_size=lanes)))
            final = last if mode == "same_step" and ends.any() else None
            keys += writer.add(
                np.zeros(lanes, int), np.ones(lanes), terminated, ends & ~terminated, observed, None, final
            )
            for lane, each in enumerate(model):
                if not resetting[lane]:
                    each.rows.append(int(before[lane]))
                if ends[lane]:
                    each.end(int(last[lane]))
            resetting = ends if mode == "next_step" else none
            take()
            if mode == "disabled" and ends.any():
                writer.add_first(fresh(ends), mask=ends)
            if data.draw(st.integers(0, 7)) == 0:
                chosen = np.array(data.draw(st.lists(st.booleans(), min_size=lanes, max_size=lanes)))
                keys += writer.reset(mask=chosen)
                for lane, each in enumerate(model):
                    if chosen[lane]:
                        if each.rows:
                            each.end(int(counts[lane]))
                        each.streams.append([])
                resetting = resetting & ~chosen
                take()
                if chosen.any():
                    writer.add_first(fresh(chosen), mask=chosen)
        writer.close()
    for lane, each in enumerate(model):
        if each.rows:
            each.end(int(counts[lane]))
    take()
    assert found == [each.items(rule) for each in model]
    assert made[: len(keys)] == keys or sorted(made)[: len(keys)] == sorted(keys)
    record = writer.statistics()
    assert record.steps_dropped == sum(each.dropped(rule) for each in model)
    assert record.items_written == len(made)
    assert record.episodes == sum(len(each.runs) for each in model)
    assert record.steps_written == sum(len(run) for each in model for run in each.runs)
    assert replay.statistics().store.pages == 0
    replay.close()
