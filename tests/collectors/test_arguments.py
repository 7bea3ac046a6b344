"""Arguments of collectors: errors before anything runs, numbers of batches, ends."""

import inspect
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_vector_env
from headrace.testing.agents import CounterAgents

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = [hr.Collector, hr.AsyncCollector]


def never(*_):
    raise AssertionError("was built before the arguments were checked")


class Locked:
    """Holds what cannot be pickled; stands for an environment's factory, a policy and a policy's factory."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, *_):
        raise AssertionError("nothing is built")


class Model:
    """As models of Stable-Baselines3 are."""

    def predict(self, observation):
        raise AssertionError("no policy")


@pytest.fixture
def no_process(monkeypatch):
    monkeypatch.setattr("headrace.collectors.multi.starting.WorkerProcess", never)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "told", "arguments"),
    [
        # CR1
        (ValueError, "frames_per_batch", {"frames_per_batch": 0}),
        (ValueError, "frames_per_batch", {"frames_per_batch": -3}),
        (ValueError, "frames_per_batch", {"frames_per_batch": 2.0}),
        (ValueError, "frames_per_batch", {"frames_per_batch": True}),
        # CR3: names the two nearest multiples.
        (ValueError, "20 or 30", {"frames_per_batch": 10, "total_frames": 25}),
        (ValueError, "nearest is 10", {"frames_per_batch": 10, "total_frames": 3}),
        (ValueError, "total_frames", {"total_frames": 0}),
        (ValueError, "total_frames", {"total_frames": -2}),
        (ValueError, "total_frames", {"total_frames": 5.0}),
        # CR13
        (TypeError, "policy_factory", {"policy": never, "policy_factory": never}),
        (TypeError, "frame_per_batch", {"frame_per_batch": 3}),
        (TypeError, "policy", {"policy": 3}),
        (TypeError, r"got the class Locked; give Locked\(\)", {"policy": Locked}),
        (TypeError, r"got Model; .*lambda observation: model.predict", {"policy": Model()}),
        (TypeError, "policy_factory", {"policy_factory": 3}),
        (ValueError, "num_envs", {"num_envs": 0}),
        (ValueError, "num_envs", {"num_envs": 1.5}),
        (ValueError, "seed", {"seed": -1}),
        (TypeError, "seed: expected an integer", {"seed": "a"}),
        # CS1: seeds travel to workers as 64 bits, and no class may take what another one refuses.
        (
            ValueError,
            "seed: expected .* below 2\\*\\*63, got 9223372036854775807",
            {"seed": 2**63 - 1, "num_envs": 2},
        ),
        (ValueError, "max_frames_per_traj", {"max_frames_per_traj": 2.5}),
        (ValueError, "init_random_frames", {"init_random_frames": 2.5}),
        (ValueError, "items", {"items": [hr.ItemRule("t", 1)]}),
        # CF1: what is not a replay.
        (TypeError, "replay_buffer: expected a Replay, .* got list", {"replay_buffer": []}),
        (
            TypeError,
            "replay_buffer: expected a Replay, .* got Table",
            {"replay_buffer": hr.Table.queue("t", 3)},
        ),
        (TypeError, "replay_buffer: expected a Replay, .* got type", {"replay_buffer": hr.Replay}),
        # CE1
        (
            TypeError,
            r"create_env_kwargs: expected one dict .* got list: \[\{\}\]; .* a list of callables",
            {"create_env_kwargs": [{}]},
        ),
        (TypeError, r"create_env_kwargs: expected names .* got \[3\]", {"create_env_kwargs": {3: 4}}),
        (TypeError, "did you mean frames_per_batch", {"frame_per_batch": 3}),
        (TypeError, "'num_workers'; hr.MultiCollector has it", {"num_workers": 2}),
        # A value that is false is no reason to leave the check out.
        (TypeError, "info_columns: expected a mapping", {"info_columns": []}),
        (TypeError, "weight_sync_schemes: expected a dict .* got list", {"weight_sync_schemes": []}),
        (TypeError, "weight_sync_schemes: expected a dict .* got int", {"weight_sync_schemes": 3}),
        (TypeError, "seed: expected an integer >= 0, got <class 'int'>", {"seed": int}),
    ],
)
def test_errors_of_arguments(kind, error, told, arguments, no_process):
    with pytest.raises(error, match=told):
        kind(never, **{"frames_per_batch": 5, **arguments})


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_that_no_store_holds(kind):
    # CX4: the constructor of one with workers raises this error, not one of its own clean-up. Only the environment
    # says here that it has three lanes.
    told = r"frames_per_batch: expected rollouts of at most 178956970 rows, .* got 178956972"
    with pytest.raises(ValueError, match=told):
        with kind(lambda: counter_vector_env([3] * 3, "disabled"), frames_per_batch=178956969) as collector:
            collector.next()


@pytest.mark.parametrize("kind", KINDS)
def test_frames_per_batch_is_required(kind):
    with pytest.raises(TypeError, match="frames_per_batch"):
        kind(never)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_a_replay(kind, make_replay, no_process):
    replay = make_replay(hr.Signature.like({"observation": np.zeros(3, np.int64)}))
    with pytest.raises(KeyError, match="other"):
        kind(never, frames_per_batch=5, replay_buffer=replay, items=[hr.ItemRule("other", 1)])
    with pytest.raises(TypeError, match="ItemRule"):
        kind(never, frames_per_batch=5, replay_buffer=replay, items=["t"])
    with pytest.raises(TypeError, match="items: expected a list of ItemRule, got one"):
        kind(never, frames_per_batch=5, replay_buffer=replay, items=hr.ItemRule("t", 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_without_a_column(kind, make_replay):
    # CF1.
    tree = dict(hr.collectors.signature(lambda: CounterEnv(3)).tree)
    del tree["truncated"]
    with pytest.raises(hr.SpecError, match="truncated"):
        kind(lambda: CounterEnv(3), frames_per_batch=5, replay_buffer=make_replay(hr.Signature(tree)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_with_another_shape_or_a_column_that_nobody_gives(kind, make_replay, take):
    tree = dict(hr.collectors.signature(lambda: CounterEnv(3)).tree)
    other = hr.Signature({**tree, "observation": hr.ArraySpec((4,), np.int64)})
    with pytest.raises(hr.SpecError, match="observation"):
        kind(lambda: CounterEnv(3), frames_per_batch=5, replay_buffer=make_replay(other))
    more = make_replay(hr.Signature({**tree, "value": hr.ArraySpec((), np.float32)}))
    with pytest.raises(hr.SpecError, match="value"):
        with kind(lambda: CounterEnv(3), frames_per_batch=5, replay_buffer=more) as collector:
            take(collector, 1)


def test_ready_environments():
    # CE1: inline as it is; a worker cannot have it.
    env = CounterEnv(3)
    with pytest.raises(ValueError, match="create_env_kwargs"):
        hr.Collector(env, frames_per_batch=5, create_env_kwargs={"copy": 1})
    with hr.Collector(env, frames_per_batch=5) as collector:
        assert collector.env is env
    assert env.closed == 1
    with pytest.raises(TypeError, match="CounterEnv"):
        hr.AsyncCollector(env, frames_per_batch=5)


def test_a_ready_environment_stays_open_where_no_collector_is_made(make_replay):
    # CE1: it is the caller's, who may try again with other arguments.
    env = CounterEnv(3)
    with pytest.raises(hr.SpecError, match="missing"):
        hr.Collector(
            env, frames_per_batch=5, replay_buffer=make_replay(hr.Signature.like({"a": np.zeros(3)}))
        )
    assert env.closed == 0
    with hr.Collector(env, frames_per_batch=5) as collector:
        assert collector.next().frames == 5


def test_environments_are_built_once_a_copy():
    # CE1.
    built = []

    def make(copy):
        built.append(CounterEnv(3, copy=copy))
        return built[-1]

    with hr.Collector(make, frames_per_batch=6, num_envs=3, create_env_kwargs={"copy": 7}) as collector:
        batch = collector.next()
    assert len(built) == 3
    assert [env.closed for env in built] == [1, 1, 1]
    assert (batch["observation"][..., 0] == 7).all()


def test_number_of_copies_of_a_vector_environment():
    # CE2.
    with hr.Collector(counter_vector_env([3, 4], "disabled"), frames_per_batch=6, num_envs=2):
        pass
    with pytest.raises(ValueError, match="num_envs"):
        hr.Collector(counter_vector_env([3, 4], "disabled"), frames_per_batch=6, num_envs=3)


def test_autoreset_that_is_not_declared():
    # CE4.
    env = counter_vector_env([3, 4], "same_step")
    del env.metadata["autoreset_mode"]
    with pytest.raises(ValueError, match="adapt"):
        hr.Collector(env, frames_per_batch=6)
    with hr.Collector(hr.envs.adapt(env, autoreset="same_step"), frames_per_batch=8) as collector:
        assert collector.next()["mask"].all()


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_up_is_told_once(kind, take):
    # CR1: B = 10 on 3 copies is [3, 4], and 12 frames count.
    with pytest.warns(UserWarning, match=r"10 .* 12 frames") as told:
        collector = kind(lambda: CounterEnv(3), frames_per_batch=10, num_envs=3, total_frames=20)
    with collector:
        assert len(told) == 1
        assert told[0].filename == __file__
        assert len(collector) == 2
        assert [batch.shape for batch in collector] == [(3, 4), (3, 4)]
        assert collector.statistics().frames == 24


@pytest.mark.parametrize("kind", KINDS)
def test_the_end(kind):
    # CB10, CR3.
    with kind(lambda: CounterEnv(3), frames_per_batch=5, total_frames=15) as collector:
        assert len(collector) == 3
        first = next(iter(collector))
        rest = list(collector)  # Goes on where iteration stands.
        assert [batch["t"][0, 0] for batch in (first, *rest)] == [0, 2, 1]
        assert list(collector) == []
        assert collector.next() is None
        assert collector.statistics().batches == 3
    with pytest.raises(hr.Closed):
        collector.next()


@pytest.mark.parametrize("kind", KINDS)
def test_only_valid_rows_count(kind):
    # CR3: of each batch of 10 rows 8 are valid, so that 20 frames need a third batch.
    with kind(
        lambda: counter_vector_env([4, 4], "next_step"), frames_per_batch=10, total_frames=20
    ) as collector:
        assert [batch.frames for batch in collector] == [8, 8, 8]
        assert collector.statistics().frames == 24
        assert collector.statistics().frames_discarded == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_end(kind):
    with kind(lambda: CounterEnv(3), frames_per_batch=5) as collector:
        assert bool(collector)
        with pytest.raises(TypeError, match="no end"):
            len(collector)


def test_registered_in_this_process_alone():
    # CE1: the worker makes what the id means here.
    gymnasium.register("HeadraceCounter-v0", entry_point=CounterEnv, kwargs={"episode_length": 3})
    try:
        for kind in KINDS:
            with kind("HeadraceCounter-v0", frames_per_batch=5, create_env_kwargs={"copy": 2}) as collector:
                batch = collector.next(timeout=40)
                assert batch["t"].tolist() == [[0, 1, 2, 0, 1]]
                assert (batch["observation"][..., 0] == 2).all()
    finally:
        del gymnasium.registry["HeadraceCounter-v0"]


def open_files():
    """Counts the targets of the open descriptors of this process, whatever their numbers are."""
    links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return Counter(os.readlink(link) for link in links if link.is_symlink())


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_closes_everything(kind):
    before = open_files()
    with kind(lambda: CounterEnv(3), frames_per_batch=5, total_frames=5) as collector:
        collector.next(timeout=40)
    collector.shutdown()
    for call in (
        collector.next,
        lambda: next(collector),
        collector.update_policy_weights_,
        *([collector.start, lambda: collector.set_seed(3)] if kind is hr.AsyncCollector else []),
    ):
        with pytest.raises(hr.Closed):
            call()
    assert collector.statistics().frames == 5  # CQ7: still answers.
    assert open_files() <= before


def test_signature_of_a_collector():
    # CF1: with what the policy adds.
    def policy(observation):
        return np.zeros(len(observation), int), {"value": np.ones(len(observation), np.float32)}

    given = hr.collectors.signature(CounterEnv, policy, {"episode_length": 3})
    assert given.columns["value"] == hr.ArraySpec((), np.float32)
    assert given.columns["observation"] == hr.ArraySpec((3,), np.int64)


def give_zero(observation):
    return np.zeros(len(observation), int)


@pytest.mark.parametrize("policy", [None, give_zero])
def test_signature_leaves_a_ready_environment_open(policy):
    # CF1, CE1: the environment is the caller's.
    env = CounterEnv(3)
    hr.collectors.signature(env, policy)
    hr.collectors.signature(hr.envs.adapt(env), policy)
    assert env.closed == 0
    vector = gymnasium.vector.AsyncVectorEnv([lambda: CounterEnv(3)] * 2)
    try:
        hr.collectors.signature(vector, policy)
        vector.reset()
    finally:
        vector.close()


def test_signature_closes_what_it_built():
    built = []

    def make():
        built.append(CounterEnv(3))
        return built[-1]

    hr.collectors.signature(make)
    assert [env.closed for env in built] == [1]


class OldGym(CounterEnv):
    """An environment whose `step` merges the two flags, as gym had it."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


