"""Resets that are asked for within a rollout act before the next step (CQ2), against a plain model of every row."""

import os
import pickle
import sys
import threading
from contextlib import suppress

import cloudpickle
import numpy as np
import pytest
from counter_model import Model, check_rows, model_of
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.selector import PEERS
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=3)
OPTIONS = st.fixed_dictionaries(
    {
        "reset_at_each_iter": st.booleans(),
        "reset_when_done": st.booleans(),
        "set_truncated": st.booleans(),
        "max_frames_per_traj": st.none() | st.integers(1, 9),
        "init_random_frames": st.none() | st.integers(1, 30),
    }
)


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


def scaled(batch):
    names = ("observation", "next_observation", "reward")
    return batch.with_columns({name: batch[name] * 10 for name in names})


def transitions(data, scale=1):
    """The transitions of a flat batch or a sample, as a list."""
    columns = (
        data["observation"] * scale,
        data["next_observation"] * scale,
        data["reward"][:, None] * scale,
        data["truncated"][:, None],
        data["terminated"][:, None],
    )
    return [tuple(row) for row in np.concatenate(columns, axis=1).tolist()]


def check_replay(replay, expected):
    """Every expected transition is an item once, and there are no others."""
    views = hr.views.transition() | {"truncated": hr.View("truncated"), "terminated": hr.View("terminated")}
    size = len(replay.table("t"))
    stored = replay.sample("t", size, views=views, timeout=0).data
    assert sorted(transitions(stored)) == sorted(expected)


def fifo_replay(policy=None):
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000, max_times_sampled=1)
    return hr.Replay(hr.collectors.signature(lambda: CounterEnv(3), policy), [table], capacity=3000)


