"""Views at sampling: closed forms, windows outside the item, what is not there (views V2 to V17)."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.spec import ArraySpec

FLOW = {"reward": np.float32(0), "terminated": False, "truncated": False}


def step(observation: Any, action: int, reward: float) -> dict[str, Any]:
    return {
        "observation": observation,
        "action": action,
        "reward": reward,
        "terminated": False,
        "truncated": False,
    }


class Feed:
    """A replay whose queue gives every item once, in order.

    Args:
        holds_all: rows stay where no item of the queue holds them, too.
    """

    def __init__(
        self,
        rule: hr.ItemRule,
        *,
        observation: Any = 0,
        capacity: int | None = None,
        lanes: int = 1,
        holds_all: bool = False,
        **more,
    ):
        table = hr.Table(
            "t",
            sampler=hr.selectors.Fifo(),
            remover=hr.selectors.Fifo(),
            max_size=10_000,
            max_times_sampled=1,
        )
        example = {"observation": observation, "action": 0, **FLOW, **more}
        tables, rules = [table], [rule]
        if holds_all:
            held = hr.Table("held", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=10_000)
            tables.append(held)
            rules.append(hr.ItemRule("held", 1, lookahead=1))
        self.replay = hr.Replay(hr.Signature.like(example), tables, capacity=capacity, seed=0)
        self.writer = self.replay.writer(lanes, items=rules)

    def episode(self, length: int, begin: int = 0, final: bool = True) -> None:
        """Observations begin + 10, ...; actions begin + 100, ...; rewards begin + 1, ..."""
        for t in range(length):
            self.writer.append(step(begin + 10 + t, begin + 100 + t, begin + 1 + t))
        self.writer.end_episode({"observation": begin + 10 + length} if final else None)

    def all(self, views: dict[str, hr.View] | None) -> Any:
        return self.replay.sample("t", len(self.replay.table("t")), views=views, timeout=0).data

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        self.replay.close()


@pytest.mark.parametrize(
    ("view", "presented"),
    [
        (hr.View("observation", shift=1), [11, 12, 13, 14, 15]),
        (hr.View("action", shift=-1), [0, 100, 101, 102, 103]),
        (
            hr.View("observation", shift="-4:0:2", fill="edge"),
            [[10, 10, 10], [10, 10, 11], [10, 10, 12], [10, 11, 13], [10, 12, 14]],
        ),
        (
            hr.View("observation", shift="0:2"),
            [[10, 11, 12], [11, 12, 13], [12, 13, 14], [13, 14, 15], [14, 15, 0]],
        ),
        (hr.View("reward", shift=-1, fill="edge"), [0, 1, 2, 3, 4]),
        (hr.View("reward", shift=[-2, 0], fill="edge"), [[1, 1], [1, 2], [1, 3], [2, 4], [3, 5]]),
        (hr.View("observation"), [10, 11, 12, 13, 14]),
        (hr.View("observation", shift=[0]), [[10], [11], [12], [13], [14]]),
        (hr.View("observation", shift=[0, -1]), [[10, 0], [11, 10], [12, 11], [13, 12], [14, 13]]),
        (hr.View("action", shift=1, fill=-7), [101, 102, 103, 104, -7]),
        (hr.View("action", shift=1, fill="edge"), [101, 102, 103, 104, 104]),
        (hr.View("reward", shift="1:2", fill="edge"), [[2, 3], [3, 4], [4, 5], [5, 5], [5, 5]]),
        (hr.View("observation", shift=[5, 6], fill="edge"), [[15, 15]] * 5),
    ],
)
@pytest.mark.parametrize("name", ["any name", "prev_reward", "observation"])
def test_worked_examples(view: hr.View, presented: list[Any], name: str):
    """V5, V6, V7: episode E, under any name."""
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(7, begin=1000)
        feed.episode(5)
        feed.episode(3, begin=2000)
        data = feed.all({name: view})
        assert list(data) == [name]
        got = data[name]
        assert got.dtype == feed.replay.signature.columns[view.data_col or name].dtype
        assert got.shape[1:] == ((len(view.offsets),) if view.has_window else ())
        assert got[7:12].tolist() == presented


def test_every_on_a_whole_episode():
    """V9: `View("observation", every=3)` presents 10 13; offsets are those of the kept rows."""
    views = {
        "kept": hr.View("observation", every=3),
        "next": hr.View("observation", shift=1, every=3, mask=True),
        "stack": hr.View("observation", shift="-1:0", every=4, fill="edge"),
        "t": hr.View(every=2),
    }
    with Feed(hr.ItemRule("t", 6)) as feed:
        feed.episode(5)
        data = feed.all(views)
        assert data["kept"].tolist() == [[10, 13]]
        assert data["next"].tolist() == [[11, 14]]
        assert data["next_mask"].tolist() == [[True, True]]
        assert data["stack"].tolist() == [[[10, 10], [13, 14]]]
        assert data["t"].tolist() == [[0, 2, 4]]


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("mask", [False, True])
def test_every_on_items_of_one_row_is_each_item(every: int, mask: bool):
    """V9, V16: rows 0, k, ... of each item; one row each is row 0."""
    views = {
        "obs": hr.View("observation", every=every, mask=mask),
        "next": hr.View("observation", shift=1, every=every),
    }
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(5)
        data = feed.all(views)
        assert data["obs"].tolist() == [10, 11, 12, 13, 14]
        assert data["next"].tolist() == [11, 12, 13, 14, 15]


@pytest.mark.parametrize("length", range(1, 8))
def test_every_keeps_a_ceiling_of_rows(length: int):
    """V9: ceil(rows / k) rows."""
    with Feed(hr.ItemRule("t", max(2, length))) as feed:
        feed.episode(max(2, length) - 1)
        rows = max(2, length)
        for every in range(1, 9):
            feed.episode(rows - 1)
            data = feed.all({"x": hr.View("observation", every=every)})
            assert data["x"].shape[1] == -(-rows // every)


def test_unknown_source_is_named():
    """V10: SpecError with the view, the source and the columns there are."""
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(2)
        with pytest.raises(SpecError, match=r"view 'v'.*'nothing'.*observation.*policy_version"):
            feed.all({"v": hr.View("nothing")})
        with pytest.raises(SpecError, match=r"view 'obs'.*'obs'"):
            feed.all({"obs": hr.View(shift=1)})
        with pytest.raises(SpecError, match=r"'observation/camera'"):
            feed.all({"obs": hr.View("observation/camera")})
        # Nothing was taken.
        assert len(feed.replay.table("t")) == 2


def test_a_space_that_contradicts_the_rows():
    """V10: the shape must agree; of the dtype the data's wins."""
    with Feed(hr.ItemRule("t", 1), observation=np.zeros(3, np.float32)) as feed:
        feed.writer.append(step(np.ones(3), 0, 0))
        for space in (spaces.Box(-1, 1, (2,)), ArraySpec((), np.float32), spaces.Dict(a=spaces.Discrete(2))):
            with pytest.raises(SpecError, match="view 'o'"):
                feed.all({"o": hr.View("observation", space=space)})
        with pytest.raises(
            SpecError,
            match=r"view 'o': space: expected that of the column 'observation', which has rows of shape \(3,\), got "
            r"one with rows of shape \(4,\)",
        ):
            feed.all({"o": hr.View("observation", space=spaces.Box(-1, 1, (4,)))})
        tree = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,)))
        with pytest.raises(SpecError, match=r"got one with a tree of rows of shape a \(\), b \(2,\)"):
            feed.all({"o": hr.View("observation", space=tree)})
        data = feed.all({"o": hr.View("observation", space=spaces.Box(-1, 1, (3,), np.float64))})
        assert data["o"].dtype == np.float32


