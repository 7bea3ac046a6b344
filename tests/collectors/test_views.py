"""Views while acting, and as columns of batches (CB9; views-rollouts P1 to P3, V8, V14, V15)."""

import sys

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]
KINDS = ["single", "disabled", "same_step", "next_step"]
FLOAT = hr.ArraySpec((), "float32")
CAUSAL = {
    "stack": hr.View("observation", shift="-3:0", fill="edge", mask=True),
    "sparse": hr.View("observation", shift=[0, -4, -2], fill=-5),
    "last_action": hr.View("action", shift=-1, fill=9),
    "last_reward": hr.View("reward", shift=-1, fill="edge", mask=True),
    "rewards": hr.View("reward", shift="-3:-1", fill="edge"),
    "ended": hr.View("truncated", shift=-1),
    "step": hr.View("t", mask=True),
    "now": hr.View("policy_version", mask=True),
    "last_step": hr.View("t", shift=-1, fill=-1, mask=True),
    "version": hr.View("policy_version", shift=[-1]),
    "log_prob_before": hr.View("log_prob", shift="-2:-1", space=FLOAT, fill=0.5, mask=True),
    "states": hr.View("state_out_0", shift="-2:-1", fill=[100.0], mask=True),
    "states_in": hr.View("state_in_0", shift="-1:0", fill="edge", mask=True),
}
AHEAD = {
    "next": hr.View("observation", shift=1, mask=True),
    "rest": hr.View("reward", shift="0:2", fill=-1, mask=True),
}
NAMES = {name for name, view in CAUSAL.items()} | {f"{n}_mask" for n, view in CAUSAL.items() if view.mask}


class Recording:
    """Returns what its views show as columns `seen_...`, so that each row holds what was seen when it was acted on."""

    initial_state = [np.array([7.0], np.float32)]  # noqa: RUF012

    def __init__(self, views):
        self.views = views

    def compute_actions(self, input_dict):
        views = {
            name: value for name, value in input_dict.items() if name not in ("observation", "state_in_0")
        }
        step = input_dict["observation"][:, 2]
        extras = {"log_prob": (step / 8).astype(np.float32)}
        extras |= {f"seen_{name}": value.copy() for name, value in views.items()}
        for value in views.values():
            value[...] = 1  # The inputs are its own.
        return (step + input_dict["observation"][:, 1]) % 4, [input_dict["state_in_0"] + 1], extras


def environments(kind, lengths=(3, 5)):
    """`create_env_fn` and its options."""
    if kind == "single":
        return in_turn(counter_env_fns(list(lengths))), {"num_envs": len(lengths)}
    return lambda: counter_vector_env(list(lengths), kind), {}


