"""Sources, models, schemes and receiving ends of new weights (collectors CW1 to CW10)."""

import sys
import threading
from collections import OrderedDict

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv
from headrace.weights import NoSync, SharedMemory

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def two_workers(create_env_fn, policy, **options):
    """A synchronous collector of two workers with one environment each."""
    options["frames_per_batch"] *= 2
    return hr.MultiCollector([create_env_fn] * 2, policy, sync=True, **options)


KINDS = [hr.Collector, hr.AsyncCollector, two_workers]


class Part:
    """A model inside the policy."""

    def __init__(self, value=0.0):
        self.value = np.full(3, float(value))

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = np.array(state["value"])


class Heads(Part):
    """Shows its own value and those of its parts in extras; the action tells the value too."""

    def __init__(self):
        super().__init__()
        self.critic = Part()
        self.nets = {}
        self.deep = type("Deep", (), {})()
        self.deep.part = Part()

    def __call__(self, observation):
        n = len(observation)
        shown = {"own": self.value, "critic": self.critic.value, "part": self.deep.part.value}
        return np.full(n, int(self.value[0]) % 4), {
            name: np.repeat(value[:1], n) for name, value in shown.items()
        }


def parts(value):
    return {"value": np.full(3, float(value))}


MODELS = {"critic": None, "deep.part": None}


def make(kind, policy=None, **options):
    options = {"weight_sync_schemes": MODELS, "track_policy_version": True, **options}
    return kind(lambda: CounterEnv(9), policy or Heads(), frames_per_batch=4, **options)


def shown(collector):
    """Version and values of the newest batch, which all rows share."""
    for _ in range(4 if isinstance(collector, hr.AsyncCollector) else 1):
        batch = collector.next(timeout=40)
        # A worker that runs ahead may have collected up to three batches before the newest weights came.
        if (batch["policy_version"] == collector._versions.newest).all():
            break
    values = {name: set(batch[name].ravel().tolist()) for name in ("policy_version", "own", "critic", "part")}
    assert all(len(value) == 1 for value in values.values()), values
    assert (batch["action"] == batch["own"].astype(int) % 4).all()
    return tuple(int(value.pop()) for value in values.values())


class Duck:
    """An array of a library that is not installed: it converts itself."""

    def __init__(self, array):
        self._array = np.asarray(array)

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)


class Packed:
    """An array that only DLPack reads."""

    def __init__(self, array):
        self._array = np.asarray(array)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


