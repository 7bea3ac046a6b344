"""Views of episodes and fragments: `views.apply` and `views.acting` (views V1 to V15)."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.views import acting, apply


def episode(steps: int = 5, *, terminated: bool = True, **extras: Any) -> hr.Episode:
    """Episode E: observations 10, 11, ...; actions 100, 101, ...; rewards 1, 2, ..."""
    ends = np.arange(steps) == steps - 1
    return hr.Episode(
        np.arange(10, 11 + steps),
        np.arange(100, 100 + steps),
        np.arange(1, 1 + steps, dtype=np.float32),
        ends & terminated,
        np.zeros(steps, bool),
        extras=extras,
    )


# ---- worked examples -------------------------------------------------------------------------------------------------


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
        (hr.View("observation", every=3), [10, 13]),
        (hr.View("observation", shift=[-1]), [[0], [10], [11], [12], [13]]),
        (hr.View("observation", shift=[0, -1]), [[10, 0], [11, 10], [12, 11], [13, 12], [14, 13]]),
        (hr.View("action", shift=1, fill="edge"), [101, 102, 103, 104, 104]),
        (hr.View("action", shift=1, fill=-7), [101, 102, 103, 104, -7]),
        (hr.View("t"), [0, 1, 2, 3, 4]),
        (hr.View("t", shift=1), [1, 2, 3, 4, 5]),
        (hr.View("terminated", shift="-1:0"), [[False, False]] * 4 + [[False, True]]),
    ],
)
@pytest.mark.parametrize("name", ["any name", "prev_reward", "observation"])
def test_worked_examples(view: hr.View, presented: list[Any], name: str):
    """V5, V6, V7, V9: episode E, under any name."""
    out = apply({name: view}, episode())
    assert list(out) == [name]
    assert out[name].tolist() == presented


@pytest.mark.parametrize(
    ("view", "fragments", "masks"),
    [
        (hr.View("observation", shift=-1, fill="edge"), [[10, 10, 11], [12, 13, 14]], None),
        (
            hr.View("observation", shift=2, mask=True),
            [[12, 13, 0], [15, 16, 0]],
            [[True, True, False], [True, True, False]],
        ),
        (hr.View("action", shift=1, mask=True), [[101, 102, 0], [104, 105, 0]], [[True, True, False]] * 2),
        (hr.View("observation", every=2), [[10, 12], [13, 15]], None),
    ],
)
def test_fragments_as_they_stood_when_cut(view: hr.View, fragments: list[Any], masks: list[Any] | None):
    """V9, V12, V13: look-back sees the real history; look-ahead knows one observation more."""
    whole = episode(6)
    for number, cut in enumerate([whole.fragment(0, 3), whole.fragment(3, 6)]):
        out = apply({"x": view}, cut)
        assert out["x"].tolist() == fragments[number]
        if masks is not None:
            assert out["x_mask"].tolist() == masks[number]


def test_a_fragment_without_rows():
    """V12: the right trailing shape and dtype."""
    whole = hr.Episode(
        {"camera": np.zeros((3, 2, 2), np.uint8)}, [0, 0], [0.0, 0.0], [False, False], [False, True]
    )
    views = {
        "stack": hr.View("observation", shift="-2:0", mask=True),
        "reward": hr.View(),
        "kept": hr.View("action", every=3),
        **{f"n_{name}": view for name, view in hr.views.transition(2).items() if name == "reward"},
    }
    for at in (0, 1, 2):
        out = apply(views, whole.fragment(at, at))
        assert (out["stack"]["camera"].shape, out["stack"]["camera"].dtype) == ((0, 3, 2, 2), np.uint8)
        assert out["stack_mask"].shape == (0, 3)
        assert (out["reward"].shape, out["reward"].dtype) == ((0,), np.float64)
        assert out["kept"].shape == out["n_reward"].shape == (0,)


@pytest.mark.parametrize(("terminated", "discount"), [(True, 0), (False, 1)])
def test_transition_of_an_episode_and_of_a_cut(terminated: bool, discount: int):
    """V18: rewards 1 1 1 1 1, gamma 0.5, n_step 3."""
    ends = [False] * 4 + [True]
    none = [False] * 5
    whole = hr.Episode(
        np.arange(10, 16),
        np.arange(5),
        np.ones(5),
        ends if terminated else none,
        none if terminated else ends,
    )
    views = hr.views.transition(3, 0.5, frame_stack=2)
    out = apply(views, whole)
    assert out["reward"].tolist() == [1.75, 1.75, 1.75, 1.5, 1]
    assert out["discount"].tolist() == [0.125, 0.125, 0.125 * discount, 0.25 * discount, 0.5 * discount]
    assert out["n"].tolist() == [3, 3, 3, 2, 1]
    assert out["observation"].tolist() == [[10, 10], [10, 11], [11, 12], [12, 13], [13, 14]]
    assert out["next_observation"].tolist() == [[12, 13], [13, 14], [14, 15], [14, 15], [14, 15]]
    assert out["terminated"].tolist() == [False, False, terminated, terminated, terminated]
    assert out["truncated"].tolist() == [False, False, *[not terminated] * 3]
    cut = apply(views, whole.fragment(1, 4))
    assert cut["reward"].tolist() == [1.75, 1.5, 1]
    assert cut["discount"].tolist() == [0.125, 0.25, 0.5]
    assert cut["n"].tolist() == [3, 2, 1]
    assert cut["next_observation"].tolist() == [[13, 14]] * 3
    assert not cut["terminated"].any()


def test_masks_of_transitions_are_true_where_something_was_summed():
    """V7, V18."""
    views = {name: view.replace(mask=True) for name, view in hr.views.transition(2).items()}
    out = apply(views, episode(3))
    for name in views:
        assert out[f"{name}_mask"].all(), name


def test_recurrent_chunks_of_an_episode():
    """The views of `recurrent` apply to an episode as a whole: chunks of 2 rows after 1 row of burn-in."""
    whole = episode(3, state_in=np.arange(50, 53))
    views = hr.views.recurrent(2, burn_in=1, state="state_in", columns=["observation", "action"])
    out = apply(views, whole)
    assert out["observation"].tolist() == [[0, 10, 11], [11, 12, 13]]
    assert out["action"].tolist() == [[0, 100, 101], [101, 102, 0]]
    assert out["action_mask"].tolist() == [[False, True, True], [True, True, False]]
    assert out["state_in"].tolist() == [50, 51]


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_unknown_columns_are_named():
    """V10."""
    known = "observation, action, reward, terminated, truncated, t, logits"
    for view in (hr.View("nothing"), hr.View("episode_id"), hr.View("nothing/below")):
        with pytest.raises(SpecError, match=rf"view 'v': no column '{view.data_col}'; there are {known}"):
            apply({"v": view}, episode(logits=np.zeros(5)))
    with pytest.raises(SpecError, match="view 'v': no column 'observation/camera'"):
        apply({"v": hr.View("observation/camera")}, episode())


def test_an_extra_under_the_name_of_a_column_is_refused():
    with pytest.raises(SpecError, match="extras: .*reward"):
        apply({"x": hr.View("action")}, episode(reward=np.zeros(5)))


def test_columns_that_no_view_names_may_be_anything():
    whole = episode(5, name=np.array(["a"] * 5))
    assert apply({"action": hr.View()}, whole)["action"].shape == (5,)
    with pytest.raises(SpecError, match="name"):
        apply({"name": hr.View()}, whole)


def test_a_space_must_agree_in_shape():
    """V10: the data's dtype wins."""
    out = apply({"o": hr.View("observation", ArraySpec((), np.float32))}, episode())
    assert out["o"].dtype == np.int64
    with pytest.raises(SpecError, match="view 'o': space"):
        apply({"o": hr.View("observation", spaces.Box(-1, 1, (2,)))}, episode())


