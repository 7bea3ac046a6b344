"""New weights, their versions, and the stamps in rows."""

import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.testing import CounterEnv
from headrace.weights import SharedMemory

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = [hr.Collector, hr.AsyncCollector]


def apply(params, observation):
    """Shows its weights in extras, so that a torn set would be seen."""
    action = np.zeros(len(observation), int)
    return action, {
        "bias": np.repeat(params["bias"][:1], len(observation), 0),
        "torn": np.full(len(observation), params["w"].min() != params["w"].max()),
        "w": np.full(len(observation), params["w"][0]),
    }


def weights(value, size=1000):
    return {"bias": np.array([value]), "w": np.full(size, value)}


class Own:
    """A plain class with weights."""

    def __init__(self):
        self.number = np.array(0.0)

    def __call__(self, observation):
        return np.zeros(len(observation), int), {"number": np.repeat(self.number, len(observation))}

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = np.array(state["number"])


def newest(collector):
    """The number of the newest weights."""
    return collector._versions.newest


def until_stamp(collector, version):
    """Batches until one is all of this version."""
    while True:
        batch = collector.next(timeout=40)
        if (batch["policy_version"] == version).all():
            return batch


@pytest.mark.parametrize("kind", KINDS)
def test_forms(kind):
    # CW1: one source; positional, by name, the collector's own policy, worker 0's.
    policy = hr.FunctionalPolicy(apply, weights(0.0))
    other = hr.FunctionalPolicy(apply, weights(1.0))
    with kind(lambda: CounterEnv(9), policy, frames_per_batch=4) as collector:
        assert newest(collector) == 0
        assert (collector.next(timeout=40)["w"] == 0).all()
        for version, (positional, named, expected) in enumerate(
            [
                (other, {}, 1.0),
                (weights(2.0), {}, 2.0),
                (None, {"weights": weights(3.0)}, 3.0),
                (None, {"policy": other}, 1.0),
                ({0: weights(5.0)}, {}, 5.0),
            ],
            start=1,
        ):
            collector.update_policy_weights_(positional, **named)
            assert newest(collector) == version
            batch = until_stamp(collector, version)
            assert (batch["w"] == expected).all()
            assert (batch["bias"] == expected).all()
        policy.params = weights(6.0)
        collector.update_policy_weights_()
        assert (until_stamp(collector, 6)["w"] == 6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_changes_nothing(kind):
    policy = hr.FunctionalPolicy(apply, weights(0.0))
    with kind(lambda: CounterEnv(9), policy, frames_per_batch=4) as collector:
        with pytest.raises(ValueError, match="one of"):
            collector.update_policy_weights_(policy, weights=weights(1.0))
        with pytest.raises(ValueError, match="one of"):
            collector.update_policy_weights_(weights=weights(1.0), policy=policy)
        with pytest.raises(ValueError, match="worker 0"):
            collector.update_policy_weights_({1: weights(1.0)})
        for wrong in ({"bias": np.zeros(1)}, {**weights(1.0), "more": np.zeros(1)}, weights(1.0, size=3)):
            with pytest.raises(hr.SpecError, match="more|w"):
                collector.update_policy_weights_(wrong)
        with pytest.raises(hr.SpecError, match="bias"):
            collector.update_policy_weights_({**weights(1.0), "bias": np.zeros(1, np.float32)})
        with pytest.raises(TypeError, match="state_dict"):
            collector.update_policy_weights_(policy=object())
        assert newest(collector) == 0
        batch = collector.next(timeout=40)
        assert (batch["w"] == 0).all()
        assert (batch["policy_version"] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_policies_without_weights(kind):
    # CP4: a TypeError that says what to add; CW1: nothing to read from after a factory.
    with kind(lambda: CounterEnv(9), lambda o: np.zeros(1, int), frames_per_batch=4) as collector:
        for source in (None, {"w": np.zeros(3)}):
            with pytest.raises(TypeError, match="state_dict"):
                collector.update_policy_weights_(source)
    with kind(lambda: CounterEnv(9), frames_per_batch=4) as collector:
        with pytest.raises(ValueError, match="policy"):
            collector.update_policy_weights_()
        with pytest.raises(TypeError, match="state_dict"):
            collector.update_policy_weights_({"w": np.zeros(3)})
        assert newest(collector) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_policy_factory(kind):
    with kind(lambda: CounterEnv(9), policy_factory=Own, frames_per_batch=4) as collector:
        assert (collector.next(timeout=40)["number"] == 0).all()
        with pytest.raises(ValueError, match="policy object"):
            collector.update_policy_weights_()
        with pytest.raises(hr.SpecError, match="number"):
            collector.update_policy_weights_({"numbers": np.array(1.0)})
        collector.update_policy_weights_({"number": np.array(7.0)})
        assert (until_stamp(collector, 1)["number"] == 7).all()


@pytest.mark.parametrize("kind", KINDS)
def test_torch_module(kind):
    torch = pytest.importorskip("torch")

    class Linear(torch.nn.Linear):
        def forward(self, observation):
            assert not torch.is_grad_enabled()
            value = super().forward(observation.float())
            return torch.zeros(len(observation), dtype=torch.int64), {"value": value[:, 0]}

    module = Linear(3, 1)
    with kind(lambda: CounterEnv(9), module, frames_per_batch=4) as collector:
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with pytest.raises(hr.SpecError, match="weight"):
            collector.update_policy_weights_({**before, "weight": torch.zeros(1, 2)})
        collector.update_policy_weights_(
            {name: torch.full_like(tensor, 2.0) for name, tensor in before.items()}
        )
        batch = until_stamp(collector, 1)
        np.testing.assert_array_equal(batch["value"], batch["observation"].sum(-1) * 2.0 + 2.0)


def test_inline_the_object_is_used_itself():
    # CP5.
    policy = Own()
    with hr.Collector(lambda: CounterEnv(9), policy, frames_per_batch=4) as collector:
        assert collector.policy is policy
        collector.next()
        policy.number = np.array(3.0)
        assert (collector.next()["number"] == 3).all()
        assert collector.statistics().lag_max == 0


def test_a_worker_has_its_own():
    # CP5: edits in place change nothing until an update. CW3: afterwards the arrays may be changed.
    policy = Own()
    with hr.AsyncCollector(lambda: CounterEnv(9), policy, frames_per_batch=4) as collector:
        policy.number = np.array(3.0)
        assert (collector.next(timeout=40)["number"] == 0).all()
        sent = {"number": np.array(4.0)}
        collector.update_policy_weights_(sent)
        sent["number"][...] = 5.0
        assert (until_stamp(collector, 1)["number"] == 4).all()


def test_weights_before_the_start_act_from_the_first_row(make_replay):
    # CW3: the policy was asked once already, to see its extras; that answer is not used.
    policy = Own()
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(9), policy))
    with hr.AsyncCollector(
        lambda: CounterEnv(9), policy, frames_per_batch=4, total_frames=4, replay_buffer=replay
    ) as collector:
        collector.update_policy_weights_({"number": np.array(4.0)})
        batch = collector.next(timeout=40)
        assert (batch["policy_version"] == 1).all()
        assert (batch["number"] == 4).all()