def test_an_environment_of_the_old_gym():
    # CE5; a worker sends the same text.
    told = (
        r"step: expected the five values .* got 4 values \(ndarray, .*, dict\); this is the interface of gym"
    )
    with hr.Collector(lambda: OldGym(3), frames_per_batch=5) as collector:
        with pytest.raises(hr.SpecError, match=f"environment 0: {told}"):
            collector.next()
    with hr.AsyncCollector(lambda: OldGym(3), frames_per_batch=5) as collector:
        with pytest.raises(hr.WorkerDied, match=told):
            collector.next(timeout=40)


class SeedlessReset(CounterEnv):
    """An environment whose `reset` takes no seed, as gym had it."""

    def reset(self):
        return super().reset()


def test_a_reset_that_takes_no_seed():
    # Section 17: every error about an environment names the environment.
    told = (
        "raised by reset of environment 0; this is the interface of gym before 0.26: "
        "return what gymnasium expects, or wrap"
    )
    with hr.Collector(lambda: SeedlessReset(3), frames_per_batch=5) as collector:
        with pytest.raises(TypeError, match="unexpected keyword argument 'seed'") as raised:
            collector.next()
    assert raised.value.__notes__[0].startswith(told)
    with pytest.raises(TypeError, match="unexpected keyword argument 'seed'") as raised:
        hr.AsyncCollector(lambda: SeedlessReset(3), frames_per_batch=5)
    assert raised.value.__notes__[0].startswith(told)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_q_network_as_policy(kind, num_envs):
    # CP1.
    def values(observation):
        return np.zeros((len(observation), 4), np.float32)

    told = (
        rf"policy: action: expected int64\[{num_envs}\], got float32\[{num_envs}, 4\].*return values.argmax"
    )
    with pytest.raises(hr.SpecError, match=told):
        with kind(lambda: CounterEnv(3), values, frames_per_batch=6, num_envs=num_envs) as collector:
            collector.next(timeout=40)