@pytest.mark.parametrize("fill", [2.5, float("nan"), [1, 2], {"a": 1}])
def test_fills_that_the_column_cannot_hold(fill: Any):
    """V6."""
    with pytest.raises(SpecError, match="view 'v': fill"):
        apply({"v": hr.View("action", shift=-1, fill=fill)}, episode())


@pytest.mark.parametrize("present", [apply, acting])
@pytest.mark.parametrize(
    "view", [hr.View("action"), hr.View("observation", shift=[0, 1]), hr.View("reward", shift=0)]
)
def test_a_view_for_acting_must_be_causal(view: hr.View, present: Any):
    """V8: ValueError naming the view."""
    with pytest.raises(ValueError, match="view 'ahead': used_for_compute_actions=True"):
        present({"ahead": view.replace(used_for_compute_actions=True)}, episode())


def test_fills_of_trees_are_named_by_their_leaf():
    """V6."""
    observations = {"camera": np.zeros((3, 2), np.uint8), "pos": (np.zeros(3), np.zeros(3, bool))}
    flags = np.zeros(2, bool)
    episode = hr.Episode(observations, [0, 1], [0.0, 1.0], flags, flags)
    view = hr.View("observation", shift=-1, fill={"camera": -1, "pos": (0, True)})
    with pytest.raises(SpecError, match=r"^view 'last': fill: camera: uint8 cannot hold -1$"):
        apply({"last": view}, episode)
    fit = {"last": hr.View("observation", shift=-1, fill={"camera": np.full(2, 7), "pos": (0.5, True)})}
    for _ in range(2):
        assert apply(fit, episode)["last"]["camera"].tolist() == [[7, 7], [0, 0]]