def test_no_set_is_ever_torn_and_none_has_two_numbers():
    # CV2, CW3: from another thread, while batches are taken.
    policy = hr.FunctionalPolicy(apply, weights(0.0, 50_000))
    with hr.AsyncCollector(lambda: CounterEnv(9), policy, frames_per_batch=64, num_envs=2) as collector:
        stop = threading.Event()

        def publish():
            version = 0
            while not stop.is_set():
                version += 1
                collector.update_policy_weights_(weights(float(version), 50_000))

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            batches = [collector.next(timeout=40) for _ in range(60)]
            while batches[-1]["policy_version"].max() < 20:
                batches.append(collector.next(timeout=40))
        finally:
            stop.set()
            thread.join()
        assert collector.statistics().lag_max >= collector.statistics().lag_min >= 0
    stamps = np.concatenate([batch["policy_version"] for batch in batches], axis=1)
    assert not any(batch["torn"].any() for batch in batches)
    np.testing.assert_array_equal(stamps, np.concatenate([batch["w"] for batch in batches], axis=1))
    assert (np.diff(stamps, axis=1) >= 0).all()
    assert (stamps[0] == stamps[1]).all()  # Between two steps only.


def test_a_worker_that_is_always_overtaken():
    # CW3, CW7: it acts with the set that it has, and takes over the first one that it can copy whole.
    with hr.AsyncCollector(lambda: CounterEnv(9), Own(), frames_per_batch=4) as collector:
        collector.update_policy_weights_({"number": np.array(1.0)})
        until_stamp(collector, 1)
        board = collector._weights._board
        newest = board.newest()
        board._announce(0, 9, newest.slot, newest.publication + 7)  # As if it were replaced already.
        for _ in range(4):
            batch = collector.next(timeout=40)
            assert (batch["policy_version"] == 1).all()
            assert (batch["number"] == 1).all()
        collector.update_policy_weights_({"number": np.array(2.0)})
        assert (until_stamp(collector, 2)["number"] == 2).all()