def test_views_not_for_training_are_left_out():
    """V16: exactly the views' names and masks."""
    views = {
        "a": hr.View("observation", used_for_training=False),
        "b": hr.View("action", mask=True),
        "c": hr.View("action", used_for_compute_actions=False),
    }
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(2)
        assert set(feed.all(views)) == {"b", "b_mask", "c"}


def test_a_changed_dict_of_views_is_presented_as_it_is_now():
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(3)
        views = {"x": hr.View("observation")}
        assert feed.replay.sample("t", 1, views=views).data["x"].tolist() == [10]
        views["x"] = hr.View("observation", shift=1)
        assert feed.replay.sample("t", 1, views=views).data["x"].tolist() == [12]
        views["y"] = hr.View("action")
        assert set(feed.replay.sample("t", 1, views=views).data) == {"x", "y"}


# ---- windows outside the item --------------------------------------------------------------------------------------


def test_views_of_the_same_numbers_have_fills_of_their_own():
    # B4: arrays of a batch are separate.
    views = {f"t{fill}": hr.View("t", shift=[-1, 0], fill=fill) for fill in (3, 4)}
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(2)
        data = feed.all(views)
    assert [data[name].tolist() for name in views] == [[[3, 0], [0, 1]], [[4, 0], [0, 1]]]
    assert not np.shares_memory(data["t3"], data["t4"])