@pytest.mark.parametrize(
    "returned", [0, np.zeros((3, 1), int), np.zeros(2, int), np.zeros(3), None, [[1], [2, 3], []], "left"]
)
def test_a_policy_that_gives_no_actions(returned):
    # CP1.
    with hr.Collector(lambda: CounterEnv(3), lambda _: returned, frames_per_batch=6, num_envs=3) as collector:
        with pytest.raises(
            hr.SpecError, match=r"policy: action: expected .*returns actions \[n, ...\]"
        ) as raised:
            collector.next()
    assert "argmax" not in str(raised.value)


def test_constructors_show_their_arguments():
    """Tools see every argument with its default, although the constructors take them by their typed dict."""
    shown = inspect.signature(hr.Collector).parameters
    assert shown["policy"].default is None
    assert shown["frames_per_batch"].default is inspect.Parameter.empty
    assert shown["reset_when_done"].default is True
    assert not {"sync", "replay", "model_paths"} & set(shown)
    more = inspect.signature(hr.MultiCollector).parameters
    assert set(more) - set(shown) >= {"sync", "num_workers", "max_staleness", "backend"}
    one = inspect.signature(hr.AsyncCollector).parameters
    assert one["sync"].default is None
    assert set(more) - set(one) == {"num_workers"}
    assert all(one[name] == more[name] for name in set(one) - {"sync"})