def test_episodes_of_other_types_are_named():
    with pytest.raises(TypeError, match="episodes: expected an hr.Episode, .* got int"):
        acting({"last": hr.View("action", shift=-1)}, 3)  # type: ignore[arg-type]


def test_what_is_no_view():
    with pytest.raises(TypeError, match="'x': expected a View, got 3"):
        apply({"x": 3}, episode())
    with pytest.raises(TypeError, match="expected a dict of View, got list"):
        acting([hr.View()], episode())
    for present in (apply, acting):
        with pytest.raises(TypeError, match=r"expected an hr\.Episode or a fragment of one, got (int|dict)"):
            present({"x": hr.View("t")}, {"t": 3} if present is apply else [3])
    with pytest.raises(ValueError, match="no view named 'x_mask'"):
        apply({"x": hr.View("t", mask=True), "x_mask": hr.View("t")}, episode())
    with pytest.raises(ValueError, match="at least one episode"):
        acting({"x": hr.View("t")}, [])


def test_goals_are_drawn_only_when_a_replay_is_sampled():
    views = hr.views.hindsight(
        {"observation": hr.View(), "reward": hr.View()}, goal="goal", achieved="observation", reward=max
    )
    whole = episode(goal=np.zeros(5))
    for present in (apply, acting):
        with pytest.raises(
            ValueError, match="view 'observation': hindsight draws goals when a replay is sampled"
        ):
            present(views, whole)


# ---- results are the caller's own ------------------------------------------------------------------------------------


def test_results_are_copies():
    """V11."""
    whole = hr.Episode(
        {"a": np.arange(6.0), "b": (np.zeros((6, 2)),)}, np.arange(5), np.ones(5), [False] * 5, [False] * 5
    )
    before = hr.Episode(
        {"a": np.arange(6.0), "b": (np.zeros((6, 2)),)}, np.arange(5), np.ones(5), [False] * 5, [False] * 5
    )
    views = {
        "all": hr.View("observation"),
        "window": hr.View("observation", shift="-1:1"),
        "again": hr.View("observation/a"),
        "action": hr.View(),
        **{f"n_{name}": view for name, view in hr.views.transition().items() if "obs" not in name},
        "reward": hr.View(mask=True),
    }
    out = apply(views, whole)
    arrays = [
        out["all"]["a"],
        out["all"]["b"][0],
        out["window"]["a"],
        out["again"],
        out["action"],
        out["reward"],
    ]
    for number, array in enumerate([*arrays, out["reward_mask"], out["n_reward"], out["n_terminated"]]):
        array[...] = number + 1
    assert whole == before
    assert apply(views, whole)["again"].tolist() == [0, 1, 2, 3, 4]
    assert out["again"].tolist() == [4] * 5