def test_windows_reach_outside_the_item_inside_the_episode():
    """V16: along the lane and the links of its pages; never into another episode."""
    views = {
        "stack": hr.View("observation", shift="-3:0", mask=True),
        "ahead": hr.View("observation", shift=[1, 2], mask=True),
    }
    with Feed(hr.ItemRule("t", 2, stride=2), capacity=64) as feed:  # Two rows a page.
        feed.episode(4, begin=1000)
        feed.episode(5)
        feed.episode(2, begin=2000)
        data = feed.all(views)
        # Items of episode E: rows 0 1, 2 3, 4 5.
        assert data["stack"].shape == (6, 2, 4)
        assert data["stack"][2:5].tolist() == [
            [[0, 0, 0, 10], [0, 0, 10, 11]],
            [[0, 10, 11, 12], [10, 11, 12, 13]],
            [[11, 12, 13, 14], [12, 13, 14, 15]],
        ]
        assert (data["stack_mask"][2:5] == (data["stack"][2:5] > 0)).all()
        assert data["ahead"][2:5].tolist() == [
            [[11, 12], [12, 13]],
            [[13, 14], [14, 15]],
            [[15, 0], [0, 0]],
        ]
        assert (data["ahead_mask"][2:5] == (data["ahead"][2:5] > 0)).all()


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
def test_rows_not_yet_written_are_unknown():
    """V17: the newest rows of an unfinished episode."""
    with Feed(hr.ItemRule("t", 1)) as feed:
        for t in range(3):
            feed.writer.append(step(10 + t, 100 + t, t))
        data = feed.all({"next": hr.View("observation", shift="1:2", mask=True, fill=-5)})
        assert data["next"].tolist() == [[11, 12], [12, -5], [-5, -5]]
        assert data["next_mask"].tolist() == [[True, True], [True, False], [False, False]]


def test_an_end_without_a_final_row_is_the_end_of_what_is_known():
    """V17: the last observation was never given; the next episode is not looked into."""
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(2, final=False)
        feed.episode(2, begin=1000)
        data = feed.all({"next": hr.View("observation", shift=1, mask=True)})
        assert data["next"].tolist() == [11, 0, 1011, 1012]
        assert data["next_mask"].tolist() == [True, False, True, True]