def resets_of(data, steps, copies):
    """Steps of a rollout and the copies that are reset before them."""
    chosen = st.none() | st.lists(st.booleans(), min_size=copies, max_size=copies)
    return data.draw(st.dictionaries(st.integers(1, steps - 1), chosen, max_size=3)) if steps > 1 else {}


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 12), OPTIONS, st.sampled_from(["none", "replay", "postproc"]), st.data())
def test_every_row_of_an_inline_collector(lengths, steps, options, sink, data):
    """CQ2, CB5, CR4 to CR8, CF2: between two steps, from any thread; items of the replay are those of the rows."""
    copies = len(lengths)
    model = model_of(lengths, steps, options)
    replay = None if sink == "none" else fifo_replay(act)
    expected, frames, episodes = [], 0, 0
    with hr.Collector(
        in_turn(counter_env_fns(lengths)),
        act,
        frames_per_batch=steps * copies,
        num_envs=copies,
        replay_buffer=replay,
        postproc=scaled if sink == "postproc" else None,
        **options,
    ) as collector:
        for _ in range(5):
            if model.stands_still:
                model.reset()
                collector.reset()
            resets = resets_of(data, steps, copies)
            lanes = model.rollout(resets)
            for step in range(1, steps):
                with suppress(hr.DeadlineExceeded):
                    assert collector.next(timeout=0) is None
                if step in resets:
                    thread = threading.Thread(target=collector.reset, args=(resets[step],))
                    thread.start()
                    thread.join()
                if sink == "none" and data.draw(st.integers(0, 9)) == 0:
                    collector.load_state_dict(pickle.loads(pickle.dumps(collector.state_dict())))
            batch = collector.next(timeout=0)
            if sink == "postproc":
                assert (batch["observation"] % 10 == 0).all()
                batch = batch.with_columns(
                    {name: batch[name] // 10 for name in ("observation", "next_observation", "reward")}
                )
            check_rows(batch, lanes)
            expected += transitions(batch.flatten(), 10 if sink == "postproc" else 1)
            frames += batch.frames
            rows = [row for lane in lanes for row in lane if row is not None]
            ends = [lengths[row["copy"]] == row["t"] + 1 or model.limit == row["t"] + 1 for row in rows]
            episodes += sum(ends)
        statistics = collector.statistics()
    assert (statistics.frames, statistics.episodes, statistics.frames_discarded) == (frames, episodes, 0)
    if replay is not None:
        check_replay(replay, expected)
        replay.close()


@settings(max_examples=30, deadline=None)
@given(
    LENGTHS,
    st.integers(2, 12),
    st.sampled_from(["disabled", "same_step", "next_step"]),
    st.booleans(),
    st.data(),
)
def test_vector_environments(lengths, steps, mode, set_truncated, data):
    """CQ2, CE4, CR8: those that reset themselves are reset as a whole; a reset that was due takes no step then."""
    model = Model(lengths, steps, set_truncated=set_truncated, resets_take_a_step=mode == "next_step")
    with hr.Collector(
        counter_vector_env(lengths, mode),
        act,
        frames_per_batch=steps * len(lengths),
        set_truncated=set_truncated,
    ) as collector:
        for _ in range(4):
            resets = resets_of(data, steps, len(lengths))
            if mode != "disabled":
                resets = dict.fromkeys(resets)
            lanes = model.rollout(resets)
            for step in range(1, steps):
                with suppress(hr.DeadlineExceeded):
                    assert collector.next(timeout=0) is None
                if step in resets:
                    collector.reset(resets[step])
            check_rows(collector.next(timeout=0), lanes)


class Asking:
    """A policy that asks for resets after some of its steps, in the middle of a step of its collector."""

    def __init__(self, resets):
        self.resets, self.calls, self.collector = resets, 0, None

    def __call__(self, observation):
        self.calls += 1
        if self.calls in self.resets:
            self.collector.reset(self.resets[self.calls])
        return act(observation)


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(2, 12), st.booleans(), st.booleans(), st.data())
def test_a_free_run(lengths, steps, changes, runs, data):
    """CQ2, CF2, CF4, CR10: a reset by the policy acts before the step after; no transition is lost or doubled."""
    copies, rollouts = len(lengths), 4
    model = Model(lengths, steps)
    scripts = [resets_of(data, steps, copies) for _ in range(rollouts)]
    scripts[0].pop(1, None)  # The policy is first called before the collector begins its first rollout.
    policy = Asking(
        {
            number * steps + step: chosen
            for number, each in enumerate(scripts)
            for step, chosen in each.items()
        }
    )
    replay = fifo_replay(act)
    lanes = [model.rollout(each) for each in scripts]
    rows = [row for each in lanes for lane in each for row in lane]
    scale = 10 if changes else 1
    expected = [
        tuple(
            float(x)
            for x in (
                *(scale * np.array([row["copy"], row["episode"], row["step"]])),
                *(scale * np.array([row["copy"], row["episode"], row["step"] + 1])),
                scale * (4 * row["step"] + (row["step"] + row["copy"]) % 4),
                row["truncated"],
                row["terminated"],
            )
        )
        for row in rows
    ]
    with hr.Collector(
        in_turn(counter_env_fns(lengths)),
        policy,
        frames_per_batch=steps * copies,
        total_frames=rollouts * steps * copies,
        num_envs=copies,
        replay_buffer=replay,
        postproc=scaled if changes else None,
    ) as collector:
        policy.collector = collector
        if runs:
            collector.start()
            collector._run._thread.join(40)
        else:
            for each in lanes:
                batch = collector.next()
                if not changes:
                    check_rows(batch, each)
        assert collector.statistics().frames == len(rows)
    check_replay(replay, expected)
    replay.close()


def test_hooks_ask_for_resets():
    """CQ2, CH1: one before a rollout acts before its first step, one after it before the first step of the next."""
    with hr.Collector(lambda: CounterEnv(100), act, frames_per_batch=4) as collector:
        collector.pre_collect_hook = collector.reset
        first, second = collector.next(), collector.next()
        collector.pre_collect_hook = None
        collector.post_collect_hook = lambda batch: collector.reset()
        third, fourth = collector.next(), collector.next()
    for batch in (first, second, fourth):
        assert batch["t"].tolist() == [[0, 1, 2, 3]]
    assert third["t"].tolist() == [[4, 5, 6, 7]]
    assert [batch["episode_id"][0, 0] for batch in (first, second, third, fourth)] == [0, 1, 1, 2]