def test_arrays_that_do_not_lie_side_by_side():
    steps = np.arange(24).reshape(6, 4)
    whole = hr.Episode(steps[:, ::2], steps[:5, 1], np.ones(5), [False] * 5, [False] * 5)
    out = apply({"o": hr.View("observation", shift=-1), "a": hr.View("action")}, whole)
    assert out["o"].tolist() == [[0, 0], [0, 2], [4, 6], [8, 10], [12, 14]]
    assert out["a"].tolist() == [1, 5, 9, 13, 17]


# ---- acting ----------------------------------------------------------------------------------------------------------


def test_acting_presents_the_newest_row():
    """V14: one row for each episode, of causal views only."""
    views = {
        "stack": hr.View("observation", shift="-2:0", fill="edge", mask=True),
        "last_action": hr.View("action", shift=-1, used_for_training=False),
        "chunks": hr.View("observation", every=3),
        "next_action": hr.View("action", shift=1),
        "off": hr.View("observation", used_for_compute_actions=False),
        **hr.views.transition(2),
    }
    out = acting(views, episode(2))
    assert {name: array.tolist() for name, array in out.items()} == {
        "stack": [[10, 11, 12]],
        "stack_mask": [[True, True, True]],
        "last_action": [101],
        "chunks": [12],
        "observation": [12],
    }
    whole = episode(9)
    out = acting(views, [whole.fragment(0, 0), whole.fragment(0, 1), whole, whole.fragment(2, 6)])
    assert out["stack"].tolist() == [[10, 10, 10], [10, 10, 11], [17, 18, 19], [14, 15, 16]]
    assert out["stack_mask"].tolist() == [[False, False, True], [False, True, True], [True] * 3, [True] * 3]
    assert out["last_action"].tolist() == [0, 100, 108, 105]
    assert out["chunks"].tolist() == out["observation"].tolist() == [10, 11, 19, 16]


def test_at_first_shape_and_dtype_come_from_the_column_or_the_space():
    """V15."""
    logits = hr.View("logits", spaces.Box(-1, 1, (2,), np.float16), shift="-1:-1", fill=7, mask=True)
    tree = hr.View(
        "policy", spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(3)])), shift=-1
    )
    views = {"logits": logits, "policy": tree, "reward": hr.View(shift=-1)}
    out = acting(views, episode().fragment(0, 0))
    assert (out["logits"].dtype, out["logits"].tolist()) == (np.float16, [[[7, 7]]])
    assert out["logits_mask"].tolist() == [[False]]
    assert (out["policy"]["a"].tolist(), out["policy"]["b"][0].tolist()) == ([0], [[0, 0, 0]])
    assert (out["reward"].dtype, out["reward"].tolist()) == (np.float32, [0])
    with pytest.raises(SpecError, match="view 'logits': no column"):
        acting({"logits": logits.replace(space=None)}, episode().fragment(0, 0))
    with pytest.raises(SpecError, match="view 'logits': no column"):
        acting({"logits": logits}, episode())
    # Another episode has the column.
    both = [episode().fragment(0, 0), episode(logits=np.ones((5, 2), np.float32))]
    out = acting({"logits": logits}, both)
    assert (out["logits"].dtype, out["logits"].tolist()) == (np.float32, [[[7, 7]], [[1, 1]]])


def test_episodes_with_other_columns_are_refused():
    other = hr.Episode(np.zeros((2, 3)), [0], [0.0], [False], [False])
    with pytest.raises(SpecError, match="episodes: expected the same columns in all"):
        acting({"observation": hr.View()}, [episode(), other])


# ---- against the closed form -----------------------------------------------------------------------------------------