def test_removed_rows_are_unknown_and_a_reused_page_is_never_seen():
    """V17: rows of removed items are gone with their page; whatever stands there now is not shown."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=3)
    replay = hr.Replay(hr.Signature.like(step(0, 0, 0.0)), [table], capacity=64, seed=0)
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for t in range(200):
            writer.append(step(t, t, t))
        views = {
            "t": hr.View("observation"),
            "back": hr.View("observation", shift="-6:0", mask=True, fill=-1),
            "edge": hr.View("reward", shift=-6, fill="edge"),
        }
        data = replay.sample("t", 50, views=views).data
        offsets = np.arange(-6, 1)
        wanted = data["t"][:, None] + offsets
        known = data["back_mask"]
        assert known[:, -1].all()
        assert not known[:, 0].all()
        assert (data["back"][known] == wanted[known]).all()
        assert (data["back"][~known] == -1).all()
        # What is known ends where it ends: no holes.
        assert (np.diff(known.astype(int), axis=1) >= 0).all()
        # V6: a value that the row may know, or nothing.
        assert (data["edge"] < data["t"]).all()
    replay.close()


def test_padded_rows_are_filled_and_masked():
    """V16: padded rows of an item: filled, mask False."""
    rule = hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.PAD)
    views = {
        "plain": hr.View("observation"),
        "value": hr.View("observation", fill=-3, mask=True),
        "stack": hr.View("observation", shift="-1:0", fill="edge", mask=True),
        "t": hr.View(),
        "episode_id": hr.View(fill=-1),
    }
    with Feed(rule) as feed:
        feed.episode(5)  # Six rows: 4 and 2.
        data = feed.all(views)
        assert data["plain"].tolist() == [[10, 11, 12, 13], [14, 15, 0, 0]]
        assert data["value"].tolist() == [[10, 11, 12, 13], [14, 15, -3, -3]]
        assert data["value_mask"].tolist() == [[True] * 4, [True, True, False, False]]
        assert data["stack"].tolist() == [
            [[10, 10], [10, 11], [11, 12], [12, 13]],
            [[13, 14], [14, 15], [0, 0], [0, 0]],
        ]
        assert data["stack_mask"][1].tolist() == [[True, True], [True, True], [False, False], [False, False]]
        assert not data["stack_mask"][0, 0, 0]
        assert data["t"].tolist() == [[0, 1, 2, 3], [4, 5, 0, 0]]
        assert data["episode_id"].tolist() == [[0] * 4, [0, 0, -1, -1]]


def test_a_batch_is_a_copy():
    """V16, replay B4: writing to what was presented changes nothing."""
    with Feed(hr.ItemRule("t", 1, lookahead=1)) as feed:
        feed.episode(3)
        feed.episode(3)
        views = {"a": hr.View("observation"), "b": hr.View("observation", shift="0:1")}
        first = feed.replay.sample("t", 1, views=views).data
        for array in first.values():
            array[...] = -9
        second = feed.replay.sample("t", 1, views={"b": hr.View("observation", shift="-1:1")}).data
        assert second["b"].tolist() == [[10, 11, 12]]


# ---- columns -------------------------------------------------------------------------------------------------------


def test_a_column_that_the_final_row_was_given_is_known_before_acting():
    """V2: pre if the final row was given a value for it, else post; zeros of a final row are never data."""
    for is_given in (False, True):
        with Feed(hr.ItemRule("t", 2), score=0) as feed:
            feed.writer.append({**step(10, 100, 1), "score": 7})
            final = {"observation": 11, "score": 8} if is_given else {"observation": 11}
            feed.writer.end_episode(final)
            data = feed.all({"score": hr.View(mask=True), "reward": hr.View(mask=True)})
            assert data["score"].tolist() == [[7, 8 if is_given else 0]]
            assert data["score_mask"].tolist() == [[True, is_given]]
            assert data["reward_mask"].tolist() == [[True, False]]


@pytest.mark.parametrize("column", ["state_in_0", "env_t", "observation"])
def test_zeros_of_a_final_row_are_no_data_of_a_column_known_before_acting(column: str):
    """V2: the column is pre by its name, but its value at the final row was not given."""
    given_column = "observation" if column != "observation" else "state_in_0"
    example = {"observation": 0, "state_in_0": 0, "env_t": 0, **FLOW}
    rule, views = hr.ItemRule("t", 1), {"next": hr.View(column, shift=1, fill=-1, mask=True)}
    views["before"] = hr.View(column, shift=-1, fill="edge", used_for_compute_actions=True)
    views["now"] = hr.View(column, fill=-1, mask=True, used_for_compute_actions=True)
    table = hr.Table.queue("t", 100)
    with hr.Replay(hr.Signature.like(example), [table]) as replay, replay.writer(items=[rule]) as writer:
        for t in range(2):
            writer.append({"observation": 5 + t, "state_in_0": 5 + t, "env_t": 5 + t, **FLOW})
        writer.end_episode({given_column: 7})
        data = replay.sample("t", 2, views=views).data
    assert data["now"].tolist() == [5, 6]
    assert (data["next"].tolist(), data["next_mask"].tolist()) == ([6, -1], [True, False])
    assert data["before"].tolist() == [5, 5]


def test_metadata_columns():
    """V2: the step's index, the episode's id and the version of the policy, shifted and filled as any column."""
    views = {
        "t": hr.View(),
        "episode_id": hr.View(),
        "policy_version": hr.View(),
        "next_t": hr.View("t", shift=1, mask=True),
        "ids": hr.View("episode_id", shift=[-1, 0], fill=-1),
        "versions": hr.View("policy_version", shift=-1),
    }
    with Feed(hr.ItemRule("t", 1)) as feed:
        for version, length in ((3, 2), (5, 3)):
            for t in range(length):
                feed.writer.policy_version = version + t
                feed.writer.append(step(t, 0, 0))
            feed.writer.end_episode({"observation": 9})
        data = feed.all(views)
        assert data["t"].tolist() == [0, 1, 0, 1, 2]
        assert data["episode_id"].tolist() == [0, 0, 1, 1, 1]
        assert data["policy_version"].tolist() == [3, 4, 5, 6, 7]
        assert data["next_t"].tolist() == [1, 2, 1, 2, 3]
        assert data["next_t_mask"].all()
        assert data["ids"].tolist() == [[-1, 0], [0, 0], [-1, 1], [1, 1], [1, 1]]
        assert data["versions"].tolist() == [0, 3, 0, 5, 6]
        assert data["t"].dtype == data["episode_id"].dtype == np.int64


@pytest.mark.parametrize("lanes", [2, 3])
def test_metadata_of_lanes(lanes: int):
    """Ids count episodes as they begin, also where a lane ends alone."""
    rule = hr.ItemRule("t", 1)
    with Feed(rule, lanes=lanes) as feed:
        zeros, no = np.zeros(lanes, np.int64), np.zeros(lanes, bool)
        for t in range(3):
            feed.writer.policy_version = t
            feed.writer.append(
                {**step(zeros, zeros, np.zeros(lanes, np.float32)), "terminated": no, "truncated": no}
            )
            if t == 0:
                feed.writer.end_episode({"observation": 5}, lane=1)
        data = feed.all({"t": hr.View(), "episode_id": hr.View(), "policy_version": hr.View()})
        others = list(range(2, lanes))
        assert data["t"].reshape(3, lanes).T.tolist() == [[0, 1, 2], [0, 0, 1], *[[0, 1, 2] for _ in others]]
        ids = data["episode_id"].reshape(3, lanes).T.tolist()
        assert ids == [[0, 0, 0], [1, lanes, lanes], *[[lane] * 3 for lane in others]]
        assert data["policy_version"].tolist() == np.repeat([0, 1, 2], lanes).tolist()


def test_a_column_of_the_signature_wins_over_metadata_of_its_name():
    """What was stored under a name is what is presented under it."""
    with Feed(hr.ItemRule("t", 1), t=np.float32(0), policy_version=np.uint8(0)) as feed:
        feed.writer.append({**step(1, 2, 3), "t": 7.5, "policy_version": 9})
        feed.writer.append({**step(1, 2, 3), "t": 8.5, "policy_version": 10})
        whole = feed.replay.sample("t", 1).data
        assert (whole["t"].dtype, whole["t"].tolist(), whole["policy_version"].tolist()) == (
            np.float32,
            [7.5],
            [9],
        )
        data = feed.all({"t": hr.View(), "policy_version": hr.View(), "episode_id": hr.View()})
        assert (data["t"].tolist(), data["policy_version"].tolist(), data["episode_id"].tolist()) == (
            [8.5],
            [10],
            [0],
        )


Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("capacity", [None, 64])
def test_trees_keep_their_shape(capacity: int | None):
    """V2, V5: a tree of arrays under the view's name; a path presents a leaf or a sub-tree."""
    example = {"camera": np.zeros((2, 2), np.uint8), "arm": (np.float32(0), Pair(0, np.zeros(1, np.float64)))}

    def observation(t: int) -> Any:
        return {"camera": np.full((2, 2), t, np.uint8), "arm": (t + 0.5, Pair(t, np.array([-t])))}

    views = {
        "stack": hr.View("observation", shift="-1:0", mask=True),
        "plain": hr.View("observation"),
        "camera": hr.View("observation/camera", shift=1),
        "arm": hr.View("observation/arm"),
        "right": hr.View("observation/arm/1/right", shift=-1, fill=9),
    }
    with Feed(hr.ItemRule("t", 1), observation=example, capacity=capacity) as feed:
        for t in range(1, 3):
            feed.writer.append(step(observation(t), 0, 0))
        feed.writer.end_episode({"observation": observation(3)})
        data = feed.all(views)
        stack = data["stack"]
        assert stack["camera"].shape == (2, 2, 2, 2)
        assert stack["camera"][:, :, 0, 0].tolist() == [[0, 1], [1, 2]]
        assert stack["arm"][0].tolist() == [[0, 1.5], [1.5, 2.5]]
        assert isinstance(stack["arm"][1], Pair)
        assert stack["arm"][1].right.tolist() == [[[0], [-1]], [[-1], [-2]]]
        assert data["stack_mask"].tolist() == [[False, True], [True, True]]
        assert data["camera"][:, 0, 0].tolist() == [2, 3]
        assert data["plain"]["arm"][1].left.tolist() == [1, 2]
        assert data["arm"][1].left.tolist() == [1, 2]
        assert data["right"].tolist() == [[9], [-1]]
        assert [leaf.dtype for leaf in (stack["camera"], stack["arm"][0], stack["arm"][1].left)] == [
            np.uint8,
            np.float32,
            np.int64,
        ]


