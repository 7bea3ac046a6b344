"""Step writers of one lane: protocol, extras, sequences, transitions, episodes (trajectories A1-A14, P1, P2, U2-U6)."""

import gc
import threading
import warnings

import numpy as np
import pytest

import headrace as hr
from headrace.tables.description.selectors import Fifo

PAD, TRUNCATE, LAST = hr.EndOfEpisode.PAD, hr.EndOfEpisode.TRUNCATE, hr.EndOfEpisode.LAST
DROP, TILE, CONTINUE = hr.EndOfEpisode.DROP, hr.EndOfEpisode.TILE, hr.EndOfEpisode.CONTINUE
STEP = {
    "observation": np.float32(0),
    "action": np.int64(0),
    "reward": np.float64(0),
    "terminated": False,
    "truncated": False,
}


def new_replay(*names, step=STEP, **settings):
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=1000, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(hr.Signature.like(step), tables, seed=0, **settings)


def play(writer, length, begin=0, end="terminated", extras=None):
    """One episode whose observations count from `begin`; returns the keys of each call."""
    extras = extras or (lambda t: None)
    writer.add_first(np.float32(begin), **({} if extras(-1) is None else {"extras": extras(-1)}))
    keys = []
    for t in range(length):
        last = t == length - 1
        keys.append(
            writer.add(
                t,
                t + 1.0,
                last and end in ("terminated", "both"),
                last and end in ("truncated", "both"),
                np.float32(begin + t + 1),
                extras(t),
            )
        )
    return keys


def items(replay, table="t", column="observation"):
    taken = []
    while len(replay.table(table)):
        batch = replay.sample(table, 1)
        rows = np.atleast_1d(batch.data[column][0])
        mask = np.ones(len(rows), bool) if batch.mask is None else batch.mask[0]
        taken.append([row if real else "Z" for row, real in zip(rows.tolist(), mask, strict=True)])
    return taken


# ---- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transitions", "length", "period", "end", "expected"),
    [
        (5, 3, 2, PAD, [[0, 1, 2], [2, 3, 4], [4, 5, "Z"]]),
        (5, 3, 2, TRUNCATE, [[0, 1, 2], [2, 3, 4], [4, 5]]),
        (5, 3, 2, LAST, [[0, 1, 2], [2, 3, 4], [3, 4, 5]]),
        (5, 3, 2, CONTINUE, [[0, 1, 2], [2, 3, 4]]),
        (2, 4, 1, PAD, [[0, 1, 2, "Z"]]),
        (2, 4, 1, TRUNCATE, [[0, 1, 2]]),
        (2, 4, 1, LAST, []),
        (2, 4, 1, CONTINUE, []),
        (2, 2, 1, TILE, [[0, 1], [1, 2], [2, "Z"]]),
        (3, 1, 1, TILE, [[0], [1], [2]]),  # W6: the final row is no place to start a transition from
    ],
)
def test_the_table_of_sequences(transitions, length, period, end, expected):
    """A10, W5, W6."""
    with new_replay() as replay:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with hr.SequenceWriter(replay, "t", length, period, end) as writer:
                play(writer, transitions)
        assert items(replay) == expected


def test_sequences_over_seams():
    """A10: CONTINUE, two episodes of 3 (second from 100), L = 5, P = 2; reset ends the stream."""
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 5, 2, CONTINUE) as writer:
        play(writer, 3)
        keys = play(writer, 3, 100)
        assert [len(each) for each in keys] == [1, 0, 1]
        assert items(replay) == [[0, 1, 2, 3, 100], [2, 3, 100, 101, 102]]
        # Rows 4 to 7 of the stream: 100 101 102 F103; those in no item are 103.
        with pytest.warns(UserWarning, match="1 steps are in no item"):
            writer.reset()
        assert writer.statistics().steps_dropped == 1
        play(writer, 5, 200)
        assert items(replay) == [[200, 201, 202, 203, 204]]
        writer.reset(False)
        assert writer.statistics().steps_dropped == 2


def test_a_regular_item_is_made_by_the_call_that_adds_its_last_row():
    """W5, A4."""
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 3, 2, PAD) as writer:
        assert [len(keys) for keys in play(writer, 5)] == [0, 0, 1, 0, 2]