SOURCES = {
    "positional object": lambda value: ((Part(value),), {}),
    "positional tree": lambda value: ((parts(value),), {}),
    "positional by worker": lambda value: (({0: parts(value)},), {}),
    "positional by worker, objects": lambda value: (({0: Part(value)},), {}),
    "policy": lambda value: ((), {"policy": Part(value)}),
    "weights": lambda value: ((), {"weights": parts(value)}),
    "another dict": lambda value: ((), {"weights": OrderedDict(parts(value))}),
    "array interface": lambda value: ((), {"weights": {"value": Duck(np.full(3, float(value)))}}),
    "dlpack": lambda value: ((), {"weights": {"value": Packed(np.full(3, float(value)))}}),
    "weights_dict": lambda value: ((), {"weights_dict": {"policy": parts(value)}}),
    "weights_dict, object": lambda value: ((), {"weights_dict": {"policy": Part(value)}}),
    "a worker": lambda value: ((parts(value),), {"worker_ids": 0}),
    "workers": lambda value: ((parts(value),), {"worker_ids": [0]}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_sources(kind, source):
    # CW1, CW2: all forms of one set of weights.
    if kind is two_workers and "worker" in source:
        pytest.skip("tests of several workers have it")
    with make(kind) as collector:
        assert shown(collector) == (0, 0, 0, 0)
        for value in (3, 6):
            positional, named = SOURCES[source](value)
            collector.update_policy_weights_(*positional, **named)
            assert shown(collector) == (value // 3, value, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_jax_arrays(kind):
    # CW1, CP4.
    jax = pytest.importorskip("jax")
    with make(kind) as collector:
        with jax.enable_x64(True):
            collector.update_policy_weights_({"value": jax.numpy.full(3, 2.0, "float64")})
        assert shown(collector) == (1, 2, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_and_tensordict(kind):
    # CW1: a state dict; a TensorDict of the module, nested or flat.
    torch, tensordict = pytest.importorskip("torch"), pytest.importorskip("tensordict")

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(3, 1)

        def forward(self, observation):
            value = self.head(torch.ones(len(observation), 3))
            return torch.zeros(len(observation), dtype=torch.int64), {"value": value[:, 0]}

    def filled(value):
        module = Module()
        for tensor in module.state_dict().values():
            tensor.fill_(value)
        return module

    nested = tensordict.TensorDict.from_module(filled(3.0)).data
    with kind(lambda: CounterEnv(9), Module(), frames_per_batch=4) as collector:
        for number, (source, value) in enumerate(
            [
                (filled(1.0), 1),
                (filled(2.0).state_dict(), 2),
                (nested, 3),
                (nested.flatten_keys("."), 3),
                ({"head": {"weight": np.full((1, 3), 4, np.float32), "bias": np.full(1, 4, np.float32)}}, 4),
            ],
            start=1,
        ):
            collector.update_policy_weights_(source)
            while (batch := collector.next(timeout=40))["policy_version"].max() < number:
                assert isinstance(collector, hr.AsyncCollector)
            valid = batch["policy_version"] == number
            np.testing.assert_array_equal(batch["value"][valid], np.full(valid.sum(), 4.0 * value))


REFUSED = [
    ((parts(1),), {"weights": parts(1)}, ValueError, "one of"),
    ((), {"weights": parts(1), "policy": Part(1)}, ValueError, "one of"),
    ((), {"weights": parts(1), "weights_dict": {"policy": parts(1)}}, ValueError, "one of"),
    ((Part(1),), {"policy": Part(1)}, ValueError, "one of"),
    ((), {"weights_dict": {"critic": parts(1)}, "model_id": "critic"}, ValueError, "without model_id"),
    ((parts(1),), {"model_id": "actor"}, KeyError, "'actor'.*policy, critic, deep.part"),
    ((), {"weights_dict": {"critic": parts(1), "actor": parts(1)}}, KeyError, "'actor'.*policy, critic"),
    (({"value": np.zeros(2)},), {}, hr.SpecError, r"value: expected float64\[3\], got float64\[2\]"),
    (({"value": np.zeros(3, int)},), {}, hr.SpecError, "value: expected float64"),
    (({"values": np.zeros(3)},), {}, hr.SpecError, "missing value; extra values"),
    (({"value": "text"},), {}, hr.SpecError, "value: expected an array"),
    (
        (),
        {"weights_dict": {"policy": parts(1), "critic": {"value": np.zeros(2)}}},
        hr.SpecError,
        "critic: value: expected",
    ),
    ((parts(1),), {"worker_ids": 7}, ValueError, "expected worker.*got 7"),
    ((parts(1),), {"worker_ids": [0, -1]}, ValueError, "got -1"),
    ((parts(1),), {"worker_ids": "cuda:0"}, ValueError, "policy_device"),
    ((parts(1),), {"worker_ids": []}, ValueError, "at least one worker"),
    (
        (),
        {"weights_dict": [parts(1)]},
        TypeError,
        "weights_dict: expected a dict of weights by model, got list",
    ),
    (({0: parts(1), 9: parts(1)},), {}, ValueError, "got 9"),
    (({0: parts(1)},), {"worker_ids": 0}, ValueError, "by worker without worker_ids"),
    ((object(),), {}, TypeError, "state_dict"),
    ((), {"policy": parts(1)}, TypeError, "state_dict"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_changes_nothing(kind):
    # CW1: the table; nothing changed anywhere, no version used.
    with make(kind) as collector:
        for positional, named, error, message in REFUSED:
            with pytest.raises(error, match=message):
                collector.update_policy_weights_(*positional, **named)
        assert collector.policy_version == 0
        assert shown(collector) == (0, 0, 0, 0)
        collector.update_policy_weights_(parts(2))
        assert shown(collector) == (1, 2, 0, 0)
    for call in (
        lambda: collector.update_policy_weights_(parts(1)),
        collector.receive_weights,
        lambda: collector.register_scheme_receiver({}),
    ):
        with pytest.raises(hr.errors.Closed):
            call()


def test_a_policy_device_names_the_collector_inline():
    # CW2.
    pytest.importorskip("torch")
    with make(hr.Collector, policy_device="cpu") as collector:
        collector.update_policy_weights_(parts(2), worker_ids="cpu")
        assert collector.policy_version == 1
        with pytest.raises(ValueError, match="the devices are cpu"):
            collector.update_policy_weights_(parts(2), worker_ids="cuda:0")


@pytest.mark.parametrize("kind", KINDS)
def test_models(kind):
    # CW1, CW6: parts of the policy by dotted paths; several at once under one number.
    with make(kind) as collector:
        collector.update_policy_weights_(parts(5), model_id="critic")
        assert shown(collector) == (1, 0, 5, 0)
        collector.update_policy_weights_(weights=parts(6), model_id="deep.part")
        assert shown(collector) == (2, 0, 5, 6)
        collector.update_policy_weights_(weights_dict={"policy": parts(1), "deep.part": parts(2)})
        assert shown(collector) == (3, 1, 5, 2)
        collector.update_policy_weights_(weights_dict={})
        assert collector.policy_version == 3


@pytest.mark.parametrize("kind", KINDS)
def test_own_models(kind):
    # CW1: without a source the weights are those of the object that the collector was made with.
    policy = Heads()
    with make(kind, policy) as collector:
        policy.value[:], policy.critic.value[:] = 2, 3
        collector.update_policy_weights_()
        collector.update_policy_weights_(model_id="critic")
        assert shown(collector) == (2, 2, 3, 0)


def test_models_that_are_not_there():
    # CW6, CR13: before anything runs.
    with pytest.raises(ValueError, match="weight_sync_schemes.*'actor'"):
        make(hr.Collector, weight_sync_schemes={"actor": None})
    with pytest.raises(TypeError, match="weight_sync_schemes: critic: expected a publishing end"):
        make(hr.Collector, weight_sync_schemes={"critic": "shared"})
    with make(hr.Collector, weight_sync_schemes={"nets": None}) as collector:
        with pytest.raises(TypeError, match="nets: expected one with state_dict"):
            collector.update_policy_weights_(parts(1), model_id="nets")


def test_get_model():
    # CW6.
    policy = Heads()
    with make(hr.Collector, policy) as collector:
        assert collector.get_model("policy") is policy
        assert collector.get_model("critic") is policy.critic
        assert collector.get_model("deep.part") is policy.deep.part
        with pytest.raises(ValueError, match="policy, critic, deep.part, got 'actor'"):
            collector.get_model("actor")
    with hr.Collector(lambda: CounterEnv(9), policy_factory=Heads, frames_per_batch=4) as collector:
        assert isinstance(collector.get_model("policy"), Heads)
    with hr.Collector(lambda: CounterEnv(9), frames_per_batch=4) as collector:
        with pytest.raises(ValueError, match="no policy object"):
            collector.get_model("policy")


@pytest.mark.parametrize("kind", KINDS)
def test_cached_weights(kind):
    # CW6: read-only arrays of the newest published set; None before the first, and for an unknown id.
    with make(kind) as collector:
        assert collector.get_cached_weights("policy") is None
        mine = parts(4)
        collector.update_policy_weights_(mine)
        mine["value"][:] = 9
        cached = collector.get_cached_weights("policy")
        assert cached["value"].tolist() == [4, 4, 4]
        with pytest.raises(ValueError, match="read-only"):
            cached["value"][:] = 1
        assert collector.get_cached_weights("critic") is None
        assert collector.get_cached_weights("actor") is None
        collector.update_policy_weights_(parts(5))
        collector.update_policy_weights_(parts(6), model_id="critic")
        assert cached["value"].tolist() == [4, 4, 4]
        assert collector.get_cached_weights("policy")["value"].tolist() == [5, 5, 5]
        assert collector.get_cached_weights("critic")["value"].tolist() == [6, 6, 6]
        assert shown(collector) == (3, 5, 6, 0)


# ---- schemes -------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_not_updated():
    # CW1, CW7: NoSync takes no version; worker_ids make no sense with it.
    schemes = {"policy": NoSync(), "critic": None}
    with make(hr.Collector, weight_sync_schemes=schemes) as collector:
        collector.update_policy_weights_(parts(3))
        assert shown(collector) == (0, 0, 0, 0)
        with pytest.raises(TypeError, match="worker_ids: .*'policy' with NoSync"):
            collector.update_policy_weights_(parts(3), worker_ids=0)
        collector.update_policy_weights_(weights_dict={"policy": parts(3), "critic": parts(4)})
        assert shown(collector) == (1, 0, 4, 0)


def test_a_scheme_of_its_own():
    # CW7: the weights are published there too, under the same numbers; those go on from its own.
    with SharedMemory(parts(0)) as scheme:
        scheme.publish(parts(3), version=4)
        with make(hr.Collector, weight_sync_schemes={"critic": scheme}) as collector:
            receiver = scheme.receiver()
            assert shown(collector) == (4, 0, 3, 0)
            collector.update_policy_weights_(weights_dict={"policy": parts(1), "critic": parts(2)})
            assert shown(collector) == (5, 1, 2, 0)
            version, weights = receiver.read()
            assert (version, weights["value"].tolist()) == (5, [2, 2, 2])
            with pytest.raises(ValueError, match="without a publishing end"):
                collector.register_scheme_receiver({"critic": receiver})
            with pytest.raises(TypeError, match="'critic' with SharedMemory"):
                collector.update_policy_weights_(parts(1), model_id="critic", worker_ids=[0])


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_a_set_that_another_publishes_on_the_scheme_of_a_collector(kind):
    # CW6, CW7, CW8, CV2: workers read the end themselves. An inline collector publishes there, and follows what it has
    # registered. In both cases its own next set comes after that of the other.
    with SharedMemory(parts(0)) as scheme, make(kind, weight_sync_schemes={"policy": scheme}) as collector:
        collector.update_policy_weights_(parts(1))
        assert scheme.publish(parts(2)) == 2
        if kind is hr.Collector:
            assert collector.next()["own"].tolist() == [[1, 1, 1, 1]]
        collector.update_policy_weights_(parts(3))
        assert scheme.version == 3
        assert shown(collector)[:2] == (3, 3)
        assert collector.policy_version == 3


class Initialised(NoSync):
    def __init__(self):
        self.calls = []

    def init(self, *args, **kwargs):
        self.calls.append((args, kwargs))


def test_init_updater():
    # CW10.
    scheme = Initialised()
    with make(hr.Collector, weight_sync_schemes={"critic": scheme}) as collector:
        collector.init_updater(1, "two", three=3)
        assert scheme.calls == [((1, "two"), {"three": 3})]
    with make(hr.Collector) as collector:
        collector.init_updater(1, "two", three=3)
    with make(hr.Collector, weight_sync_schemes={"critic": NoSync()}) as collector:
        with pytest.raises(TypeError, match="critic: NoSync has no init"):
            collector.init_updater()


# ---- receiving -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_receiving(kind):
    # CW8: the present set is applied at once, later ones at the next step, with the publisher's numbers.
    with SharedMemory(parts(0)) as scheme, make(kind) as collector:
        scheme.publish(parts(3), version=5)
        collector.register_scheme_receiver({"policy": scheme.receiver()})
        assert collector.policy_version == 5
        assert shown(collector) == (5, 3, 0, 0)
        scheme.publish(parts(4))
        collector.receive_weights()
        assert collector.policy_version == 6
        assert shown(collector) == (6, 4, 0, 0)
        scheme.publish(parts(5))
        collector.update_policy_weights_()  # The end is asked instead of the policy object.
        assert shown(collector) == (7, 5, 0, 0)
        with pytest.raises(ValueError, match="no arguments"):
            collector.receive_weights(parts(1))
        with pytest.raises(ValueError, match="one of"):
            collector.receive_weights(parts(1), policy=Part(1))
        # Weights that are given explicitly take the next number; the publisher's next one is taken already.
        collector.update_policy_weights_(parts(8))
        assert shown(collector) == (8, 8, 0, 0)
        scheme.publish(parts(9), version=8)
        collector.receive_weights()
        assert shown(collector) == (9, 9, 0, 0)
        scheme.publish(parts(1), version=20)
        collector.receive_weights()
        assert shown(collector) == (20, 1, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_receiving_later(kind):
    # CW8: without synchronize_weights only what is published later is applied.
    with SharedMemory(parts(3)) as scheme, make(kind) as collector:
        scheme.publish(parts(4))
        collector.register_scheme_receiver({"critic": scheme.receiver()}, synchronize_weights=False)
        assert shown(collector) == (0, 0, 0, 0)
        collector.receive_weights()
        assert shown(collector) == (0, 0, 0, 0)
        scheme.publish(parts(5))
        collector.receive_weights()
        assert shown(collector) == (2, 0, 5, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_receiving_ends_that_are_refused(kind):
    with SharedMemory({"value": np.zeros(2)}) as wrong, make(kind) as collector:
        with pytest.raises(KeyError, match="'actor'"):
            collector.register_scheme_receiver({"actor": wrong.receiver()})
        with pytest.raises(TypeError, match="receiving end"):
            collector.register_scheme_receiver({"policy": parts(1)})
        with pytest.raises(TypeError, match="schemes: expected a dict of receiving ends by model, got"):
            collector.register_scheme_receiver(wrong.receiver())
        with pytest.raises(hr.SpecError, match="value"):
            collector.register_scheme_receiver({"policy": wrong.receiver()})
        assert collector.policy_version == 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_was_published_yet(kind):
    # CW8: an end without a set leaves everything as it is.
    with make(kind) as collector:
        collector.register_scheme_receiver({"policy": NoSync().receiver()})
        assert shown(collector) == (0, 0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_mirroring(kind):
    # CW9: without receiving ends the forms of CW1.
    policy = Heads()
    with make(kind, policy) as collector:
        policy.value[:] = 2
        collector.receive_weights()
        assert shown(collector) == (1, 2, 0, 0)
        collector.receive_weights(parts(3))
        collector.receive_weights(policy=Part(4))
        assert shown(collector) == (3, 4, 0, 0)
        with pytest.raises(ValueError, match="one of"):
            collector.receive_weights(parts(1), weights=parts(1))


def test_an_inline_collector_looks_at_each_step():
    # CW8: a set that is published in the middle of a batch acts from the next step on.
    with SharedMemory(parts(0)) as scheme:

        class Publishing(Heads):
            def __call__(self, observation):
                result = super().__call__(observation)
                if observation[0, 2] == 1:
                    scheme.publish(parts(7))
                return result

        with make(hr.Collector, Publishing()) as collector:
            collector.register_scheme_receiver({"policy": scheme.receiver()})
            batch = collector.next()
            assert batch["policy_version"].tolist() == [[0, 0, 1, 1]]
            assert batch["own"].tolist() == [[0, 0, 7, 7]]


def test_an_inline_update_from_another_thread():
    # CW3: between two steps, never during a forward pass; the arrays may be changed at once.
    acting, updated = threading.Event(), threading.Event()

    class Slow(Heads):
        def __call__(self, observation):
            if observation[0, 2] == 1:
                acting.set()
                assert updated.wait(40)
            return super().__call__(observation)

    with make(hr.Collector, Slow()) as collector:

        def update():
            assert acting.wait(40)
            mine = parts(7)
            collector.update_policy_weights_(mine)
            mine["value"][:] = 9
            collector.increment_version()
            updated.set()

        thread = threading.Thread(target=update)
        thread.start()
        batch = collector.next()
        thread.join()
        assert batch["policy_version"].tolist() == [[0, 0, 2, 2]]
        assert batch["own"].tolist() == [[0, 0, 7, 7]]
        assert collector.policy_version == 2