@pytest.mark.parametrize("publisher", ["the collector", "another one"])
def test_lag(publisher):
    # CV6: newest minus stamp, at hand-out; also where the newest set is of another publisher.
    policy, scheme = Own(), SharedMemory(Own().state_dict())
    is_own = publisher == "the collector"
    options = {} if is_own else {"weight_sync_schemes": {"policy": scheme}}
    with (
        scheme,
        hr.AsyncCollector(
            lambda: CounterEnv(9), policy, frames_per_batch=4, total_frames=12, **options
        ) as collector,
    ):
        publish = collector.update_policy_weights_ if is_own else scheme.publish
        collector.next(timeout=40)
        assert collector.statistics().lag_max == 0
        # Two rollouts are begun at most before the first is handed out, the third then; none saw the fifth set.
        group = collector._group
        with group.status.changed:
            assert group.status.changed.wait_for(lambda: len(group.collection.batches) == 2, 40)
        for number in range(5):
            publish({"number": np.array(float(number))})
        collector.next(timeout=40)
        statistics = collector.statistics()
        assert (statistics.lag_min, statistics.lag_mean, statistics.lag_max) == (5, 5.0, 5)
        assert statistics.lag_histogram == {0: 4, 5: 4}
        assert statistics.workers[0].policy_version == 0


def test_stamps_of_rows_in_a_replay(make_replay):
    # CV2: a row's stamp is the version that acted.
    policy = Own()
    signature = hr.collectors.signature(lambda: CounterEnv(9), policy)
    for kind in KINDS:
        replay = make_replay(signature)
        with kind(lambda: CounterEnv(9), policy, frames_per_batch=6, replay_buffer=replay) as collector:
            for version in range(1, 5):
                collector.update_policy_weights_({"number": np.array(float(version))})
                until_stamp(collector, version)
            arrays, store = core_of(replay).store.arrays, core_of(replay).store
            seen = set()
            with core_of(replay).lock:
                for page in np.flatnonzero(arrays.pages[:, 1]):
                    first, used = page * arrays.page_rows, int(arrays.pages[page, 1])
                    rows = slice(first, first + used)
                    acted = (arrays.steps[rows] & np.uint32(1 << 29)) == 0
                    np.testing.assert_array_equal(
                        store.versions[rows][acted], store.columns["number"][rows][acted]
                    )
                    seen |= set(store.versions[rows][acted].tolist())
        assert seen >= {1, 2, 3, 4}
