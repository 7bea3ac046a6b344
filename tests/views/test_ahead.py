"""Samples through views that look ahead, of rows whose next rows are not stored yet, say so once (views V17)."""

import re
import warnings

import numpy as np
import pytest

import headrace as hr
from headrace.replay.sampling.sampler import Sampling

LANES = 3
AHEAD = {
    "one step": (hr.views.transition(), 1),
    "three steps": (hr.views.transition(3), 3),
    "a stack": (hr.views.transition(2, frame_stack=2), 2),
    "a shift": ({"later": hr.View("observation", shift=2)}, 2),
    "a window": ({"around": hr.View("observation", shift="-1:1", mask=True)}, 1),
    "the furthest": (hr.views.transition() | {"later": hr.View("reward", shift=[0, 4])}, 4),
    "a shifted next": (
        hr.views.transition()
        | {"next_observation": hr.views.transition()["next_observation"].replace(shift=2)},
        3,
    ),
}
BACK = {
    "nothing": None,
    "the row": {"observation": hr.View()},
    "a stack": {"observation": hr.View(shift="-3:0", fill="edge")},
    "the past": {"reward": hr.View(shift=-2)},
}
QUICK = pytest.mark.parametrize("is_quick", [True, False])


def step(lanes: int = LANES, terminated: bool = False) -> dict[str, np.ndarray]:
    return {
        "observation": np.zeros((lanes, 2), np.float32),
        "action": np.zeros(lanes, np.int64),
        "reward": np.ones(lanes, np.float32),
        "terminated": np.full(lanes, terminated),
        "truncated": np.zeros(lanes, np.bool_),
    }


SIGNATURE = hr.Signature.like({name: values[0] for name, values in step().items()})