def check_seen(data, mask=slice(None), names=NAMES):
    """Views have the same values, dtypes, shapes and masks in training as they had while acting."""
    assert {name[5:] for name in data if name.startswith("seen_")} == names
    for name in names:
        assert data[name].dtype == data[f"seen_{name}"].dtype, name
        np.testing.assert_array_equal(data[f"seen_{name}"][mask], data[name][mask], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_batches_show_what_the_policy_saw(collector_type, kind, take):
    create, options = environments(kind)
    with collector_type(create, Recording(CAUSAL), frames_per_batch=8, views=AHEAD, **options) as collector:
        batches = take(collector, 6)
    for batch in batches:
        check_seen(batch, batch["mask"])
        for name in NAMES:
            assert not batch[name][~batch["mask"]].any()  # CB6.
        # CB9: ahead up to the end of the batch. The next observation is known there.
        np.testing.assert_array_equal(batch["next"], batch["next_observation"])
        np.testing.assert_array_equal(batch["next_mask"], batch["mask"])
        assert not batch["rest_mask"][:, -1, 1:].any()
    step = np.concatenate([batch["t"][batch["mask"]] for batch in batches])
    last = np.concatenate([batch["last_step"][batch["mask"]] for batch in batches])
    np.testing.assert_array_equal(last, step - 1)
    assert step.max() == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_replay_presents_what_the_policy_saw(collector_type, kind, make_replay):
    create, options = environments(kind)
    signature = hr.collectors.signature(environments(kind)[0], Recording(CAUSAL))
    replay = make_replay(signature)
    with collector_type(
        create, Recording(CAUSAL), frames_per_batch=10, total_frames=60, replay_buffer=replay, **options
    ) as collector:
        for batch in collector:
            check_seen(batch, batch["mask"])
    seen = {f"seen_{name}": hr.View() for name in NAMES}
    check_seen(replay.sample("t", 300, views={**CAUSAL, **seen}, timeout=5).data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_is_the_end_of_a_trajectory(kind, take):
    create, options = environments(kind)
    with hr.Collector(
        create, Recording(CAUSAL), frames_per_batch=6, max_frames_per_traj=2, **options
    ) as collector:
        batches = take(collector, 3)
        collector.set_seed(3)
        batches += take(collector, 2)
    for batch in batches:
        check_seen(batch, batch["mask"])
        assert not batch["ended"].any()
    assert max(batch["last_step"].max() for batch in batches) == 0


def test_failures_begin_anew(take):
    # CX1.
    class Failing(Recording):
        calls = 0

        def compute_actions(self, input_dict):
            self.calls += 1
            if self.calls == 9:
                raise KeyError("ninth")
            return super().compute_actions(input_dict)

    with hr.Collector(lambda: CounterEnv(50), Failing(CAUSAL), frames_per_batch=6) as collector:
        batches = take(collector, 1)
        with pytest.raises(KeyError, match="ninth"):
            collector.next()
        batches += take(collector, 2)
    for batch in batches:
        check_seen(batch, batch["mask"])
    assert batches[1]["last_step"][0, 0] == -1


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_random_steps_are_history(collector_type, take, make_replay):
    # CR4: the policy begins in the middle of an episode; its own columns are zeros before.
    create, options = environments("single", (50, 4))
    replay = make_replay(hr.collectors.signature(environments("single")[0], Recording(CAUSAL)))
    with collector_type(
        create, Recording(CAUSAL), frames_per_batch=10, init_random_frames=10, replay_buffer=replay,
        total_frames=30, **options,
    ) as collector:  # fmt: skip
        _, second, third = collector
    check_seen(second)
    check_seen(third)
    assert second["last_step"][0, 0] == 4
    assert second["version"][0, 0] == -1
    assert second["states_mask"][0, 0].all()
    assert not second["states"][0, 0].any()


def test_batches_of_random_steps_lack_views_of_what_a_policy_adds(take):
    with hr.Collector(
        lambda: CounterEnv(50), Recording(CAUSAL), frames_per_batch=4, init_random_frames=4
    ) as collector:
        first, second = take(collector, 2)
    assert "stack" in first
    assert not {"states", "states_mask", "log_prob_before"} & set(first)
    check_seen(second)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_new_weights_change_nothing_of_the_history(collector_type, take):
    class Learning(Recording):
        weight = np.array(0)

        def state_dict(self):
            return {"weight": self.weight}

        def load_state_dict(self, weights):
            self.weight = weights["weight"]

    create, options = environments("single")
    with collector_type(
        create, Learning(CAUSAL), frames_per_batch=6, track_policy_version=True, **options
    ) as collector:
        batches = []
        for _ in range(5):
            batches += take(collector, 1)
            collector.update_policy_weights_(weights={"weight": np.array(len(batches))})
    for batch in batches:
        check_seen(batch, batch["mask"])
    assert collector.policy_version == 5


SHIFTS = st.one_of(
    st.integers(-4, 0),
    st.lists(st.integers(-4, 0), min_size=1, max_size=4),
    st.sampled_from(["-5:0:2", "-3:-1", "-2:0"]),
)


@st.composite
def causal_views(draw):
    found = {}
    for number in range(draw(st.integers(1, 3))):
        column = draw(
            st.sampled_from(["observation", "action", "reward", "t", "state_in_0", "state_out_0", "log_prob"])
        )
        view = hr.View(
            column,
            shift=draw(SHIFTS),
            fill=draw(st.sampled_from(["zeros", "edge", 3])),
            mask=draw(st.booleans()),
            space=FLOAT if column == "log_prob" else None,
        )
        if max(view.offsets) <= (0 if column in ("observation", "t", "state_in_0") else -1):
            found[f"view{number}"] = view
    return found


@settings(max_examples=25)
@given(
    views=causal_views(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    steps=st.integers(1, 7),
    limit=st.sampled_from([0, 0, 2]),
)
def test_acting_equals_training(views, lengths, kind, steps, limit):
    create, options = environments(kind, lengths)
    signature = hr.collectors.signature(environments(kind, lengths)[0], Recording(views))
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=10_000)
    names = set(views) | {f"{name}_mask" for name, view in views.items() if view.mask}
    episodes = {}
    with (
        hr.Replay(signature, [table], seed=0) as replay,
        hr.Collector(
            create, Recording(views), frames_per_batch=steps * len(lengths), replay_buffer=replay,
            max_frames_per_traj=limit, **options,
        ) as collector,
    ):  # fmt: skip
        for _ in range(4):
            batch = collector.next()
            check_seen(batch, batch["mask"], names)
            rows = batch.flatten()
            for i in range(rows.frames):
                episodes.setdefault(int(rows["episode_id"][i]), []).append({n: rows[n][i] for n in rows})
        shown = {**views, **{f"seen_{name}": hr.View() for name in names}}
        if len(replay.table("t")):
            check_seen(replay.sample("t", 100, views=shown, timeout=5).data, names=names)
    for rows in episodes.values():
        check_episode(views, rows)


def check_episode(views, rows):
    """Views while acting in an episode equal the views that `views.apply` presents of it."""
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    episode = hr.Episode(
        np.concatenate([columns["observation"], columns["next_observation"][-1:]]),
        columns["action"],
        columns["reward"],
        columns["terminated"],
        columns["truncated"],
        extras={name: columns[name] for name in ("log_prob", "state_in_0", "state_out_0")},
    )
    for name, value in hr.views.apply(views, episode).items():
        np.testing.assert_array_equal(columns[f"seen_{name}"], value, err_msg=name)
        assert columns[f"seen_{name}"].dtype == value.dtype


COLUMNS = ["observation", "action", "reward", "terminated", "t", "state_out_0"]


@st.composite
def any_views(draw):
    return {
        f"view{number}": hr.View(
            draw(st.sampled_from(COLUMNS)),
            shift=draw(st.one_of(st.integers(-3, 3), st.lists(st.integers(-3, 3), min_size=1, max_size=3))),
            fill=draw(st.sampled_from(["zeros", "edge", 1])),
            mask=draw(st.booleans()),
            used_for_compute_actions=False,
        )
        for number in range(draw(st.integers(1, 4)))
    }


@settings(max_examples=40)
@given(
    views=any_views(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    steps=st.integers(1, 7),
)
def test_a_batch_shows_fragments_of_episodes(views, lengths, kind, steps):
    # CB9: its rows of an episode are the fragment that was cut at the end of the batch.
    create, options = environments(kind, lengths)
    with hr.Collector(
        create, Recording(views), frames_per_batch=steps * len(lengths), **options
    ) as collector:
        batches = [collector.next() for _ in range(4)]
    rows = [batch.flatten() for batch in batches]
    joined = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
    for number in np.unique(joined["episode_id"]):
        own = {name: column[joined["episode_id"] == number] for name, column in joined.items()}
        episode = hr.Episode(
            np.concatenate([own["observation"], own["next_observation"][-1:]]),
            *(own[name] for name in ("action", "reward", "terminated", "truncated")),
            extras={"state_out_0": own["state_out_0"]},
        )
        np.testing.assert_array_equal(own["t"], np.arange(len(episode)))
        start = 0
        for each in rows:
            stop = start + np.count_nonzero(each["episode_id"] == number)
            for name, value in hr.views.apply(views, episode.fragment(start, stop)).items():
                np.testing.assert_array_equal(own[name][start:stop], value, err_msg=name)
                assert own[name].dtype == value.dtype
            start = stop


def test_explain_tells_the_steps_of_views(take):
    views = {
        "stack": hr.View("observation", shift="-2:0", mask=True),
        "after": hr.View("reward", shift=[1, 2]),
        "next": hr.View("observation", shift=1),
        "n": hr.views.transition()["n"],
    }
    with hr.Collector(lambda: CounterEnv(5), None, frames_per_batch=3, views=views) as collector:
        first, second = take(collector, 2)
    told = str(first.explain((0, 1)))
    assert "stack: observation of t [-1, 0, 1], row [-1, 0, 1]" in told
    assert "stack_mask: observation of t [-1, 0, 1], row [-1, 0, 1]" in told
    assert "after: reward of t [2, -1], row [2, -1]" in told
    assert "  n: " not in told
    assert "next: observation of t 3, row -1" in str(first.explain((0, 2)))
    told = str(second.explain((0, 0)))
    assert "stack: observation of t [1, 2, 3], row [-1, -1, 0]" in told
    assert "after: reward of t [4, -1], row [1, -1]" in told
    assert "stack: observation of t [1, 2, 3], row [-1, -1, 0]" in str(second.flatten().explain(0))


def test_a_callable_sees_a_view_named_observation(take):
    # A stack under the name of the observation; the rows of a batch show it too.
    seen = []

    def policy(observation):
        seen.append(observation[..., 2].tolist())
        return np.zeros(len(observation), int)

    views = {"observation": hr.View(shift="-1:0", fill="edge"), "last": hr.View("action", shift=-1)}
    with hr.Collector(lambda: CounterEnv(3), policy, frames_per_batch=4, views=views) as collector:
        (batch,) = take(collector, 1)
    assert seen == [[[0, 0]], [[0, 1]], [[1, 2]], [[0, 0]]]
    np.testing.assert_array_equal(batch["observation"][0, :, :, 2], [pair[0] for pair in seen])
    np.testing.assert_array_equal(batch["next_observation"][0, :, 2], [1, 2, 3, 1])
    assert batch["last"].shape == (1, 4)


def test_trees_and_paths(take):
    # V5: a tree under the view's name; a path presents one leaf.
    views = {
        "stack": hr.View("observation", shift="-1:0", fill="edge"),
        "count": hr.View("observation/count", shift=-1),
    }

    class Looking:
        def __init__(self):
            self.views, self.seen = views, []

        def compute_actions(self, input_dict):
            self.seen.append(input_dict)
            return np.zeros(2, int)

    policy = Looking()
    create = in_turn([lambda: CounterEnv(3, layout="dict"), lambda: CounterEnv(2, layout="dict")])
    with hr.Collector(create, policy, num_envs=2, frames_per_batch=10) as collector:
        (batch,) = take(collector, 1)
    for leaf in batch["observation"]:
        np.testing.assert_array_equal(
            np.stack([seen["stack"][leaf] for seen in policy.seen], 1), batch["stack"][leaf]
        )
    np.testing.assert_array_equal(np.stack([seen["count"] for seen in policy.seen], 1), batch["count"])


def test_info_columns_are_known_before_acting(take):
    class Masked(CounterEnv):
        def reset(self, **options):
            observation, info = super().reset(**options)
            return observation, {**info, "legal": observation[2] + 10}

        def step(self, action):
            *result, info = super().step(action)
            return *result, {**info, "legal": result[0][2] + 10}

    class Looking:
        views = {"legal": hr.View(shift="-1:0")}  # noqa: RUF012

        def compute_actions(self, input_dict):
            return [0], [], {"seen": input_dict["legal"]}

    with hr.Collector(
        lambda: Masked(3), Looking(), frames_per_batch=5, info_columns={"legal": hr.ArraySpec((), "int64")}
    ) as collector:
        (batch,) = take(collector, 1)
    np.testing.assert_array_equal(batch["seen"], [[[0, 10], [10, 11], [11, 12], [0, 10], [10, 11]]])
    np.testing.assert_array_equal(batch["legal"], batch["seen"])


class Still:
    """Reads views, and adds a column."""

    def __init__(self, views=None):
        self.views = views

    def compute_actions(self, input_dict):
        return [0], [], {"value": [0.5]}


@pytest.mark.parametrize("collector_type", COLLECTORS)
@pytest.mark.parametrize("of_policy", [True, False])
@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ({"x": hr.View("action", used_for_compute_actions=True)}, ValueError, "view 'x': used_for_compute_actions"),
        ({"x": hr.View("value", shift=-1)}, hr.SpecError, "view 'x'.*give the view a space"),
        ({"x": hr.View("nothing", used_for_compute_actions=False)}, hr.SpecError, "view 'x': no column 'nothing'"),
        ({"x": hr.View("value", shift=-1, space=hr.ArraySpec(2, "float32"))}, hr.SpecError, "view 'x': space"),
        ({"x": hr.View("observation", every=2)}, ValueError, "view 'x': every: expected 1"),
        ({"x": hr.View("episode_id")}, ValueError, "view 'x': ids of episodes"),
        ({"t": hr.View("observation")}, ValueError, "view 't': expected a name that no column"),
        ({"x": hr.View("observation", agent="b")}, ValueError, "view 'x': agent='b'"),
        ({"x": "observation"}, TypeError, "views: 'x': expected a View"),
        (["observation"], TypeError, "views: expected a dict"),
    ],
)  # fmt: skip
def test_views_that_cannot_be_shown(collector_type, of_policy, views, error, message):
    # V8, V10, V15: the error names the view.
    policy = Still(views if of_policy else None)
    with pytest.raises(error, match=message):
        with collector_type(
            lambda: CounterEnv(3), policy, frames_per_batch=4, views=None if of_policy else views
        ) as collector:
            collector.next(timeout=40)


def test_views_that_are_not_for_both(take):
    views = {
        "acting": hr.View("action", shift=-1, used_for_training=False),
        "training": hr.View("reward", shift=-1, used_for_compute_actions=False),
        "id": hr.View("episode_id", shift=1, used_for_compute_actions=False, fill=-1),
        "ahead": hr.View("action", shift=1),
    }

    class Checking(Still):
        def compute_actions(self, input_dict):
            assert set(input_dict) == {"observation", "acting"}
            return super().compute_actions(input_dict)

    with hr.Collector(lambda: CounterEnv(3), Checking(), frames_per_batch=5, views=views) as collector:
        (batch,) = take(collector, 1)
    assert "acting" not in batch
    np.testing.assert_array_equal(batch["training"][0, 1:3], batch["reward"][0, :2])
    np.testing.assert_array_equal(batch["id"], batch["episode_id"])
    np.testing.assert_array_equal(batch["ahead"][0, :2], batch["action"][0, 1:3])


def test_transitions_are_columns_of_a_batch(take):
    # V18: cut at the end of the batch.
    views = hr.views.transition(n_step=2, gamma=0.5)
    with hr.Collector(
        lambda: CounterEnv(3), lambda seen: seen[:, 2] * 0, frames_per_batch=4, views=views
    ) as collector:
        (batch,) = take(collector, 1)
    np.testing.assert_array_equal(batch["reward"], [[2, 8, 8, 0]])
    np.testing.assert_array_equal(batch["n"], [[2, 2, 1, 1]])
    np.testing.assert_array_equal(batch["discount"], [[0.25, 0, 0, 0.5]])