def test_keys_are_those_of_the_items():
    """A4, U6."""
    with new_replay() as replay:
        with hr.SequenceWriter(replay, "t", 2, 1, TILE) as writer:
            keys = [key for call in play(writer, 3) for key in call]
            assert replay.update_priorities("t", keys[:1], [5.0]) == 1
            batch = replay.sample("t", len(keys))
            assert batch.info.keys.tolist() == keys
            assert batch.info.priorities.tolist() == [5.0, 1.0, 1.0, 1.0]


# ---- transitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "discounts"),
    [
        ("truncated", [0.81, 0.81, 0.9]),
        ("terminated", [0.81, 0, 0]),
        ("both", [0.81, 0, 0]),
        ("reset", [0.81, 0.81, 0.9]),
    ],
)
def test_the_example_of_transitions(end, discounts):
    """A13: rewards 1 2 3, n = 2, gamma = 0.9; an episode cut by reset(True) bootstraps."""
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=2, gamma=0.9) as writer:
        assert writer.views == hr.views.transition(n_step=2, gamma=0.9)
        play(writer, 3, end=end)
        if end == "reset":
            assert len(writer.reset()) == 2
        data = replay.sample("t", 3, views=writer.views).data
        assert data["observation"].tolist() == [0, 1, 2]
        assert data["action"].tolist() == [0, 1, 2]
        assert data["reward"].tolist() == pytest.approx([2.8, 4.7, 3.0])
        assert data["discount"].tolist() == pytest.approx(discounts)
        assert data["next_observation"].tolist() == [2, 3, 3]
        assert data["n"].tolist() == [2, 2, 1]
        assert data["terminated"].tolist() == [False] + [end in ("terminated", "both")] * 2
        assert data["truncated"].tolist() == [False] + [end in ("truncated", "both")] * 2


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_every_step_is_the_start_of_one_transition(n, length):
    """A11: none before row n is known, at the latest one add later. A12: no short ones at the start."""
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=n) as writer:
        writer.add_first(np.float32(0))
        made = 0
        for t in range(length):
            made += len(writer.add(0, 1.0, t == length - 1, False, np.float32(t + 1)))
            assert t - n <= made - 1 <= t - n + 1 or t == length - 1 or (made == 0 and t < n)
        assert made == length
        data = replay.sample("t", length, views=writer.views).data
        assert data["observation"].tolist() == list(range(length))
        assert data["n"].tolist() == [min(n, length - t) for t in range(length)]
        assert writer.statistics().steps_dropped == 0


def test_the_returns_are_those_of_n_step():
    """A13 against the one place with the arithmetic."""
    random = np.random.default_rng(0)
    rewards = random.normal(size=9)
    with new_replay() as replay, hr.TransitionWriter(replay, "t", n_step=4, gamma=0.8) as writer:
        writer.add_first(np.float32(0))
        for t, reward in enumerate(rewards):
            writer.add(0, reward, False, t == 8, np.float32(t + 1))
        data = replay.sample("t", 9, views=writer.views).data
    returns, discounts, index = hr.trajectories.n_step(rewards, np.ones(9), 4, 0.8)
    assert data["reward"] == pytest.approx(returns)
    assert data["discount"] == pytest.approx(discounts)
    assert data["next_observation"].tolist() == index.tolist()


# ---- episodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7])
def test_split_episodes_share_a_row(length):
    """A14: ceil(T / max_length) items; piece k starts at row k * max_length."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 3, overflow="split") as writer:
        play(writer, length)
        expected = [list(range(start, min(start + 3, length) + 1)) for start in range(0, length, 3)]
        assert items(replay) == expected
        assert writer.statistics().steps_dropped == 0


def test_an_episode_that_is_too_long_is_refused_before_any_change():
    """A14 "raise", P1: the time limit is the right number; the episode is still open, and reset(True) writes it."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 3) as writer:
        play(writer, 3)
        assert items(replay) == [[0, 1, 2, 3]]
        play(writer, 3, 10, end="none")
        before = writer.statistics()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"max_length=3.*'t'"):
                writer.add(0, 0.0, True, False, np.float32(14))
            assert writer.statistics() == before
        assert len(writer.reset()) == 1
        assert items(replay) == [[10, 11, 12, 13]]