@pytest.mark.parametrize(
    "fill",
    [{"a": 7, "b": (1, [2, 3])}, {"b": [1, np.array([2, 3])], "a": np.uint8(7)}],
    ids=["plain", "arrays"],
)
def test_trees_of_fills(fill: Any):
    """V6: a tree for a tree source."""
    example = {"a": np.uint8(0), "b": (np.float32(0), np.zeros(2, np.int64))}
    if isinstance(fill["b"], tuple):
        fill = {"a": 7, "b": (1, np.array([2, 3]))}
    else:
        fill = {"b": tuple(fill["b"]), "a": fill["a"]}
    with Feed(hr.ItemRule("t", 1), observation=example) as feed:
        feed.writer.append(step({"a": 1, "b": (1, [1, 1])}, 0, 0))
        feed.writer.append(step({"a": 2, "b": (2, [2, 2])}, 0, 0))
        data = feed.all(
            {
                "x": hr.View("observation", shift=-1, fill=fill),
                "b": hr.View("observation/b", shift=-1, fill=3),
            }
        )
        assert data["x"]["a"].tolist() == [7, 1]
        assert data["x"]["b"][0].tolist() == [1, 1]
        assert data["x"]["b"][1].tolist() == [[2, 3], [1, 1]]
        assert data["b"][1].tolist() == [[3, 3], [1, 1]]


