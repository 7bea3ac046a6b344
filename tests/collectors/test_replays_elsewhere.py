"""A collector writes into a replay of a client, or a wrapper around one, as it does into one of its process (CF1)."""

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

LENGTHS = [3, 5, 1, [2, 6]]
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


class Wrapper:
    """A replay that is known by its interface alone."""

    def __init__(self, replay):
        self._replay = replay

    def __getattr__(self, name):
        return getattr(self._replay, name)


def once(**options):
    """A table that gives each item once, the oldest first."""
    fifo = hr.selectors.Fifo()
    return hr.Table("t", sampler=fifo, remover=fifo, max_times_sampled=1, **{"max_size": 100_000, **options})


@pytest.fixture(params=["wrapper", "client"])
def elsewhere(request, tmp_path, make_replay):
    """Makes a replay that is not of this process; there is another handle on it for the learner."""
    opened = []

    def make(**options):
        replay = make_replay(SIGNATURE, once(**options))
        if request.param == "wrapper":
            return Wrapper(replay), replay
        server = hr.Server({"r": replay}, address=None, unix=tmp_path / "socket").start()
        client = hr.Client(server.address)
        opened.extend([client.replay("r"), client, server])
        return opened[-3], replay

    yield make
    for each in opened:
        getattr(each, "stop", getattr(each, "close", None))()


def environments(kind):
    if kind == "single":
        return in_turn(counter_env_fns(LENGTHS)), {"num_envs": 4}
    if kind == "one":
        return in_turn(counter_env_fns([5])), {}
    if kind == "one next_step":
        return lambda: counter_vector_env([5], "next_step"), {}
    return lambda: counter_vector_env(LENGTHS, kind), {}


def items_of(replay):
    """The transitions of all items with their versions, in a fixed order."""
    views = {**hr.views.transition(2, 0.5), "version": hr.View("policy_version")}
    data = replay.sample("t", len(replay.table("t")), views=views, timeout=5).data
    order = np.lexsort(data["observation"].T)
    return {name: column[order] for name, column in data.items()}


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


@pytest.mark.parametrize("kind", ["single", "one", "one next_step", "disabled", "same_step", "next_step"])
@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}, {"init_random_frames": 30}])
def test_the_same_items_as_in_a_replay_of_the_process(elsewhere, make_replay, kind, options):
    # CF2, CR4, CR6
    def collect(replay):
        create, more = environments(kind)
        with hr.Collector(
            create, lambda seen: seen[:, 2] % 4, frames_per_batch=20, replay_buffer=replay, seed=3,
            track_policy_version=True, **options, **more
        ) as collector:  # fmt: skip
            frames = sum(collector.next().frames for _ in range(2))
            collector.reset()
            collector.increment_version()
            return frames + sum(collector.next().frames for _ in range(2))

    local = make_replay(SIGNATURE, once())
    given, remote = elsewhere()
    frames = collect(local)
    assert collect(given) == frames == len(remote.table("t"))
    same(items_of(remote), items_of(local))


def scaled(batch):
    names = ("observation", "next_observation", "reward")
    return batch.with_columns({name: batch[name] * 10 for name in names})


@pytest.mark.parametrize("postproc", [None, scaled])
def test_free_running(elsewhere, postproc):
    # CF4 to CF7, CR10: a table that is full makes the collector wait; pauses and the end write all there is.
    given, replay = elsewhere(max_size=10, rate_limiter=hr.rate_limiters.Queue(10))
    factor = 1 if postproc is None else 10
    with hr.Collector(
        in_turn(counter_env_fns([7, 7])), frames_per_batch=30, num_envs=2, total_frames=1500,
        replay_buffer=given, postproc=postproc,
    ) as collector:  # fmt: skip
        collector.start()
        seen = []
        while len(seen) < 1500:
            seen += replay.sample("t", 5, timeout=20).data["observation"].tolist()
        assert collector.statistics().frames == 1500
    rows = np.array(sorted(map(tuple, seen))) // factor
    expected = [(copy, step // 7, step % 7) for copy in range(2) for step in range(750)]
    assert [tuple(row) for row in rows.tolist()] == expected


def test_a_failure_begins_new_episodes(elsewhere):
    # CX1: what was not written is dropped, and the next rollout begins with a reset.
    given, replay = elsewhere()
    with hr.Collector(
        lambda: CounterEnv(50), frames_per_batch=10, num_envs=2, replay_buffer=given
    ) as collector:
        collector.next()
        writer = collector._rollouts.output._writer
        append, writer.append_checked = writer.append_checked, None
        with pytest.raises(TypeError):
            collector.next()
        writer.append_checked = append
        collector.next()
        # Of the newest transitions before the failure the next observations are not known.
        assert len(replay.table("t")) == 2 * 4 + 2 * 4
    data = items_of(replay)
    assert sorted(data["observation"][:, 1].tolist()) == [0] * 8 + [1] * 10
    np.testing.assert_array_equal(data["next_observation"][:, 2] - data["observation"][:, 2], data["n"])


def test_workers_need_a_replay_of_the_process(elsewhere):
    given, _ = elsewhere()
    with pytest.raises(TypeError, match=r"replay_buffer: expected a Replay of this process.*hr.Collector"):
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=4, replay_buffer=given)
