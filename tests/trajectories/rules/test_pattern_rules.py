"""Patterns: which columns, at which offsets, under which conditions, into which table (trajectories A4, V2, P1-P3)."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.selectors import Fifo
from headrace.trajectories import Condition, PatternRule

STEP = {
    "observation": np.int64(0),
    "action": np.int64(0),
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
EXTRAS = {**STEP, "extras": {"state": np.int64(0), "logit": np.int64(0)}}


def new_replay(*names, step=STEP, **settings):
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=10_000, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(hr.Signature.like(step), tables, seed=0, **settings)


def play(writer, length, begin=0, rewards=None, end="terminated"):
    """One episode whose observations count from `begin`; returns the number of keys of each call."""
    writer.add_first(np.int64(begin))
    made = []
    for t in range(length):
        last = t == length - 1
        reward = t + 1.0 if rewards is None else rewards[t]
        ends = last and end == "terminated", last and end == "truncated"
        made.append(len(writer.add(begin + t, reward, *ends, np.int64(begin + t + 1))))
    return made


def items(replay, rule, **views):
    count = len(replay.table(rule.table))
    if not count:
        return []
    data = replay.sample(rule.table, count, views={**rule.views, **views}).data
    return [{name: values[i].tolist() for name, values in data.items()} for i in range(count)]


# ---- literal examples ------------------------------------------------------------------------------------------------


def test_transitions():
    """The newest row is the final row in the end: T transitions, each in one item."""
    rule = PatternRule(
        "t",
        {"o": ("observation", -2), "a": ("action", -2), "r": ("reward", -2), "next": ("observation", -1)},
    )
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            assert play(writer, 3) == [0, 1, 2]
            assert play(writer, 1, 100) == [1]
        assert writer.statistics().steps_dropped == 0
        assert items(replay, rule) == [
            {"o": 0, "a": 0, "r": 1, "next": 1},
            {"o": 1, "a": 1, "r": 2, "next": 2},
            {"o": 2, "a": 2, "r": 3, "next": 3},
            {"o": 100, "a": 100, "r": 1, "next": 101},
        ]


def test_a_stack_of_observations_with_the_last_action():
    """`ref["observation"][-3:]`, `ref["action"][-1]`: a final row has no action, so there is no item of it (P3)."""
    rule = PatternRule("t", {"stack": ("observation", np.s_[-3:]), "action": ("action", -1)})
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            assert play(writer, 5) == [0, 0, 1, 1, 1]
            assert play(writer, 2, 50) == [0, 0]  # no window reaches over the start of an episode
        assert items(replay, rule) == [
            {"stack": [0, 1, 2], "action": 2},
            {"stack": [1, 2, 3], "action": 3},
            {"stack": [2, 3, 4], "action": 4},
        ]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (-1, [2, 3]),
        ([-1], [[2], [3]]),
        (slice(-3, -1), [[0, 1], [1, 2]]),
        (slice(-3, None, 2), [[0, 2], [1, 3]]),
        (range(-3, 0), [[0, 1, 2], [1, 2, 3]]),
        (np.array([-1, -3]), [[2, 0], [3, 1]]),
    ],
)
def test_forms_of_offsets(offsets, expected):
    rule = PatternRule(
        "t", {"x": ("observation", offsets), "all": ("observation", -3), "z": ("observation", -1)}
    )
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            play(writer, 3)
        assert [item["x"] for item in items(replay, rule)] == expected


def test_a_pattern_that_reads_older_rows_only():
    """It waits for the newest row, and keeps only what it reads."""
    rule = PatternRule("t", {"action": ("action", -3), "observation": ("observation", -2)})
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            assert play(writer, 4) == [0, 0, 1, 2]
        assert [list(item.values()) for item in items(replay, rule)] == [[0, 1], [1, 2], [2, 3]]
        assert writer.statistics().steps_dropped == 1  # P2: the final row, number 4


def test_conditions_on_the_step():
    """`Condition.step_index() % 2 == 0`, `step_index() >= 2`, both; several on one rule are all to hold."""
    read = {"o": ("observation", -1)}
    rules = [
        PatternRule("every", read, conditions=[Condition.every(2)]),
        PatternRule("phase", read, conditions=[Condition.every(3, phase=1)]),
        PatternRule("late", read, conditions=[Condition.step_index_at_least(2)]),
        PatternRule("joined", read, conditions=[Condition.every(2) & Condition.step_index_at_least(1)]),
        PatternRule("both", read, conditions=[Condition.every(2), Condition.step_index_at_least(3)]),
        PatternRule("end", read, conditions=[Condition.at_end()]),
        PatternRule("even end", read, conditions=[Condition.at_end() & Condition.every(2)]),
    ]
    with new_replay(*(rule.table for rule in rules)) as replay:
        with hr.StepWriter(replay, rules) as writer:
            play(writer, 5)
            play(writer, 2, 10)
        found = {rule.table: [item["o"] for item in items(replay, rule)] for rule in rules}
    assert found == {
        "every": [0, 2, 4, 10, 12],
        "phase": [1, 4, 11],
        "late": [2, 3, 4, 5, 12],
        "joined": [2, 4, 12],
        "both": [4],
        "end": [5, 12],
        "even end": [12],
    }


def test_a_condition_on_a_column():
    """`Condition.data(...)`: of the newest row; a final row has no reward."""
    rule = PatternRule(
        "t",
        {"o": ("observation", [-2, -1]), "r": ("reward", -1)},
        conditions=[Condition.column("reward", lambda reward: reward > 0)],
    )
    seen = PatternRule(
        "seen", {"o": ("observation", -1)}, conditions=[Condition.column("observation", lambda o: o > 2)]
    )
    with new_replay("t", "seen") as replay:
        with hr.StepWriter(replay, [rule, seen]) as writer:
            play(writer, 4, rewards=[1, 0, 2, -1])
        assert items(replay, rule) == [{"o": [1, 2], "r": 2}]
        assert items(replay, seen) == [{"o": 3}, {"o": 4}]


@pytest.mark.parametrize("how", ["reset", "close", "drop"])
def test_the_end_of_an_episode_that_is_cut(how):
    """A6: `reset` and `close` store the final row, and patterns see it; `reset(False)` makes nothing."""
    rule = PatternRule("t", {"o": ("observation", slice(-2, None))}, conditions=[Condition.at_end()])
    with new_replay() as replay:
        writer = hr.StepWriter(replay, [rule])
        play(writer, 3, end=None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            keys = {"reset": writer.reset, "close": writer.close, "drop": lambda: writer.reset(False)}[how]()
        assert items(replay, rule) == ([] if how == "drop" else [{"o": [2, 3]}])
        if how == "reset":
            assert len(keys) == 1
        assert writer.statistics().steps_dropped == (3 if how == "drop" else 2)
        assert [("fewer conditions" in str(each.message)) for each in caught] == (
            [] if how == "drop" else [True]
        )
        writer.close()


def test_one_writer_feeds_many_tables():
    """A step is stored once for patterns and other rules; keys come in the order of the rules (A4)."""
    stack = PatternRule("stacks", {"o": ("observation", np.s_[-2:])})
    rules = [hr.ItemRule("windows", 2), stack, hr.NStepRule("transitions", 2), hr.EpisodeRule("episodes", 9)]
    with new_replay("windows", "stacks", "transitions", "episodes") as replay:
        with hr.StepWriter(replay, rules) as writer:
            play(writer, 3)
        sizes = {name: len(replay.table(name)) for name in ("windows", "stacks", "transitions", "episodes")}
        assert sizes == {"windows": 3, "stacks": 3, "transitions": 3, "episodes": 1}
        assert writer.statistics().steps_written == 4
        assert [item["o"] for item in items(replay, stack)] == [[0, 1], [1, 2], [2, 3]]


def test_keys_can_be_updated():
    """U6."""
    rule = PatternRule("t", {"o": ("observation", -1), "a": ("action", -1)}, priority=3.0)
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            writer.add_first(np.int64(0))
            first = writer.add(0, 0, False, False, np.int64(1))
            second = writer.add(1, 0, True, False, np.int64(2))
        replay.update_priorities("t", second, [7.0])
        batch = replay.sample("t", 2, views=rule.views)
        assert batch.info.keys.tolist() == first + second
        assert batch.info.priorities.tolist() == [3.0, 7.0]


def test_priorities_by_a_function():
    """A7: it gets the rows that the item keeps, oldest first."""
    seen = []

    def priority(rows):
        seen.append(rows["observation"].tolist())
        return rows["reward"].sum()

    rule = PatternRule(
        "t", {"o": ("observation", [-3, -2])}, conditions=[Condition.every(2)], priority=priority
    )
    with new_replay() as replay:
        with hr.StepWriter(replay, [rule], lanes=2, autoreset="disabled") as writer:
            writer.add_first(np.array([0, 10]))
            for t in range(4):
                last = np.array([t == 3, t == 3])
                writer.add(np.zeros(2, int), np.ones(2) * t, last, ~last & last, np.array([t + 1, t + 11]))
        batch = replay.sample("t", 4, views=rule.views)
        assert batch.info.priorities.tolist() == [1, 1, 5, 5]
        assert seen == batch.data["o"].tolist() == [[0, 1], [10, 11], [2, 3], [12, 13]]


def test_items_keep_their_rows():
    """The pages under a pattern stay while its item lives, though others are used again and again."""
    rule = PatternRule("keep", {"o": ("observation", np.s_[-3:])}, conditions=[Condition.at_end()])
    tables = [
        hr.Table("keep", sampler=Fifo(), remover=Fifo(), max_size=3, max_times_sampled=1),
        hr.Table("churn", sampler=Fifo(), remover=Fifo(), max_size=5),
    ]
    with hr.Replay(hr.Signature.like(STEP), tables, capacity=2000, seed=0) as replay:
        churn = hr.ItemRule("churn", 1)
        with hr.StepWriter(replay, [rule, churn]) as writer:
            for episode in range(3):
                play(writer, 7, 100 * episode)
        with hr.StepWriter(replay, [churn]) as writer:
            for _ in range(700):
                play(writer, 7, 5000)
        expected = [[5, 6, 7], [105, 106, 107], [205, 206, 207]]
        assert [item["o"] for item in items(replay, rule)] == expected


def test_more_lanes_than_a_page_has_rows():
    """V2: the lanes of several blocks."""
    rule = PatternRule(
        "t",
        {"o": ("observation", [-2, -1])},
        conditions=[Condition.column("observation", lambda o: o % 2 == 1)],
    )
    with new_replay(capacity=4 * 32) as replay:
        assert core_of(replay).store.arrays.page_rows == 4
        with hr.StepWriter(replay, [rule], lanes=10, autoreset="next_step") as writer:
            lanes, none = np.arange(10), np.zeros(10, bool)
            writer.add_first(lanes * 10)
            writer.add(lanes, lanes, none, none, lanes * 11 + 1)
            writer.add(lanes, lanes, lanes == 8, none, lanes * 10 + 3)
            writer.add(lanes, lanes, none, none, lanes * 10 + 4)
            writer.reset(False)
        found = [item["o"] for item in items(replay, rule)]
    odd = [[lane * 10, lane * 11 + 1] for lane in range(0, 10, 2)]
    later = [[lane * 11 + 1, lane * 10 + 3] for lane in range(10)]
    assert sorted(found) == sorted(odd + later)


def test_trees_paths_and_metadata():
    """Columns may be paths, roots of trees, and what is known of each row."""
    step = {**STEP, "observation": {"camera": np.zeros(2, np.uint8), "speed": np.float32(0)}}
    rule = PatternRule(
        "t", {"all": ("observation", np.s_[-2:]), "speed": ("observation/speed", -1), "t": ("t", -1)}
    )

    def observe(t):
        return {"camera": np.full(2, t, np.uint8), "speed": np.float32(t)}

    with new_replay(step=step) as replay:
        with hr.StepWriter(replay, [rule]) as writer:
            writer.add_first(observe(0))
            for t in range(2):
                writer.add(0, 0, t == 1, False, observe(t + 1))
        data = replay.sample("t", 2, views=rule.views).data
        assert data["all"]["camera"][..., 0].tolist() == [[0, 1], [1, 2]]
        assert data["speed"].tolist() == [1, 2]
        assert data["t"].tolist() == [1, 2]


def test_extras_of_final_rows():
    """A5: extras that come with observations are there at the end, those that come with actions are not."""
    rules = [
        PatternRule("state", {"x": ("extras/state", -1)}, conditions=[Condition.step_index_at_least(1)]),
        PatternRule("logit", {"x": ("extras/logit", -1)}, conditions=[Condition.step_index_at_least(1)]),
    ]
    with new_replay("state", "logit", step=EXTRAS) as replay:
        with hr.StepWriter(replay, rules) as writer:
            writer.add_first(np.int64(0), extras={"state": 5})
            for t in range(2):
                writer.add(0, 0, t == 1, False, np.int64(t + 1), extras={"state": 6 + t, "logit": 90 + t})
        assert [item["x"] for item in items(replay, rules[0])] == [6, 7]
        assert [item["x"] for item in items(replay, rules[1])] == [91]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [
        ({}, ValueError, "at least one"),
        ([("observation", -1)], TypeError, "mapping"),
        ({"o": "observation"}, TypeError, "'o'.*column, offsets"),
        ({"o": (3, -1)}, TypeError, "'o'.*column, offsets"),
        ({"o": ("observation", 0)}, ValueError, "at most -1.*got 0"),
        ({"o": ("observation", [-1, 1])}, ValueError, "at most -1.*got 1"),
        ({"o": ("observation", [])}, ValueError, "at least one"),
        ({"o": ("observation", slice(-1, -3))}, ValueError, "at least one"),
        ({"o": ("observation", slice(None, -1))}, ValueError, "with a start"),
        ({"o": ("observation", slice(-3, 2))}, ValueError, "negative"),
        ({"o": ("observation", slice(2, None))}, ValueError, "negative"),
        ({"o": ("observation", slice(-1, -3, -1))}, ValueError, "oldest first"),
        ({"o": ("observation", "-3:-1")}, TypeError, "slice"),
        ({"o": ("observation", -1.0)}, TypeError, "slice"),
        ({"o": ("observation", True)}, TypeError, "slice"),
        ({"o": ("observation", [-1.0])}, TypeError, "integers"),
    ],
)
def test_columns_that_are_none(columns, error, match):
    """A9: at construction, with the table and the name."""
    with pytest.raises(error, match=f"'t'.*{match}"):
        PatternRule("t", columns)


def test_conditions_that_are_none():
    read = {"o": ("observation", -1)}
    for wrong in (Condition.at_end(), lambda step: True):
        with pytest.raises(TypeError, match="list of Condition"):
            PatternRule("t", read, conditions=wrong)
    with pytest.raises(TypeError, match="expected a Condition"):
        PatternRule("t", read, conditions=[True])
    with pytest.raises(ValueError, match="priority"):
        PatternRule("t", read, priority=-1.0)
    for wrong, error in [(0, ValueError), (1.5, TypeError), (True, TypeError)]:
        with pytest.raises(error, match="steps"):
            Condition.every(wrong)
    with pytest.raises(ValueError, match="phase: expected 0 to 2, got 3"):
        Condition.every(3, phase=3)
    with pytest.raises(ValueError, match="steps"):
        Condition.step_index_at_least(-1)
    with pytest.raises(TypeError, match="name"):
        Condition.column(3, bool)
    with pytest.raises(TypeError, match="function.*'reward'"):
        Condition.column("reward", 0.5)
    with pytest.raises(TypeError):
        Condition.at_end() & True


def test_what_the_replay_has_not():
    """A9: unknown tables and columns, and items at an end that there cannot be, when the writer is built."""
    with new_replay(step=EXTRAS) as replay:
        for rule, error, match in [
            (PatternRule("other", {"o": ("observation", -1)}), KeyError, "'t'"),
            (PatternRule("t", {"o": ("camera", -1)}), hr.SpecError, "'t'.*'o'.*'camera'.*observation"),
            (
                PatternRule("t", {"o": ("observation", -1)}, conditions=[Condition.column("speed", bool)]),
                hr.SpecError,
                "'t'.*'speed'.*observation",
            ),
            (
                PatternRule("t", {"a": ("action", -1)}, conditions=[Condition.at_end()]),
                ValueError,
                "no action.*-2",
            ),
            (
                PatternRule(
                    "t",
                    {"o": ("observation", -1)},
                    conditions=[Condition.at_end(), Condition.column("reward", bool)],
                ),
                ValueError,
                "no reward",
            ),
        ]:
            with pytest.raises(error, match=match):
                hr.StepWriter(replay, [rule])
        # Which extras final rows have is known when an episode was opened.
        rule = PatternRule("t", {"x": ("extras/logit", -1)}, conditions=[Condition.at_end()])
        with hr.StepWriter(replay, [rule]) as writer:
            with pytest.raises(ValueError, match="no extras/logit"):
                writer.add_first(np.int64(0), extras={"state": 5})
            writer.add_first(np.int64(0), extras={"state": 5, "logit": 6})
            writer.add(0, 0, True, False, np.int64(1), extras={"state": 7, "logit": 8})
        assert items(replay, rule) == [{"x": 8}]


@pytest.mark.parametrize("lanes", [None, 1, 2])
def test_errors_of_conditions_change_nothing(lanes):
    """P1."""
    answers = []

    def function(reward):
        assert np.shape(reward) == (() if lanes is None else (lanes,))
        assert reward.dtype == np.float32
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def value(number, dtype=np.int64):
        return dtype(number) if lanes is None else np.full(lanes, number, dtype)

    def add(number, ends=False):
        return writer.add(value(0), value(0.5), value(ends, bool), value(False, bool), value(number))

    rule = PatternRule("t", {"o": ("observation", -1)}, conditions=[Condition.column("reward", function)])
    with new_replay() as replay:
        with hr.StepWriter(
            replay, [rule], lanes=lanes, autoreset=None if lanes is None else "disabled"
        ) as writer:
            writer.add_first(value(0))
            answers.append(value(True, bool))
            assert len(add(1)) == (lanes or 1)
            before = writer.statistics()
            for wrong in (1.0, None, np.ones(7, bool), RuntimeError("mine"), value(1)):
                for ends in (False, True):
                    answers.append(wrong)
                    mine = isinstance(wrong, RuntimeError)
                    with pytest.raises(
                        RuntimeError if mine else ValueError, match="mine" if mine else "'t'.*'reward'"
                    ):
                        add(2, ends)
                    assert writer.statistics() == before
            answers.append(value(True, bool))
            assert len(add(3, True)) == (lanes or 1)
        assert [item["o"] for item in items(replay, rule)] == [0] * (lanes or 1) + [1] * (lanes or 1)


def test_conditions_see_values_that_they_cannot_change():
    def function(observation):
        observation[...] = 9
        return np.ones(2, bool)

    rule = PatternRule(
        "t", {"o": ("observation", -1)}, conditions=[Condition.column("observation", function)]
    )
    with new_replay() as replay, hr.StepWriter(replay, [rule], lanes=2, autoreset="disabled") as writer:
        writer.add_first(np.zeros(2, int))
        none = np.zeros(2, bool)
        with pytest.raises(ValueError, match="read-only"):
            writer.add(np.zeros(2, int), np.ones(2), none, none, np.ones(2, int))


def test_rules_are_values():
    """Equal patterns are equal, can be keys, and travel to other processes."""
    make = [
        lambda: PatternRule("t", {"o": ("observation", np.s_[-2:])}, conditions=[Condition.every(2)]),
        lambda: PatternRule("t", {"o": ("observation", [-2, -1])}, conditions=(Condition.every(2),)),
    ]
    assert make[0]() == make[1]()
    assert len({each() for each in make}) == 1
    assert pickle.loads(pickle.dumps(make[0]())) == make[0]()
    with pytest.raises(AttributeError):
        make[0]().table = "other"


# ---- against lists ---------------------------------------------------------------------------------------------------

MODES = ["next_step", "same_step", "disabled"]
FINAL = {"action": None, "reward": None}
some_offsets = st.integers(-4, -1) | st.lists(st.integers(-5, -1), min_size=1, max_size=3)
some_conditions = st.sampled_from(["every", "phase", "late", "end", "reward", "observation"])


def condition_of(kind):
    """A condition, and the same told of a row of the model: its index, whether it is final, and its columns."""
    return {
        "every": (Condition.every(2), lambda t, final, row: t % 2 == 0),
        "phase": (Condition.every(3, 2), lambda t, final, row: t % 3 == 2),
        "late": (Condition.step_index_at_least(2), lambda t, final, row: t >= 2),
        "end": (Condition.at_end(), lambda t, final, row: final),
        "reward": (
            Condition.column("reward", lambda r: r > 1),
            lambda t, final, row: row["reward"] is not None and row["reward"] > 1,
        ),
        "observation": (
            Condition.column("observation", lambda o: o % 3 != 0),
            lambda t, final, row: row["observation"] % 3 != 0,
        ),
    }[kind]


@st.composite
def patterns(draw, table):
    columns = draw(
        st.dictionaries(
            st.sampled_from("abc"),
            st.tuples(st.sampled_from(["observation", "action", "reward"]), some_offsets),
            min_size=1,
        )
    )
    kinds = draw(st.lists(some_conditions, max_size=2, unique=True))
    of_newest = {column for column, offsets in columns.values() if -1 in np.atleast_1d(offsets)}
    if "end" in kinds and (of_newest - {"observation"} or "reward" in kinds):
        kinds = []
    pairs = [condition_of(kind) for kind in kinds]
    return PatternRule(table, columns, conditions=[pair[0] for pair in pairs]), [pair[1] for pair in pairs]


class Model:
    """The rows of one lane, and the items that patterns make of them."""

    def __init__(self, rules):
        self.rules = rules
        self.items = {rule.table: [] for rule, _ in rules}
        self.rows, self.covered, self.dropped = [], set(), 0

    def store(self, final=False, **row):
        self.rows.append({**FINAL, **row})
        for rule, tests in self.rules:
            found = {name: self._read(column, given) for name, (column, given) in rule.columns.items()}
            flat = [
                each for value in found.values() for each in (value if isinstance(value, list) else [value])
            ]
            met = all(test(len(self.rows) - 1, final, self.rows[-1]) for test in tests)
            if met and None not in flat:
                self.items[rule.table].append(found)
                self.covered.update(range(len(self.rows) + rule.oldest, len(self.rows) + rule.newest + 1))

    def _read(self, column, given):
        offsets = [given] if isinstance(given, int) else given
        values = [self.rows[each][column] if -each <= len(self.rows) else None for each in offsets]
        return values[0] if isinstance(given, int) else values

    def end(self, observation):
        self.store(final=True, observation=observation)
        self.forget(all(rule.oldest == rule.newest for rule, _ in self.rules))

    def forget(self, of_one_row=False):
        rows = range(len(self.rows) - of_one_row)
        self.dropped += len([row for row in rows if row not in self.covered])
        self.rows, self.covered = [], set()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_patterns_against_lists(data):
    """V2: every lane has the items of a lane by itself, in all modes; P2: rows in no item are counted."""
    lanes = data.draw(st.sampled_from([None, 1, 3]))
    mode = None if lanes is None else data.draw(st.sampled_from(MODES))
    count = lanes or 1
    rules = [data.draw(patterns(name)) for name in ("p", "q")[: data.draw(st.integers(1, 2))]]
    other = data.draw(st.sampled_from([[], [hr.ItemRule("w", 1)]]))
    models = [Model(rules) for _ in range(count)]
    now, is_open = np.arange(count) * 10_000, np.zeros(count, bool)
    as_given = (lambda array: array[0]) if lanes is None else (lambda array: array)
    with new_replay("p", "q", "w") as replay, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with hr.StepWriter(
            replay, [rule for rule, _ in rules] + other, lanes=lanes, autoreset=mode
        ) as writer:
            writer.add_first(as_given(now))
            is_open[:] = True
            keys = 0
            for call in range(data.draw(st.integers(1, 14))):
                if not is_open.all() and mode != "next_step":
                    writer.add_first(as_given(now), **({} if lanes is None else {"mask": ~is_open}))
                    is_open[:] = True
                ends = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))) == 0
                ends &= is_open
                rewards = np.array(
                    data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.float32
                )
                following = now + 1
                first = following + 1 if mode == "same_step" else following
                seen = np.where(ends, first, following)
                final = {"final_observation": following} if mode == "same_step" else {}
                actions = np.full(count, call)
                flags = as_given(ends), as_given(np.zeros(count, bool))
                keys += len(writer.add(as_given(actions), as_given(rewards), *flags, as_given(seen), **final))
                for lane in range(count):
                    if is_open[lane]:
                        models[lane].store(observation=now[lane], action=call, reward=rewards[lane])
                    if ends[lane]:
                        models[lane].end(following[lane])
                now = seen
                is_open = np.ones(count, bool) if mode == "same_step" else ~ends
            writes = data.draw(st.booleans())
            keys += len(writer.reset(writes))
            for lane in range(count):
                if models[lane].rows and writes:
                    models[lane].end(now[lane])
                else:
                    models[lane].forget()
        assert keys == writer.statistics().items_written
        for rule, _ in rules:
            found = {lane: [] for lane in range(count)}
            for item in items(replay, rule, lane=hr.View("observation")):
                found[item.pop("lane") // 10_000].append(item)
            assert list(found.values()) == [model.items[rule.table] for model in models]
        if not other:
            assert writer.statistics().steps_dropped == sum(model.dropped for model in models)
