"""Which exploration type holds while a policy is called, and the actions of distributions (collectors CR11)."""

import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.errors import SpecError
from headrace.policies import exploring
from headrace.testing import CounterEnv

torch = pytest.importorskip("torch")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = list(hr.ExplorationType)
COLLECTORS = [hr.Collector, hr.AsyncCollector]


def as_number(observation):
    """The number of the exploration type that holds, as action."""
    return np.full(len(observation), list(hr.ExplorationType).index(hr.exploration_type()))


@pytest.mark.parametrize(
    ("collector_type", "kind"),
    [(hr.AsyncCollector, hr.ExplorationType.MEAN)] + [(hr.Collector, kind) for kind in KINDS],
)
def test_a_policy_can_ask_for_the_type(collector_type, kind):
    with collector_type(
        lambda: CounterEnv(5), as_number, frames_per_batch=3, exploration_type=kind
    ) as collector:
        batch = collector.next(timeout=20)
    assert (batch["action"] == KINDS.index(kind)).all()
    assert hr.exploration_type() is hr.ExplorationType.RANDOM


def test_random_is_the_default():
    with hr.Collector(lambda: CounterEnv(5), as_number, frames_per_batch=3) as collector:
        assert (collector.next()["action"] == KINDS.index(hr.ExplorationType.RANDOM)).all()


def test_the_type_before_holds_again_after_an_error():
    def fail(_):
        raise KeyError("x")

    inner = exploring(fail, hr.ExplorationType.MEAN)

    def outer(inputs):
        with pytest.raises(KeyError):
            inner(inputs)
        return hr.exploration_type()

    assert exploring(outer, hr.ExplorationType.MODE)({}) is hr.ExplorationType.MODE
    assert hr.exploration_type() is hr.ExplorationType.RANDOM


def test_the_type_is_that_of_the_calling_thread():
    seen = []

    def outer(_):
        thread = threading.Thread(target=lambda: seen.append(hr.exploration_type()))
        thread.start()
        thread.join()

    exploring(outer, hr.ExplorationType.MODE)({})
    assert seen == [hr.ExplorationType.RANDOM]


@pytest.mark.parametrize("collector_type", COLLECTORS)
@pytest.mark.parametrize("value", ["random", 0, "MODE", True])
def test_other_values(collector_type, value):
    with pytest.raises(ValueError, match="exploration_type: expected None or a member of hr.ExplorationType"):
        collector_type(lambda: CounterEnv(5), as_number, frames_per_batch=3, exploration_type=value)


# ---- distributions -------------------------------------------------------------------------------------------------


class Returning(torch.nn.Module):
    """Returns what `make` gives for the number of rows."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, observation):
        return self.make(len(observation))


class FloatActions(CounterEnv):
    """A counter with actions in the plane."""

    def __init__(self):
        from gymnasium import spaces

        super().__init__(5)
        self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def step(self, action):
        return super().step(0)


def collected(policy, kind, env=FloatActions, **options):
    with hr.Collector(
        env, policy, frames_per_batch=4, num_envs=2, exploration_type=kind, **options
    ) as collector:
        return collector.next()


def log_normal(rows):
    return torch.distributions.LogNormal(torch.zeros(rows, 2), torch.ones(rows, 2))


def uniform(rows):
    # torch gives NaN for the mode, which no uniform distribution has.
    return torch.distributions.Uniform(torch.zeros(rows, 2), torch.ones(rows, 2))


def without_mode(rows):
    return torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(rows, 2, 3)),
        torch.distributions.Normal(torch.full((rows, 2, 3), 7.0), 1.0),
    )


def partly_without_mode(rows):
    # torch gives NaN for the mode of a Beta that is uniform.
    return torch.distributions.Beta(torch.tensor([[1.0, 3.0]] * rows), torch.tensor([[1.0, 2.0]] * rows))


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [
        (log_normal, "MODE", [np.exp(-1.0)] * 2),
        (log_normal, "MEAN", [np.exp(0.5)] * 2),
        (log_normal, "DETERMINISTIC", [np.exp(-1.0)] * 2),
        (uniform, "MEAN", [0.5] * 2),
        (uniform, "DETERMINISTIC", [0.5] * 2),
        (without_mode, "MEAN", [7.0] * 2),
        (without_mode, "DETERMINISTIC", [7.0] * 2),
    ],
)
def test_a_distribution_gives_its_mode_or_mean(make, kind, expected):
    batch = collected(Returning(make), hr.ExplorationType[kind])
    np.testing.assert_allclose(batch["action"], np.broadcast_to(expected, (2, 2, 2)), rtol=1e-6)


def test_the_mean_stands_for_single_elements_without_a_mode():
    assert partly_without_mode(1).mode.isnan().tolist() == [[True, False]]
    batch = collected(Returning(partly_without_mode), hr.ExplorationType.DETERMINISTIC)
    np.testing.assert_allclose(batch["action"], np.broadcast_to([1 / 2, 2 / 3], (2, 2, 2)), rtol=1e-6)


def test_random_samples():
    torch.manual_seed(3)
    batch = collected(Returning(log_normal), hr.ExplorationType.RANDOM)
    torch.manual_seed(3)
    expected = [log_normal(2).sample().numpy() for _ in range(2)]
    np.testing.assert_array_equal(batch["action"], np.stack(expected, 1))
    assert len(np.unique(batch["action"])) == 8


@pytest.mark.parametrize(
    ("make", "kind", "what"),
    [(uniform, "MODE", "Uniform has no mode"), (without_mode, "MODE", "MixtureSameFamily has no mode")],
)
def test_a_distribution_without_what_is_asked_for(make, kind, what):
    with pytest.raises(SpecError, match=f"action: the policy's {what}, which exploration_type asks for"):
        collected(Returning(make), hr.ExplorationType[kind])


def test_a_distribution_without_mode_and_mean():
    def squashed(rows):
        base = torch.distributions.Normal(torch.zeros(rows, 2), torch.ones(rows, 2))
        return torch.distributions.TransformedDistribution(base, [torch.distributions.TanhTransform()])

    with pytest.raises(SpecError, match="TransformedDistribution has no mode and no mean"):
        collected(Returning(squashed), hr.ExplorationType.DETERMINISTIC)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_distribution_beside_columns_of_a_module(collector_type):
    def make(rows):
        logits = torch.zeros(rows, 4)
        logits[:, 2] = 5.0
        logits.requires_grad_()
        return torch.distributions.Categorical(logits=logits), {"logits": logits}

    with collector_type(
        lambda: CounterEnv(5), Returning(make), frames_per_batch=4, exploration_type=hr.ExplorationType.MODE
    ) as collector:
        batch = collector.next(timeout=20)
    assert (batch["action"] == 2).all()
    assert batch["logits"].shape == (1, 4, 4)


def test_a_distribution_of_a_plain_callable_and_of_compute_actions():
    class Computes:
        def compute_actions(self, input_dict):
            return log_normal(len(input_dict["observation"]))

    for policy in (lambda seen: log_normal(len(seen)), Computes()):
        batch = collected(policy, hr.ExplorationType.MEAN)
        np.testing.assert_allclose(batch["action"], np.full((2, 2, 2), np.exp(0.5)), rtol=1e-6)