def closed_form(
    values: np.ndarray, known: int, rows: range, view: hr.View, post: bool
) -> tuple[list[Any], list[Any]]:
    """V6, V7 and V9, word for word; `known` values of the column are known."""
    shown, masks = [], []
    for t in rows[:: view.every]:
        now = t - 1 if post else t
        window, mask = [], []
        for offset in view.offsets:
            index = t + offset
            mask.append(0 <= index < known)
            zero = np.zeros_like(values[0])
            if 0 <= index < known:
                window.append(values[index])
            elif isinstance(view.fill, str) and view.fill == "edge":
                if index < 0:
                    may_show = known > 0 and max(now, t + max(view.offsets)) >= 0
                    window.append(values[0] if may_show else zero)
                else:
                    window.append(values[known - 1] if known else zero)
            else:
                window.append(zero if isinstance(view.fill, str) else zero + view.fill)
        shown.append(window if view.has_window else window[0])
        masks.append(mask if view.has_window else mask[0])
    return shown, masks


COLUMNS = {
    "observation/a": (False, lambda e: e.observations["a"]),
    "observation/b/0": (False, lambda e: e.observations["b"][0]),
    "action": (True, lambda e: e.actions),
    "reward": (True, lambda e: e.rewards),
    "terminated": (True, lambda e: e.terminations),
    "t": (False, lambda e: np.arange(len(e) + 1)),
    "state_in_0": (False, lambda e: e.extras["state_in_0"]),
    "logits": (True, lambda e: e.extras["logits"]),
}


@st.composite
def episodes(draw: st.DrawFn) -> hr.Episode:
    steps = draw(st.integers(1, 8))
    ends = np.arange(steps) == steps - 1
    number = draw(st.integers(1, 100))
    return hr.Episode(
        {
            "a": np.arange(number, number + steps + 1, dtype=np.uint8),
            "b": (np.arange(2.0 * (steps + 1)).reshape(-1, 2),),
        },
        np.arange(steps, dtype=np.int8) + 1,
        np.arange(steps, dtype=np.float32) + 0.5,
        ends & draw(st.booleans()),
        ends & draw(st.booleans()),
        extras={"state_in_0": np.arange(7, 8 + steps), "logits": np.ones((steps, 3), np.float64) * number},
    )


shifts = st.one_of(
    st.integers(-9, 9),
    st.lists(st.integers(-9, 9), min_size=1, max_size=4),
    st.tuples(st.integers(-9, 0), st.integers(0, 9), st.integers(1, 4)).map(
        lambda each: f"{each[0]}:{each[1]}:{each[2]}"
    ),
)
views_of_columns = st.builds(
    hr.View,
    st.sampled_from(sorted(COLUMNS)),
    shift=shifts,
    every=st.integers(1, 3),
    fill=st.sampled_from(["zeros", "edge", 1]),
    mask=st.booleans(),
)


def check(out: dict[str, Any], name: str, view: hr.View, whole: hr.Episode, stop: int, rows: range) -> None:
    post, values_of = COLUMNS[view.data_col]
    values = values_of(whole)
    shown, masks = closed_form(values, stop if post else stop + 1, rows, view, post)
    assert out[name].dtype == values.dtype
    window = (len(view.offsets),) if view.has_window else ()
    assert out[name].shape == (len(shown), *window, *values.shape[1:])
    assert out[name].tolist() == np.array(shown).tolist()
    assert (f"{name}_mask" in out) == view.mask
    if view.mask:
        assert out[f"{name}_mask"].tolist() == masks


@settings(max_examples=fewer(150))
@given(episodes(), st.lists(views_of_columns, min_size=1, max_size=5), st.data())
def test_apply_equals_the_closed_form(whole: hr.Episode, given_views: list[hr.View], data: st.DataObject):
    """V5 to V13 for random episodes, fragments and views."""
    views = {f"view {number}": view for number, view in enumerate(given_views)}
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    out = apply(views, whole)
    cut = apply(views, whole.fragment(start, stop))
    for name, view in views.items():
        check(out, name, view, whole, len(whole), range(len(whole)))
        check(cut, name, view, whole, stop, range(start, stop))