@pytest.mark.parametrize(
    "fill",
    [
        {"a": 7},
        {"a": 7, "b": 1, "c": 2},
        {"a": -1, "b": 1},
        {"a": 2.5, "b": 1},
        (1, 2),
        {"a": [1, 2], "b": 1},
    ],
)
def test_trees_of_fills_that_do_not_fit(fill: Any):
    """V6: SpecError naming the view; nothing is taken."""
    with Feed(hr.ItemRule("t", 1), observation={"a": np.uint8(0), "b": np.float32(0)}) as feed:
        feed.writer.append(step({"a": 1, "b": 1}, 0, 0))
        with pytest.raises(SpecError, match=r"view 'x': fill"):
            feed.all({"x": hr.View("observation", shift=-1, fill=fill)})
        assert len(feed.replay.table("t")) == 1


@pytest.mark.parametrize(
    ("column", "fill"), [("action", 2.5), ("terminated", 2), ("action", float("nan")), ("action", {})]
)
def test_a_fill_that_the_column_cannot_hold_takes_nothing(column: str, fill: Any):
    """V6: found when the views meet their columns, before anything is drawn."""
    with Feed(hr.ItemRule("t", 1)) as feed:
        feed.episode(2)
        with pytest.raises(SpecError, match="fill"):
            feed.all({"v": hr.View(column, shift=-1, fill=fill)})
        assert len(feed.replay.table("t")) == 2