class Play:
    """A replay whose batches are as many as there are items, of a writer that goes on."""

    def __init__(self, *rules: hr.ItemRule, tables=("t",)) -> None:
        fifo = hr.selectors.Fifo()
        made = [
            hr.Table(name, sampler=hr.selectors.Uniform(replacement=False), remover=fifo, max_size=1000)
            for name in tables
        ]
        self.replay = hr.Replay(SIGNATURE, made, seed=0)
        self.writer = self.replay.writer(lanes=LANES, items=rules)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.writer.append(step())

    def newest(self, views, table="t") -> list[str]:
        """The warnings of two samples of everything there is."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                self.replay.sample(table, len(self.replay.table(table)), views=views)
        assert all(each.category is UserWarning and each.filename == __file__ for each in told)
        return [str(each.message) for each in told]

    def __enter__(self) -> "Play":
        return self

    def __exit__(self, *_) -> None:
        self.replay.close()


@QUICK
@pytest.mark.parametrize("views", AHEAD)
def test_it_is_said_once_with_the_count_and_the_rule(views, is_quick):
    views, lookahead = AHEAD[views]
    sampler = hr.selectors.Fifo() if is_quick else hr.selectors.Uniform(replacement=False)
    tables = [
        hr.Table(name, sampler=sampler, remover=hr.selectors.Lifo(), max_size=99) for name in ("a", "b")
    ]
    with hr.Replay(SIGNATURE, tables, seed=0) as replay:
        writer = replay.writer(lanes=LANES, items=[hr.ItemRule("a", 1), hr.ItemRule("b", 1)])
        writer.append(step())
        for name in ("a", "b"):
            with pytest.warns(UserWarning, match="newest of their lanes") as told:
                batch = replay.sample(name, 2, views=views)
            (message,) = [str(each.message) for each in told]
            assert message.startswith(f"table '{name}': 2 of the 2 rows of this batch")
            assert f"hr.ItemRule('{name}', 1, lookahead={lookahead})" in message
            # Once: another would be an error here.
            assert (
                replay.sample(name, 2, views=views)["n" if "n" in batch.data else next(iter(views))]
                is not None
            )
        assert replay.statistics().tables["a"].samples == 4


@QUICK
def test_the_count_is_that_of_the_rows_without_a_next_one(is_quick, monkeypatch):
    if not is_quick:
        monkeypatch.setattr(Sampling, "_draw_fused", lambda *_: None)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=99)
    with hr.Replay(SIGNATURE, [table], seed=4) as replay:
        writer = replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)])
        for _ in range(5):
            writer.append(step())
        with pytest.warns(UserWarning, match="newest of their lanes") as told:
            batch = replay.sample("t", 64, views=hr.views.transition(2))
        without = int((batch["n"] == 0).sum())
        assert 0 < without < 64
        assert f": {without} of the 64 rows of this batch" in str(told[0].message)


@pytest.mark.parametrize("rule", [hr.ItemRule("t", 3), hr.ItemRule("t", 3, 2), hr.ItemRule("t", 2)])
@pytest.mark.parametrize("views", AHEAD)
def test_the_rule_that_is_told_ends_it(rule, views):
    views, lookahead = AHEAD[views]
    with Play(rule) as play:
        play.append(7)
        (message,) = play.newest(views)
        batch = play.replay.sample("t", len(play.replay.table("t")))
        assert f": {LANES} of the {batch['reward'].size} rows of this batch" in message
        assert f"hr.ItemRule('t', {rule.length}, lookahead={lookahead})" in message
    with Play(hr.ItemRule("t", rule.length, rule.stride, lookahead=lookahead)) as play:
        play.append(9)
        assert play.newest(views) == []
        play.writer.end_episode({"observation": np.zeros((LANES, 2), np.float32)})
        assert play.newest(views) == []


@pytest.mark.parametrize("end", ["final", "no final", "terminated"])
@pytest.mark.parametrize(
    "rule", [hr.ItemRule("t", 1), hr.ItemRule("t", 3), hr.ItemRule("t", 3, 3, hr.EndOfEpisode.PAD)]
)
@pytest.mark.parametrize("views", AHEAD)
def test_rows_at_the_end_of_an_episode_are_none(views, rule, end):
    with Play(rule) as play:
        play.append(4)
        if end == "terminated":
            # It is the flag that tells the end, whether or not the episode was ended.
            play.writer.append(step(terminated=True))
        else:
            final = {"observation": np.zeros((LANES, 2), np.float32)} if end == "final" else None
            play.writer.end_episode(final)
        assert play.newest(AHEAD[views][0]) == []


@pytest.mark.parametrize("views", BACK)
def test_views_that_do_not_look_ahead_say_nothing(views):
    with Play(hr.ItemRule("t", 1)) as play:
        play.append(1)
        assert play.newest(BACK[views]) == []
        # Nor is anything taken for said.
        assert len(play.newest(hr.views.transition())) == 1


def test_one_next_row_is_enough():
    """V17: an n-step return over fewer steps tells its true exponent; only n = 0 has nothing to learn from."""
    with Play(hr.ItemRule("t", 1, lookahead=1)) as play:
        play.append(5)
        assert play.newest(hr.views.transition(3)) == []


def test_rows_that_a_view_leaves_out_do_not_count():
    with Play(hr.ItemRule("t", 4)) as play:
        play.append(4)
        assert play.newest({"chunk": hr.View("observation", shift="0:3", every=4)}) == []


def test_rows_whose_next_row_was_removed_count():
    """The same rule keeps it (`lookahead` rows are held as long as the item)."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Lifo(), max_size=1)
    with hr.Replay(SIGNATURE, [table], capacity=32, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)], history=1) as writer:
            for _ in range(8):
                writer.append({name: values[0] for name, values in step().items()})
        with pytest.warns(UserWarning, match="1 of the 1 rows"):
            assert replay.sample("t", 1, views=hr.views.transition())["n"].tolist() == [0]


def test_windows_over_ends_of_episodes_have_another_remedy():
    with Play(hr.ItemRule("t", 3, end=hr.EndOfEpisode.CONTINUE)) as play:
        play.append(4)
        (message,) = play.newest(hr.views.transition())
        assert re.search(r"3 of the 18 rows .*items over the ends of episodes cannot wait", message)
        assert "ItemRule" not in message


def test_items_of_many_lengths_have_no_one_rule():
    with Play(hr.ItemRule("t", 1), hr.ItemRule("t", 3)) as play:
        play.append(4)
        (message,) = play.newest(hr.views.transition())
        assert "hr.ItemRule('t', length, lookahead=1)" in message


def test_where_warnings_are_errors_the_replay_goes_on():
    with Play(hr.ItemRule("t", 1)) as play:
        play.append(1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="newest of their lanes"):
                play.replay.sample("t", 3, views=hr.views.transition())
            assert play.replay.sample("t", 3, views=hr.views.transition())["n"].tolist() == [0, 0, 0]
        assert play.replay.statistics().tables["t"].samples == 6
        play.append(40)