def test_an_episode_that_is_too_long_is_dropped_with_a_warning():
    """A14 "drop", P2."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 3, overflow="drop") as writer:
        play(writer, 3, end="none")
        with pytest.warns(UserWarning, match=r"max_length=3.*split"):
            writer.add(0, 0.0, False, False, np.float32(4))
        writer.add(0, 0.0, False, False, np.float32(5))
        assert writer.add(0, 0.0, True, False, np.float32(6)) == []
        assert writer.statistics().steps_dropped == 7
        play(writer, 2, 10)
        assert items(replay) == [[10, 11, 12]]


# ---- the protocol ----------------------------------------------------------------------------------------------------


def test_calls_out_of_order_say_which_call_is_missing():
    """A2; P1: the next good call works."""
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 2, 1, DROP) as writer:
        with pytest.raises(ValueError, match="add_first"):
            writer.add(0, 0.0, False, False, np.float32(1))
        writer.add_first(np.float32(0))
        with pytest.raises(ValueError, match="reset"):
            writer.add_first(np.float32(0))
        writer.add(0, 0.0, True, False, np.float32(1))
        with pytest.raises(ValueError, match="add_first"):
            writer.add(0, 0.0, False, False, np.float32(1))
        writer.add_first(np.float32(5))
        assert writer.reset() == []  # No step: nothing to write.
        play(writer, 1, 7)
        assert items(replay) == [[0, 1], [7, 8]]


def test_a_step_is_stored_as_it_was_given_whatever_becomes_of_its_arrays():
    step = {**STEP, "observation": np.zeros(3, np.float32), "action": np.zeros(2, np.float32)}
    with new_replay(step=step) as replay, hr.SequenceWriter(replay, "t", 3, 3, DROP) as writer:
        observation = np.zeros(3, np.float32)
        writer.add_first(observation)
        for t in range(2):
            observation += 1
            writer.add(np.full(2, t), t, t == 1, False, observation)
        observation += 10
        data = replay.sample("t", 1).data
        assert data["observation"][0, :, 0].tolist() == [0, 1, 2]
        assert data["action"][0].tolist() == [[0, 0], [1, 1], [0, 0]]
        assert data["reward"][0].tolist() == [0, 1, 0]
        # A3: flags as given; the final row has zeros.
        assert data["terminated"][0].tolist() == [False, True, False]


def test_nested_observations_and_actions():
    step = {
        **STEP,
        "observation": {"camera": np.zeros((2, 2), np.uint8), "arm": (np.float32(0), np.float32(0))},
        "action": {"grip": np.int32(0)},
    }

    def observation(t):
        return {"camera": np.full((2, 2), t, np.uint8), "arm": (float(t), -float(t))}

    with new_replay(step=step) as replay, hr.SequenceWriter(replay, "t", 3, 3, DROP) as writer:
        writer.add_first(observation(0))
        for t in range(2):
            writer.add({"grip": t}, 1.0, False, t == 1, observation(t + 1))
        data = replay.sample("t", 1).data
        assert data["observation"]["camera"][0, :, 0, 0].tolist() == [0, 1, 2]
        assert data["observation"]["arm"][1][0].tolist() == [0, -1, -2]
        assert data["action"]["grip"][0].tolist() == [0, 1, 0]
        with pytest.raises(hr.SpecError, match="observation/camera"):
            writer.add_first({"camera": np.zeros((3, 2), np.uint8), "arm": (0.0, 0.0)})


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"action": 0.5}, "action"),
        ({"reward": np.zeros(1)}, "reward"),
        ({"terminated": 3.0}, "terminated"),
        ({"truncated": None}, "truncated"),
        ({"next_observation": np.zeros(2, np.float32)}, "observation"),
        ({"next_observation": "text"}, "observation"),
        ({"extras": {"value": 1.0}}, "extras"),
    ],
)
@pytest.mark.parametrize("ends", [False, True])
def test_what_does_not_fit_changes_nothing(wrong, path, ends):
    """P1, with the path."""
    good = {
        "action": 0,
        "reward": 1.0,
        "terminated": ends,
        "truncated": False,
        "next_observation": np.float32(2),
    }
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 2, 1, TILE) as writer:
        writer.add_first(np.float32(0))
        writer.add(0, 1.0, False, False, np.float32(1))
        before = replay.statistics(), writer.statistics()
        with pytest.raises(hr.SpecError, match=path):
            writer.add(**{**good, **wrong})
        assert (replay.statistics(), writer.statistics()) == before
        writer.add(**good)
        writer.reset()
        assert items(replay) == [[0, 1], [1, 2], [2, "Z"]]


def test_a_full_store_changes_nothing():
    """P1 with StoreFull: in the middle of an episode, and where its final row finds no room."""
    with new_replay(capacity=32) as replay:
        filler = replay.writer(history=1, items=[hr.ItemRule("t", 1)])
        writer = hr.SequenceWriter(replay, "t", 2, 1, TILE)
        writer.add_first(np.float32(0))
        writer.add(0, 1.0, False, False, np.float32(1))
        while True:
            try:
                filler.append({**STEP, "observation": np.float32(-1)})
            except hr.StoreFull:
                break
        before = writer.statistics()
        for ends in (False, True):
            with pytest.raises(hr.StoreFull):
                writer.add(0, 1.0, ends, False, np.float32(2))
            assert writer.statistics() == before
        with pytest.raises(hr.StoreFull):
            writer.reset()
        replay.sample("t", 1)  # Room for one row: the step fits, its final row does not.
        with pytest.raises(hr.StoreFull):
            writer.add(0, 1.0, True, False, np.float32(2))
        assert writer.statistics() == before
        replay.sample("t", 2)
        writer.add(0, 1.0, True, False, np.float32(2))
        filler.close()
        writer.close()
        assert [each for each in items(replay) if each != [-1, "Z"] and -1 not in each] == [
            [0, 1],
            [1, 2],
            [2, "Z"],
        ]


# ---- extras ----------------------------------------------------------------------------------------------------------

WITH_EXTRAS = {**STEP, "extras": {"core": {"h": np.float32(0)}, "logits": np.zeros(2, np.float32)}}


def extras(t):
    core = {"core": {"h": 10.0 + t + 1}}
    return core if t < 0 else {**core, "logits": [t, -t]}


def test_extras_travel_with_the_observation_or_with_the_action():
    """A5: what add_first names is in all T + 1 rows; the rest is zero in the final one."""
    with new_replay(step=WITH_EXTRAS) as replay, hr.SequenceWriter(replay, "t", 4, 4, DROP) as writer:
        play(writer, 3, extras=extras)
        data = replay.sample("t", 1).data["extras"]
        assert data["core"]["h"].tolist() == [[10, 11, 12, 13]]
        assert data["logits"][0].tolist() == [[0, 0], [1, -1], [2, -2], [0, 0]]


def test_views_of_transitions_with_extras():
    """A13: `extras` of row t."""
    with new_replay(step=WITH_EXTRAS) as replay, hr.TransitionWriter(replay, "t", 2) as writer:
        assert set(writer.views) == {*hr.views.transition(2), "extras"}
        play(writer, 3, extras=extras)
        data = replay.sample("t", 3, views=writer.views).data
        assert data["extras"]["core"]["h"].tolist() == [10, 11, 12]
        assert data["extras"]["logits"].tolist() == [[0, 0], [1, -1], [2, -2]]


@pytest.mark.parametrize(
    ("first", "step"),
    [
        ({"core": {"h": 0.0}}, {"core": {"h": 1.0}}),  # logits missing
        ({"core": {"h": 0.0}}, {"logits": [0, 0]}),
        ({"core": {"h": 0.0}}, None),
        ({"core": {"h": 0.0}}, {"core": {"h": 1.0}, "logits": [0, 0], "more": 1}),
        ({"unknown": 0.0}, None),
        ({"core": {"h": [0.0, 1.0]}}, None),
    ],
)
def test_extras_must_be_all_there(first, step):
    """A5."""
    with new_replay(step=WITH_EXTRAS) as replay, hr.SequenceWriter(replay, "t", 2, 1, DROP) as writer:
        with pytest.raises(hr.SpecError, match="extras"):  # noqa: PT012 - one of the two
            writer.add_first(np.float32(0), first)
            writer.add(0, 0.0, False, False, np.float32(1), step)
        writer.reset()
        play(writer, 1, extras=extras)
        assert items(replay) == [[0, 1]]


def test_the_split_of_extras_does_not_change():
    """A5."""
    with new_replay(step=WITH_EXTRAS) as replay, hr.SequenceWriter(replay, "t", 2, 1, DROP) as writer:
        play(writer, 1, extras=extras)
        with pytest.raises(hr.SpecError, match="expected extras/core/h, got none"):
            writer.add_first(np.float32(0))
        play(writer, 1, 5, extras=extras)
        assert items(replay) == [[0, 1], [5, 6]]


@pytest.mark.parametrize(
    ("step", "match"),
    [
        ({**STEP, "info": 1.0}, "info"),
        ({name: value for name, value in STEP.items() if name != "truncated"}, "truncated"),
        ({**STEP, "terminated": 1.0}, "terminated"),
        ({**STEP, "reward": np.zeros(2)}, "reward"),
        ((np.float32(0), 1), "mapping"),
    ],
)
def test_signatures_that_are_refused(step, match):
    """A1."""
    with new_replay(step=step) as replay, pytest.raises(hr.SpecError, match=match):
        hr.TransitionWriter(replay, "t")


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda r: hr.TransitionWriter(r, "t", n_step=0), ValueError, "n_step.*0"),
        (lambda r: hr.TransitionWriter(r, "t", n_step=1.0), TypeError, "n_step"),
        (lambda r: hr.TransitionWriter(r, "t", gamma=1.5), ValueError, "gamma.*1.5"),
        (lambda r: hr.TransitionWriter(r, "t", gamma=float("nan")), ValueError, "gamma.*nan"),
        (lambda r: hr.TransitionWriter(r, "t", gamma="1"), TypeError, "gamma"),
        (lambda r: hr.TransitionWriter(r, "x"), KeyError, "'t'"),
        (lambda r: hr.TransitionWriter(r, "t", priority=-1), ValueError, "priority.*-1"),
        (lambda r: hr.SequenceWriter(r, "t", 0, 1, PAD), ValueError, "length"),
        (lambda r: hr.SequenceWriter(r, "t", 2, 0, PAD), ValueError, "stride"),
        (lambda r: hr.SequenceWriter(r, "t", 2, 3, PAD), ValueError, "got 3"),
        (lambda r: hr.SequenceWriter(r, "t", 2, 3, TRUNCATE), ValueError, "got 3"),
        (lambda r: hr.SequenceWriter(r, "t", 2, 1, "pad"), TypeError, "pad"),
        (lambda r: hr.EpisodeWriter(r, "t", 0), ValueError, "max_length.*0"),
        (lambda r: hr.EpisodeWriter(r, "t", 3, overflow="cut"), ValueError, "'cut'"),
        (lambda r: hr.StepWriter(r, []), ValueError, "rules"),
        (lambda _: hr.TransitionWriter("host:1", "t"), TypeError, "^replay: expected a Replay.*got str"),
        (lambda r: hr.StepWriter(r.table("t"), [hr.NStepRule("t")]), TypeError, "^replay: .*got TableView"),
        (lambda r: hr.StepWriter(r, hr.NStepRule("t")), TypeError, "list"),
        (lambda r: hr.StepWriter(r, ["t"]), TypeError, "ItemRule"),
        (lambda r: hr.TransitionWriter(r, "t", timeout=-1), ValueError, "timeout"),
        (lambda r: hr.TransitionWriter(r, "t", timeout="1"), TypeError, "timeout"),
        (lambda r: hr.TransitionWriter(r, "t", autoreset="next_step"), ValueError, r"envs\.num_envs"),
        (lambda r: hr.TransitionWriter(r, "t", lanes=2), ValueError, "autoreset"),
        (
            lambda r: hr.TransitionWriter(r, "t", lanes=2, autoreset="later"),
            ValueError,
            r"later.*envs\.metadata\[\"autoreset_mode\"\]",
        ),
        (lambda r: hr.TransitionWriter(r, "t", lanes=0, autoreset="disabled"), ValueError, "lanes"),
    ],
)
def test_arguments_that_are_refused(make, error, match):
    """A9, V1."""
    with new_replay() as replay:
        with pytest.raises(error, match=match):
            make(replay)
        assert replay.statistics().store.pages == 0


# ---- many tables -----------------------------------------------------------------------------------------------------


def test_one_writer_feeds_many_tables_with_the_same_rows():
    """U5, A4."""
    rules = [hr.NStepRule("a", 2), hr.ItemRule("b", 2, 2, PAD), hr.EpisodeRule("c", 10)]
    with new_replay("a", "b", "c") as replay:
        with hr.StepWriter(replay, rules) as writer:
            keys = play(writer, 4)
            found = {name: replay.sample(name, len(replay.table(name))).info.keys.tolist() for name in "abc"}
            assert sorted(key for call in keys for key in call) == sorted(
                key for each in found.values() for key in each
            )
            assert [len(found[name]) for name in "abc"] == [4, 3, 1]
            record = writer.statistics()
            assert (record.steps_written, record.items_written, record.steps_dropped) == (5, 8, 0)
            assert (record.episodes, record.steps_cached) == (1, 0)
        assert "NStepRule" in repr(writer)
        assert "closed" in repr(writer)  # U4


# ---- priorities ------------------------------------------------------------------------------------------------------


def test_priorities_by_a_function_of_the_rows():
    """A7, A11: of transitions the rows t to j; of windows their real rows; of episodes all."""
    seen = {"a": [], "b": [], "c": []}

    def priority(name):
        def of(rows):
            assert set(rows) == set(STEP)
            assert all(isinstance(value, np.ndarray) for value in rows.values())
            seen[name].append(rows["observation"].tolist())
            return rows["observation"].sum()

        return of

    rules = [
        hr.NStepRule("a", 2, priority=priority("a")),
        hr.ItemRule("b", 3, 2, PAD, priority=priority("b")),
        hr.EpisodeRule("c", 10, priority=priority("c")),
        hr.ItemRule("d", 1, priority=7.0),
        hr.ItemRule("e", 3, 1, CONTINUE, priority=lambda rows: float(rows["observation"][0])),
    ]
    with new_replay(*"abcde") as replay:
        with hr.StepWriter(replay, rules) as writer:
            play(writer, 3, 10)
            play(writer, 2, 20)
            expected = {
                "a": [[10, 11, 12], [11, 12, 13], [12, 13], [20, 21, 22], [21, 22]],
                "b": [[10, 11, 12], [12, 13], [20, 21, 22]],
                "c": [[10, 11, 12, 13], [20, 21, 22]],
            }
            assert seen == expected
            for name, windows in expected.items():
                found = replay.sample(name, len(windows)).info.priorities.tolist()
                assert found == [sum(window) for window in windows]
            assert replay.sample("d", 5).info.priorities.tolist() == [7.0] * 5
            assert replay.sample("e", 5).info.priorities.tolist() == [10, 11, 12, 13, 20]


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), None, "high"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_wrong_priority_stores_nothing(wrong, ends):
    """A7, P1."""
    answers = iter([1.0, wrong, 2.0, 3.0, 4.0])
    with (
        new_replay() as replay,
        hr.SequenceWriter(replay, "t", 1, 1, DROP, priority=lambda rows: next(answers)) as writer,
    ):
        writer.add_first(np.float32(0))
        writer.add(0, 0.0, False, False, np.float32(1))
        before = replay.statistics(), writer.statistics()
        with pytest.raises(ValueError, match="'t'.*priority"):
            writer.add(0, 0.0, ends, False, np.float32(2))
        assert (replay.statistics(), writer.statistics()) == before
        writer.add(0, 0.0, ends, False, np.float32(2))
        assert items(replay) == [[0], [1]]


# ---- resets, closing, counting ---------------------------------------------------------------------------------------


def test_reset_ends_the_episode_as_cut():
    """A6, W5: the last observation becomes the final row; the remaining items are made, none twice."""
    with new_replay() as replay, hr.SequenceWriter(replay, "t", 3, 2, PAD) as writer:
        play(writer, 3, end="none")
        assert len(writer.reset()) == 1
        assert writer.reset() == []
        assert items(replay) == [[0, 1, 2], [2, 3, "Z"]]
        play(writer, 1, 10)
        assert items(replay) == [[10, 11, "Z"]]


def test_reset_may_drop():
    """A6, P2: counted, without a warning; rows that an item needs are not dropped."""
    with new_replay() as replay, hr.TransitionWriter(replay, "t", 2) as writer:
        play(writer, 2, end="none")
        assert writer.reset(False) == []
        assert writer.statistics().steps_dropped == 2
        play(writer, 4, end="none")
        writer.reset(False)
        assert writer.statistics().steps_dropped == 2
        assert writer.statistics().steps_cached == 0
        assert items(replay) == [[0.0], [1.0]]


@pytest.mark.parametrize("how", ["reset", "close", "leave", "raise"])
def test_dropping_at_the_end_is_warned_of(how):
    """P2: how many, and which setting would keep them."""
    with new_replay() as replay:
        writer = hr.SequenceWriter(replay, "t", 3, 3, DROP)
        play(writer, 4, end="none")
        with pytest.warns(UserWarning, match=r"2 steps.*PAD"):  # noqa: PT031 - one of these
            if how == "raise":
                with pytest.raises(RuntimeError), writer:
                    raise RuntimeError
            elif how == "leave":
                with writer:
                    pass
            else:
                getattr(writer, how)()
        assert writer.statistics().steps_dropped == 2
        assert items(replay) == [[0, 1, 2]]
        writer.close()


@pytest.mark.parametrize(
    ("length", "period", "end", "transitions", "dropped"),
    [
        (3, 3, DROP, 4, 2),
        (3, 3, LAST, 4, 0),
        (3, 1, LAST, 1, 2),
        (1, 2, DROP, 4, 2),
        (2, 3, TILE, 5, 2),
        (3, 3, PAD, 4, 0),
    ],
)
def test_dropped_rows_of_an_episode_are_counted(length, period, end, transitions, dropped):
    """P2, W1, W2."""
    with new_replay() as replay, hr.SequenceWriter(replay, "t", length, period, end) as writer:
        for _ in range(2):
            play(writer, transitions)
        assert writer.statistics().steps_dropped == 2 * dropped


def test_a_row_that_some_rule_keeps_is_not_dropped():
    """O11: needed by no other."""
    rules = [hr.ItemRule("a", 2, 3, DROP), hr.ItemRule("b", 1, 2, DROP)]
    with new_replay("a", "b") as replay, hr.StepWriter(replay, rules) as writer:
        play(writer, 5)  # a: 0 1, 3 4; b: 0, 2, 4; the final row 5 is in none
        assert writer.statistics().steps_dropped == 1


def test_a_closed_writer_takes_no_calls():
    """A6."""
    with new_replay() as replay:
        writer = hr.TransitionWriter(replay, "t")
        play(writer, 2)
        writer.close()
        writer.close()
        for call in (
            lambda: writer.add_first(np.float32(0)),
            lambda: writer.add(0, 0.0, False, False, np.float32(0)),
            writer.reset,
            writer.flush,
        ):
            with pytest.raises(hr.Closed):
                call()
        assert writer.statistics().episodes == 1


def test_closing_after_the_replay():
    replay = new_replay()
    writer = hr.TransitionWriter(replay, "t")
    play(writer, 2, end="none")
    replay.close()
    with pytest.raises(hr.Closed):
        writer.add(0, 0.0, False, False, np.float32(0))
    with pytest.raises(hr.Closed):
        writer.reset()
    with pytest.raises(hr.Closed, match="2 steps"):
        writer.close()
    writer.close()


def test_waiting():
    """O9, O10: a full table lets the call return; when too many wait the call waits, and the step was taken."""
    table = hr.Table.queue("q", 1)
    with hr.Replay(hr.Signature.like(STEP), [table]) as replay:
        writer = hr.SequenceWriter(replay, "q", 1, 1, DROP, timeout=0.0)
        writer.add_first(np.float32(0))
        for t in range(1001):
            assert len(writer.add(0, 0.0, False, False, np.float32(t + 1))) == 1
        with pytest.raises(hr.DeadlineExceeded, match="was taken"):
            writer.add(0, 0.0, False, False, np.float32(1002))
        with pytest.raises(hr.DeadlineExceeded):
            writer.flush(timeout=0)
        for t in range(5):
            assert replay.sample("q", 1).data["observation"].tolist() == [t]
        assert len(writer.add(0, 0.0, False, False, np.float32(1003))) == 2  # That of the failed call too.
        with pytest.raises(hr.DeadlineExceeded):
            writer.close()
        for t in range(5, 1003):
            assert replay.sample("q", 1).data["observation"].tolist() == [t]
        writer.close()


def test_leaving_through_an_exception_waits_for_nothing():
    """O8, replay I6."""
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("q", 1)]) as replay:
        with pytest.warns(ResourceWarning, match="pending"), pytest.raises(RuntimeError):  # noqa: PT012, PT031
            with hr.SequenceWriter(replay, "q", 2, 1, TILE) as writer:
                play(writer, 3, end="none")
                raise RuntimeError
        assert [replay.sample("q", 1).data["observation"].tolist() for _ in range(3)] == [
            [[0, 1]],
            [[1, 2]],
            [[2, 3]],
        ]
        assert replay.sample("q", 1).data["observation"].tolist() == [[3, 0]]


def test_a_full_store_replaces_no_exception(monkeypatch):
    """O8: the writer's end finds no room for what the exception cut short."""

    def refuse(lanes):
        raise hr.StoreFull("the store is full")

    with new_replay() as replay:
        with pytest.raises(KeyError, match="mine") as caught:  # noqa: PT012
            with hr.TransitionWriter(replay, "t") as writer:
                play(writer, 3, end="none")
                monkeypatch.setattr(writer._recorder, "cut", refuse)
                raise KeyError("mine")
        (note,) = caught.value.__notes__
        assert "3 steps" in note
        assert "the store is full" in note
        with pytest.raises(hr.Closed):
            writer.add_first(np.float32(0))
        replay.reset("t")
        assert replay.statistics().store.pages == 0