# ---- against the closed form ---------------------------------------------------------------------------------------


def closed_form(
    values: list[int], t: int, offsets: tuple[int, ...], fill: Any, post: bool
) -> tuple[list[int], list[bool]]:
    """V6 and V7 for one row, word for word."""
    n, shown, mask = len(values), [], []
    now = t - 1 if post else t
    for offset in offsets:
        at = t + offset
        mask.append(0 <= at < n)
        if 0 <= at < n:
            shown.append(values[at])
        elif fill != "edge":
            shown.append(0 if fill == "zeros" else fill)
        elif at < 0:
            shown.append(values[0] if n and max(now, t + max(offsets)) >= 0 else 0)
        else:
            shown.append(values[-1] if n else 0)
    return shown, mask


# A final row in a page of which no item holds any.
@example([3, 1, 3], 3, hr.EndOfEpisode.DROP, 1, "zeros", 1, 96)
@settings(max_examples=fewer(60))
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([hr.EndOfEpisode.TILE, hr.EndOfEpisode.TRUNCATE, hr.EndOfEpisode.DROP]),
    st.one_of(st.integers(-6, 6), st.lists(st.integers(-6, 6), min_size=1, max_size=4)),
    st.sampled_from(["zeros", "edge", -9]),
    st.integers(1, 3),
    st.sampled_from([None, 96, 640]),
)
def test_sampling_equals_the_closed_form(
    lengths: list[int],
    length: int,
    end: hr.EndOfEpisode,
    shift: Any,
    fill: Any,
    every: int,
    capacity: int | None,
):
    """V5, V6, V7, V9, V16 for random episodes, items, shifts and fills."""
    views = {
        "pre": hr.View("observation", shift=shift, fill=fill, every=every, mask=True),
        "post": hr.View("action", shift=shift, fill=fill, every=every, mask=True),
        "t": hr.View(every=every),
        "episode_id": hr.View(every=every, fill=-1),
    }
    rule = hr.ItemRule("t", length, end=end, stride=min(2, length))
    with Feed(rule, capacity=capacity, holds_all=True) as feed:
        for number, steps in enumerate(lengths):
            feed.episode(steps, begin=1000 * (number + 1))
        if not len(feed.replay.table("t")):
            return
        data = feed.all(views)
    for place in np.ndindex(data["t"].shape):
        number, t = data["episode_id"][place], int(data["t"][place])
        for name, first, rows in (("pre", 10, 1), ("post", 100, 0)):
            got, mask = np.atleast_1d(data[name][place]), np.atleast_1d(data[f"{name}_mask"][place])
            if number < 0:  # An invented row.
                assert (got == (fill if fill == -9 else 0)).all()
                assert not mask.any()
                continue
            values = [1000 * (number + 1) + first + n for n in range(lengths[number] + rows)]
            shown, known = closed_form(values, t, views[name].offsets, fill, name == "post")
            assert (got.tolist(), mask.tolist()) == (shown, known)