@settings(max_examples=fewer(100))
@given(episodes(), st.lists(views_of_columns, min_size=1, max_size=5))
def test_act_is_train(whole: hr.Episode, given_views: list[hr.View]):
    """V14: the row presented at step t while acting is row t as presented for training."""
    views = {f"view {number}": view.replace(every=1) for number, view in enumerate(given_views)}
    train = apply(views, whole)
    cuts = [whole.fragment(0, t) for t in range(len(whole))]
    together = acting(views, cuts)
    for t, cut in enumerate(cuts):
        now = acting(views, cut)
        assert now.keys() == together.keys()
        for name, values in now.items():
            assert values.dtype == train[name].dtype
            assert values.tolist() == train[name][t : t + 1].tolist() == together[name][t : t + 1].tolist()
    shown = {name for name in together if not name.endswith("_mask")}
    for name, view in views.items():
        post = COLUMNS[view.data_col][0]
        assert (name in shown) == (max(view.offsets) <= (-1 if post else 0))


@settings(max_examples=fewer(100))
@given(episodes(), st.lists(views_of_columns, min_size=1, max_size=4), st.data())
def test_fragments_one_after_another_are_the_episode(
    whole: hr.Episode, given_views: list[hr.View], data: st.DataObject
):
    """V13: row by row, where the look-ahead is known."""
    views = {f"v{number}": view.replace(every=1, mask=True) for number, view in enumerate(given_views)}
    steps = len(whole)
    cuts = sorted({0, steps, *data.draw(st.lists(st.integers(0, steps), max_size=3))})
    parts = [apply(views, whole.fragment(start, stop)) for start, stop in pairwise(cuts)]
    train = apply(views, whole)
    stops = np.repeat(cuts[1:], np.diff(cuts))
    for name, view in views.items():
        known = stops + (0 if COLUMNS[view.data_col][0] else 1)
        same = (np.arange(steps) + max(view.offsets) < known) | (stops == steps)
        for part in (name, f"{name}_mask"):
            joined = np.concatenate([each[part] for each in parts])
            assert joined[same].tolist() == train[part][same].tolist()
        mask = np.concatenate([each[f"{name}_mask"] for each in parts])
        assert not (mask & ~train[f"{name}_mask"]).any()


@settings(max_examples=fewer(60))
@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=8),
    st.booleans(),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    st.integers(1, 3),
    st.sampled_from([np.float32, np.float64, np.int64]),
    st.lists(st.one_of(st.integers(-3, 3), st.lists(st.integers(-3, 3), min_size=1, max_size=3)), max_size=2),
    st.sampled_from(["zeros", "edge", 3]),
)
def test_apply_equals_sampling(
    rewards: list[int],
    terminated: bool,
    n_step: int,
    gamma: float,
    stack: int,
    dtype: Any,
    other_shifts: list[Any],
    fill: Any,
):
    """V16: the same numbers from stored rows, n-step transitions and shifted columns alike."""
    steps = len(rewards)
    ends = np.arange(steps) == steps - 1
    whole = hr.Episode(
        np.arange(10, 11 + steps),
        np.arange(steps),
        np.array(rewards, dtype),
        ends & terminated,
        ends & ~terminated,
    )
    views = hr.views.transition(n_step, gamma, frame_stack=stack)
    for number, shift in enumerate(other_shifts):
        views[f"pre {number}"] = hr.View("observation", shift=shift, fill=fill, mask=True)
        views[f"post {number}"] = hr.View("reward", shift=shift, fill=fill, mask=True)
    step = {"observation": 0, "action": 0, "reward": dtype(0), "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 100)]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for t in range(steps):
                last = t == steps - 1
                writer.append(
                    {
                        "observation": 10 + t,
                        "action": t,
                        "reward": dtype(rewards[t]),
                        "terminated": last and terminated,
                        "truncated": last and not terminated,
                    }
                )
            writer.end_episode({"observation": 10 + steps})
        sampled = replay.sample("t", steps, views=views, timeout=0).data
    out = apply(views, whole)
    assert list(out) == list(sampled)
    for name, values in sampled.items():
        assert out[name].dtype == values.dtype, name
        assert out[name].tolist() == values.tolist(), name