def test_a_forgotten_writer_warns():
    """U3."""
    with new_replay() as replay:
        writer = hr.TransitionWriter(replay, "t")
        play(writer, 3, end="none")
        with pytest.warns(ResourceWarning, match="3 steps"):  # noqa: PT031
            del writer
            gc.collect()
        writer = hr.TransitionWriter(replay, "t")
        play(writer, 3)
        del writer
        gc.collect()


def test_a_second_thread_is_refused():
    """U2: a call inside another one, as a second thread makes it."""
    errors = []
    with new_replay() as replay:

        def priority(rows):
            def other():
                try:
                    writer.reset()
                except ValueError as error:
                    errors.append(str(error))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return 1.0

        with hr.SequenceWriter(replay, "t", 1, 1, DROP, priority=priority) as writer:
            play(writer, 1)
        assert len(errors) == 1
        assert "thread" in errors[0]


# ---- recorded episodes -----------------------------------------------------------------------------------------------


def episode(length, end="terminated", **more):
    flags = np.zeros((2, length), bool)
    if end:
        flags[int(end == "truncated"), -1] = True
    return hr.Episode(
        np.arange(length + 1, dtype=np.float32),
        np.arange(length),
        np.ones(length),
        flags[0],
        flags[1],
        **more,
    )


@pytest.mark.parametrize("end", ["terminated", "truncated", None])
def test_recorded_episodes(end):
    """A8: reset(True) if it has no end flag."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 5) as writer:
        assert len(writer.add_episode(episode(3, end))) == 1
        batch = replay.sample("t", 1)
        assert batch.data["observation"].tolist() == [[0, 1, 2, 3]]
        assert batch.data["action"].tolist() == [[0, 1, 2, 0]]
        assert batch.data["terminated"].tolist() == [[False, False, end == "terminated", False]]
        assert writer.statistics().episodes == 1


def test_recorded_episodes_with_extras():
    """A5, A8: T + 1 rows go with the observation."""
    given = {"core": {"h": np.arange(4, dtype=np.float32)}, "logits": np.ones((3, 2), np.float32)}
    with new_replay(step=WITH_EXTRAS) as replay, hr.EpisodeWriter(replay, "t", 5) as writer:
        writer.add_episode(episode(3, extras=given))
        data = replay.sample("t", 1).data["extras"]
        assert data["core"]["h"].tolist() == [[0, 1, 2, 3]]
        assert data["logits"][0, :, 0].tolist() == [1, 1, 1, 0]
        with pytest.raises(hr.SpecError, match="extras"):
            writer.add_episode(episode(3, extras={**given, "logits": np.ones((4, 2), np.float32)}))
        with pytest.raises(hr.SpecError, match="extras"):
            writer.add_episode(episode(3))
        assert writer.statistics().steps_cached == 0


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (lambda: episode(6), ValueError, "max_length=5"),
        (
            lambda: hr.Episode(np.zeros((4, 2)), np.zeros(3, int), np.ones(3), [0, 0, 1], [0, 0, 0]),
            hr.SpecError,
            "obs",
        ),
        (
            lambda: hr.Episode(np.zeros(4), np.zeros(3), np.ones(3), [0, 0, 1], [0, 0, 0]),
            hr.SpecError,
            "action",
        ),
        (lambda: "episode", TypeError, "Episode"),
    ],
)
def test_a_recorded_episode_is_checked_first(wrong, error, match):
    """A8, P1."""
    with new_replay() as replay, hr.EpisodeWriter(replay, "t", 5) as writer:
        with pytest.raises(error, match=match):
            writer.add_episode(wrong())
        assert writer.statistics().steps_written == 0
        writer.add_first(np.float32(0))
        with pytest.raises(ValueError, match="unfinished"):
            writer.add_episode(episode(2))
        writer.reset()
        writer.add_episode(episode(5))
        assert items(replay) == [[0, 1, 2, 3, 4, 5]]