@pytest.mark.parametrize("name", ["create_env_fn", "policy", "policy_factory", "create_env_kwargs"])
def test_cr13_what_cannot_be_sent_to_a_worker_is_named(name):
    value = {"length": threading.Lock()} if name == "create_env_kwargs" else Locked()
    arguments = {"create_env_fn": CounterEnv, "frames_per_batch": 5} | {name: value}
    before = open_files()
    with pytest.raises(
        TypeError,
        match=rf"^{name}: expected what can be pickled .* got {type(value).__name__}: cannot pickle '_thread.lock'",
    ):
        hr.AsyncCollector(**arguments)
    assert open_files() <= before


class CopiedLocked(Locked):
    def __deepcopy__(self, _):
        return self


@pytest.mark.parametrize("part", ["fill", "space"])
def test_cr13_a_part_of_a_view_that_cannot_be_sent_to_a_worker_is_named(part):
    views = {"before": hr.View("action", shift=-1, **{part: CopiedLocked()})}
    told = rf"^views\['before'\]\.{part}: expected what can be pickled .* got CopiedLocked: cannot pickle"
    with pytest.raises(TypeError, match=told):
        hr.AsyncCollector(CounterEnv, frames_per_batch=5, views=views)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_cq7_environments_stay_open_with_close_env_false(kind, tmp_path):
    class Told(CounterEnv):
        def close(self):
            (tmp_path / "closed").touch()
            super().close()

    for close_env in (False, True):
        collector = kind(lambda: Told(3), frames_per_batch=5)
        collector.next(timeout=40)
        collector.shutdown(close_env=close_env)
        assert (tmp_path / "closed").exists() == close_env