class AskingFirst(Asking):
    """Adds a column, and asks for a reset when it is first called: before the first step in rows with that column."""

    def __call__(self, observation):
        return super().__call__(observation), {"value": observation[:, 2] * 1.0}


def test_before_the_first_step_with_the_columns_of_the_policy():
    """CQ2, CR4: the episodes under way have no step in these rows."""
    policy = AskingFirst({1: [True, False]})
    with hr.Collector(
        in_turn(counter_env_fns([100, 100])), policy, frames_per_batch=8, num_envs=2, init_random_frames=8
    ) as collector:
        policy.collector = collector
        batches = [collector.next() for _ in range(3)]
    assert [batch["t"][0].tolist() for batch in batches] == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert [batch["t"][1].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [batch["episode_id"][:, 0].tolist() for batch in batches] == [[0, 1], [2, 1], [2, 1]]
    for batch in batches:
        np.testing.assert_array_equal(batch["next_observation"], batch["observation"] + [0, 0, 1])


# ---- workers ---------------------------------------------------------------------------------------------------------


class Gate:
    """Lets a test act while a worker is in the middle of a step: the worker waits for the test at some of its calls."""

    def __init__(self, folder, name):
        self.asks, self.goes = str(folder / f"{name}-asks"), str(folder / f"{name}-goes")
        for path in (self.asks, self.goes):
            os.mkfifo(path)

    def stop(self):
        """Called by the worker."""
        with open(self.asks, "w"):
            pass
        with open(self.goes):
            pass

    def hold(self, do):
        """Called by the test: does something while the worker stands at the gate."""
        with open(self.asks):
            pass
        do()
        with open(self.goes, "w"):
            pass


class Stopping:
    """A policy that stops at its gate at some of its calls, counted from 1."""

    def __init__(self, gate, calls):
        self.gate, self.stops, self.calls = gate, calls, 0

    def __call__(self, observation):
        self.calls += 1
        if self.calls in self.stops:
            self.gate.stop()
        return act(observation)


@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}, {"max_frames_per_traj": 4}], ids=str)
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("sink", ["none", "hook", "replay", "postproc", "elsewhere"])
def test_workers(sync, sink, options, tmp_path):
    """CQ2, CR6, CR10: a reset that arrives during a step acts before the next one, wherever the rows go."""
    generator = np.random.default_rng([sync, len(sink), len(options)])
    workers, copies, steps, rollouts = (2 if sync else 1), 2, 6, 4
    lengths = [[3, 50], [40, 5]][:workers]
    scripts = [
        [
            {
                int(step): generator.integers(0, 2, copies).astype(bool).tolist()
                for step in generator.choice(range(2, steps), 2, replace=False)
            }
            for _ in range(rollouts)
        ]
        for _ in range(workers)
    ]
    limit = options.get("max_frames_per_traj")
    each_iter = options.get("reset_at_each_iter", False)
    models = [Model(each, steps, limit, reset_at_each_iter=each_iter) for each in lengths]
    gates = [Gate(tmp_path, worker) for worker in range(workers)]
    policies = [
        Stopping(gate, {steps * number + step for number, each in enumerate(script) for step in each})
        for gate, script in zip(gates, scripts, strict=True)
    ]
    has_replay = sink in ("replay", "postproc", "elsewhere")
    replay = fifo_replay(act) if has_replay else None
    batches = []
    with hr.MultiCollector(
        [in_turn(counter_env_fns(each)) for each in lengths],
        policy_factory=[lambda policy=policy: policy for policy in policies],
        sync=sync,
        frames_per_batch=workers * copies * steps,
        total_frames=rollouts * workers * copies * steps,
        num_envs=copies,
        replay_buffer=Elsewhere(replay) if sink == "elsewhere" else replay,
        postproc=scaled if sink == "postproc" else None,
        **options,
    ) as collector:
        if sink == "hook":
            collector.post_collect_hook = lambda batch: np.savez(
                tmp_path / f"{batch.worker_idx}.npz", **batch
            )

        def ask(worker, chosen):
            whole = [False] * (workers * copies)
            whole[worker * copies : (worker + 1) * copies] = chosen
            collector.reset(whole)
            # The thread that takes messages in may send this one, after those of its own.
            is_sent = threading.Event()
            PEERS.call_soon(is_sent.set)
            assert is_sent.wait(20)

        thread = threading.Thread(target=lambda: batches.extend(collector))
        thread.start()
        for number in range(rollouts):
            for worker, script in enumerate(scripts):
                for _, chosen in sorted(script[number].items()):
                    gates[worker].hold(lambda worker=worker, chosen=chosen: ask(worker, chosen))
        thread.join(40)
        assert not thread.is_alive()
        frames = collector.statistics().frames
    assert frames == sum(batch.frames for batch in batches) == rollouts * workers * copies * steps
    expected = []
    for number, batch in enumerate(batches):
        scale = 10 if sink == "postproc" else 1
        expected += transitions(batch.flatten())
        lanes = [
            lane
            for model, script in zip(models, scripts, strict=True)
            for lane in model.rollout(script[number])
        ]
        check_worker_rows(batch, lanes, scale)
    if sink == "hook":
        for worker in range(workers):
            with np.load(tmp_path / f"{worker}.npz") as seen:
                for name in set(batches[-1]) - {"episode_id"}:
                    own = batches[-1][name][worker * copies : (worker + 1) * copies]
                    np.testing.assert_array_equal(seen[name], own, err_msg=name)
    if replay is not None:
        check_replay(replay, expected)
        replay.close()


