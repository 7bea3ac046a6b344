"""Explanations of batches: the stored rows from which an element was made."""

import gc
import pickle
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import Closed, ItemNotFound

EXAMPLE = {
    "observation": {"camera": np.zeros(2, np.uint8), "arm": 0},
    "action": 0,
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}


def table(**more: Any) -> hr.Table:
    """Each batch has as many different items as it can."""
    sampler = hr.selectors.Uniform(replacement=False)
    return hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=1000, **more)


def filled(rule: hr.ItemRule, lanes: int = 1, episodes: int = 2, **more: Any) -> hr.Replay:
    """Episodes of five steps in each lane; the arm's number is 100 * lane + 10 * episode + t."""
    replay = hr.Replay(hr.Signature.like(EXAMPLE), [table(**more)], seed=0)
    number = 100 * np.arange(lanes)
    with replay.writer(lanes=lanes, items=[rule]) as writer:
        for episode in range(episodes):
            for t in range(5):
                arm = number + 10 * episode + t
                step = {
                    "observation": {"camera": np.zeros((lanes, 2), np.uint8), "arm": arm},
                    "action": arm,
                    "reward": arm.astype(np.float32),
                    "terminated": np.zeros(lanes, bool),
                    "truncated": np.zeros(lanes, bool),
                }
                writer.append(step if lanes > 1 else {name: _first(value) for name, value in step.items()})
            final = {
                "observation": {"camera": np.zeros((lanes, 2), np.uint8), "arm": number + 10 * episode + 5}
            }
            writer.end_episode(final if lanes > 1 else {"observation": _first(final["observation"])})
    return replay


def _first(value: Any) -> Any:
    return {name: each[0] for name, each in value.items()} if isinstance(value, dict) else value[0]


VIEWS = {
    "arm": hr.View("observation/arm"),
    "stack": hr.View("observation", shift="-2:0"),
    "edge": hr.View("observation/arm", shift=[-1, 9], fill="edge"),
    "t": hr.View(),
    **{name: view for name, view in hr.views.transition(2).items() if name != "observation"},
}


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(
    "views", [VIEWS, {name: VIEWS[name] for name in ("arm", "action")}], ids=["all", "fused"]
)
def test_rows_of_views(lanes: int, views: dict[str, hr.View]):
    """What is read again from the rows of an explanation is what the batch shows."""
    with filled(hr.ItemRule("t", 1), lanes) as replay:
        # Ended episodes stay where they are, so that the arm's numbers tell rows apart.
        batch = replay.sample("t", 10 * lanes, views={**views, "episode_id": hr.View(), "t": hr.View()})
        for i in range(10 * lanes):
            arm = int(batch["arm"][i])
            found = batch.explain(i)
            assert found.lane == arm // 100
            assert (found.t.tolist(), found.episode_id.tolist()) == ([arm % 10], [batch["episode_id"][i]])
            assert found.key == batch.info.keys[i]
            assert found.views.keys() == batch.data.keys()
            assert (found.views["arm"].columns, found.views["arm"].t.tolist()) == (
                ("observation/arm",),
                arm % 10,
            )
            assert found.views["action"].t == arm % 10
            if "stack" not in views:
                continue
            t = arm % 10
            assert sorted(found.views["stack"].columns) == ["observation/arm", "observation/camera"]
            assert found.views["stack"].t.tolist() == [
                each if each >= 0 else -1 for each in (t - 2, t - 1, t)
            ]
            assert ((found.views["stack"].rows < 0) == (found.views["stack"].t < 0)).all()
            assert found.views["edge"].t.tolist() == [max(0, t - 1), 5]
            assert found.views["reward"].t.tolist() == [t, t + 1 if t < 4 else -1]
            assert found.views["next_observation"].t == min(5, t + 2)
            assert found.views["terminated"].t == min(4, t + 1)
            assert found.views["t"].columns == ("t",)
            assert str(found).startswith(
                f"item {found.key}, lane {found.lane}, episode {found.episode_id[0]}, t {t}\n"
            )
            assert f"\n  arm: observation/arm of t {t}, row {found.views['arm'].rows}" in str(found)


def test_items_of_several_rows():
    views = {"arm": hr.View("observation/arm"), "kept": hr.View("action", shift=[-1, 0], every=2)}
    with filled(hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.PAD)) as replay:
        batch = replay.sample("t", 4, views=views)
        found = batch.explain(batch["arm"][:, 0].tolist().index(4))
        assert found.t.tolist() == [4, 5]
        assert found.views["arm"].t.tolist() == [4, 5, -1, -1]
        assert found.views["kept"].t.tolist() == [[3, 4], [-1, -1]]
        whole = replay.sample("t", 4).explain(0)
        assert whole.views["observation/arm"].t.tolist() in ([0, 1, 2, 3], [4, 5, -1, -1])


def test_what_cannot_be_explained():
    replay = filled(hr.ItemRule("t", 1))
    batch = replay.sample("t", 2)
    with pytest.raises(IndexError):
        batch.explain(2)
    copy = pickle.loads(pickle.dumps(batch))
    assert copy["action"].tolist() == batch["action"].tolist()
    with pytest.raises(hr.Unsupported, match="a batch drawn from a replay of this process"):
        copy.explain(0)
    replay.delete("t", batch.info.keys[:1])
    with pytest.raises(ItemNotFound, match="has left table 't'"):
        batch.explain(0)
    replay.close()
    with pytest.raises(Closed):
        batch.explain(1)
    del replay
    gc.collect()
    with pytest.raises(Closed):
        batch.explain(1)


def test_goals_are_explained_as_they_are_stored():
    """Nothing is drawn: the batches that follow are the same."""

    def views() -> dict[str, hr.View]:
        return hr.views.hindsight(
            {"goal": hr.View("observation/arm"), "action": hr.View()},
            goal="observation/arm", achieved="observation/arm", reward=lambda a, g, i: a * 0.0,
        )  # fmt: skip

    with filled(hr.ItemRule("t", 1)) as one, filled(hr.ItemRule("t", 1)) as other:
        assert one.sample("t", 5, views=views()).explain(3).views["goal"].t == 3
        other.sample("t", 5, views=views())
        goals = [replay.sample("t", 9, views=views())["goal"].tolist() for replay in (one, other)]
    assert goals[0] == goals[1]


def test_batches_of_collectors():
    numbers = np.arange(6).reshape(2, 3)
    batch = hr.Batch(
        {"observation": numbers, "next_observation": numbers, "t": numbers % 3, "episode_id": 7 + numbers // 3,
         "mask": np.ones((2, 3), bool)}
    )  # fmt: skip
    for found in (batch.explain((1, 2)), batch.explain(5), batch.explain(-1)):
        assert (found.lane, found.episode_id, found.t) == (1, 8, 2)
        shown = found.views["next_observation"]
        assert (shown.columns, shown.t, shown.rows) == (("observation",), 3, 5)
    assert batch.flatten().explain(5).lane == -1
    for wrong in (6, (2, 0), -7):
        with pytest.raises(IndexError):
            batch.explain(wrong)