def test_numbers_of_numpy_are_numbers():
    # CR1, CR3: settings are often computed.
    two = np.int64(2)
    with hr.Collector(
        lambda: CounterEnv(3),
        give_zero,
        frames_per_batch=np.int64(6),
        num_envs=two,
        total_frames=np.int32(12),
        max_frames_per_traj=two,
        init_random_frames=np.uint8(6),
        set_truncated=np.True_,
    ) as collector:
        assert [batch["policy_version"][0, 0] for batch in collector] == [-1, 0]
        assert type(len(collector)) is int
    with pytest.raises(ValueError, match="frames_per_batch: expected a positive int, got"):
        hr.Collector(lambda: CounterEnv(3), frames_per_batch=np.float64(2))
    with hr.MultiCollector(
        lambda: CounterEnv(3), sync=True, num_workers=two, frames_per_batch=np.array([2, 3]).tolist()
    ) as collector:
        assert collector.next(timeout=40).frames == 5
    with hr.MultiCollector(
        lambda: CounterEnv(3), sync=True, num_workers=two, frames_per_batch=list(np.array([2, 3]))
    ) as collector:
        assert collector.next(timeout=40).frames == 5


@pytest.mark.parametrize(
    ("error", "told", "arguments"),
    [
        (TypeError, "update_at_each_batch: expected True or False, got ''", {"update_at_each_batch": ""}),
        (ValueError, "frames_per_batch: expected a positive int, got b'aa'", {"frames_per_batch": b"aa"}),
        (ValueError, "one callable, or a list of 2, .* got 1", {"create_env_fn": [never]}),
    ],
)
def test_errors_of_arguments_of_several_workers(error, told, arguments, no_process):
    # CR13, CR2, CE1.
    with pytest.raises(error, match=told):
        hr.MultiCollector(
            **{"create_env_fn": never, "sync": True, "num_workers": 2, "frames_per_batch": 5, **arguments}
        )