def check_worker_rows(batch, lanes, scale):
    """Compares the rows of workers, each of which has its own copies 0, 1, ..., and numbers of episodes."""
    for name in ("t", "terminated", "truncated"):
        np.testing.assert_array_equal(batch[name], [[row[name] for row in lane] for lane in lanes], name)
    seen = [[[row["copy"] % 2, row["episode"], row["step"]] for row in lane] for lane in lanes]
    np.testing.assert_array_equal(batch["observation"], np.multiply(seen, scale))
    np.testing.assert_array_equal(batch["next_observation"], np.add(seen, [0, 0, 1]) * scale)
    is_new = np.diff([[row["episode"] for row in lane] for lane in lanes]) != 0
    np.testing.assert_array_equal(np.diff(batch["episode_id"]) > 0, is_new)
    np.testing.assert_array_equal(np.diff(batch["episode_id"]) < 0, False)


class Elsewhere:
    """A replay that is known by its interface alone, as that of a client."""

    def __init__(self, replay):
        self._replay = replay

    def __getattr__(self, name):
        return getattr(self._replay, name)


class StoppingFirst(Stopping):
    """Adds a column."""

    def __call__(self, observation):
        return super().__call__(observation), {"value": observation[:, 2] * 1.0}


@pytest.mark.parametrize("has_hook", [False, True])
def test_workers_before_the_first_step_with_the_columns_of_the_policy(has_hook, tmp_path):
    """CQ2, CR4: the policy is asked for its columns, and the reset comes meanwhile."""
    gate = Gate(tmp_path, 0)
    with hr.MultiCollector(
        lambda: CounterEnv(100),
        policy_factory=lambda: StoppingFirst(gate, {1}),
        sync=True,
        num_workers=1,
        frames_per_batch=4,
        init_random_frames=4,
    ) as collector:
        if has_hook:
            collector.post_collect_hook = lambda batch: None
        first = collector.next(timeout=40)

        def reset():
            collector.reset()
            is_sent = threading.Event()
            PEERS.call_soon(is_sent.set)
            assert is_sent.wait(20)

        thread = threading.Thread(target=gate.hold, args=(reset,))
        thread.start()
        others = [collector.next(timeout=40) for _ in range(2)]
        thread.join()
        assert collector.statistics().restarts == 0
    assert [batch["t"][0].tolist() for batch in (first, *others)] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