def test_a_list_of_environments_is_for_several_workers():
    # CE1.
    with pytest.raises(TypeError, match="got list; hr.MultiCollector takes a list"):
        hr.Collector([never, never], frames_per_batch=5)


def test_a_policy_device_that_this_machine_lacks(no_process):
    # CR13, CD1.
    torch = pytest.importorskip("torch")
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ValueError, match=f"policy_device: {absent} is not on this machine"):
        hr.AsyncCollector(never, give_zero, frames_per_batch=5, policy_device=absent)


def test_workers_with_other_columns_are_told_apart():
    # CE1.
    told = r"differ in observation: int64\[3\] and nothing; observation/copy: nothing and int64\[1\]"
    with pytest.raises(hr.SpecError, match=told):
        hr.MultiCollector(
            [lambda: CounterEnv(3), lambda: CounterEnv(3, layout="dict")], sync=True, frames_per_batch=6
        )


@pytest.mark.parametrize(
    ("told", "kind", "arguments"),
    [
        ("NEXT_STEP", hr.Collector, {"create_env_fn": lambda: counter_vector_env([3], "next_step")}),
        ("reset_when_done=False", hr.Collector, {"reset_when_done": False}),
        ("agents that have ended", hr.Collector, {"create_env_fn": lambda: CounterAgents([2, 5])}),
        ("agents that have ended", hr.AsyncCollector, {"create_env_fn": lambda: CounterAgents([2, 5])}),
        (
            "preemptive_threshold",
            hr.MultiCollector,
            {"sync": True, "num_workers": 2, "preemptive_threshold": 0.5},
        ),
        (
            "differ in size",
            hr.MultiCollector,
            {"sync": False, "num_workers": 2, "frames_per_batch": [4, 6], "total_frames": 20},
        ),
    ],
)
def test_cb10_a_length_that_is_not_known(told, kind, arguments):
    arguments = {
        "create_env_fn": lambda: CounterEnv(3),
        "frames_per_batch": 4,
        "total_frames": 20,
        **arguments,
    }
    with kind(**arguments) as collector:
        with pytest.raises(TypeError, match=f"not known before the end: .*{told}"):
            len(collector)
        assert bool(collector)


@pytest.mark.parametrize("sizes", [[4, 4], [4, 6]])
def test_cb10_rows_that_sizes_mask_are_known(sizes):
    # A synchronous batch has the frames of all workers, however its rows are filled.
    with hr.MultiCollector(
        lambda: CounterEnv(3),
        sync=True,
        num_workers=2,
        frames_per_batch=sizes,
        total_frames=3 * sum(sizes),
        preemptive_threshold=1.0,
    ) as collector:
        assert len(collector) == len(list(collector)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_factory_without_a_return(kind):
    # CP2: actions would be random, without a word.
    with pytest.raises(
        TypeError, match="policy_factory: expected it to return a policy, got None; is a `return`"
    ):
        kind(lambda: CounterEnv(3), policy_factory=lambda: None, frames_per_batch=5)
