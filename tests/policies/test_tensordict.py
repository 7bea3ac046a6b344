"""Modules on TensorDicts as policies (collectors CP2, CR11)."""

import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")
nn = pytest.importorskip("tensordict.nn")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]


def remainder(observation):
    return observation[:, 2] % 4, observation.sum(1)


def first_batch(collector_type, policy, env=lambda: CounterEnv(5), **options):
    with collector_type(env, policy, frames_per_batch=6, num_envs=2, **options) as collector:
        return collector.next(timeout=20)


def check_counted(batch):
    np.testing.assert_array_equal(batch["action"], batch["observation"][..., 2] % 4)
    np.testing.assert_array_equal(batch["total"], batch["observation"].sum(-1))


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_tensordict_module(collector_type):
    module = nn.TensorDictModule(remainder, in_keys=["observation"], out_keys=["action", "total"])
    batch = first_batch(collector_type, module)
    check_counted(batch)
    assert list(batch)[-1] == "total"


def test_nested_and_dropped_keys():
    def act(observation):
        action, total = remainder(observation)
        return action, total, total, total

    keys = ["action", ("more", "total"), "_", "total"]
    batch = first_batch(hr.Collector, nn.TensorDictModule(act, in_keys=["observation"], out_keys=keys))
    check_counted(batch)
    np.testing.assert_array_equal(batch["more.total"], batch["total"])
    assert "_" not in batch


class Named(torch.nn.Module):
    def forward(self, tensordict):
        assert tensordict.batch_size == (2,)
        assert not torch.is_grad_enabled()
        tensordict["action"], tensordict["total"] = remainder(tensordict["observation"])
        return tensordict


class Short(torch.nn.Module):
    def forward(self, td, scale=1):
        td["action"], td["total"] = remainder(td["observation"])


class Annotated(torch.nn.Module):
    def forward(self, seen: tensordict.TensorDictBase):
        action, total = remainder(seen["observation"])
        return tensordict.TensorDict({"action": action, "total": total}, seen.batch_size)


class AnnotatedText(torch.nn.Module):
    def forward(self, seen: "tensordict.TensorDict"):
        action, total = remainder(seen["observation"])
        return action, {"total": total}


@pytest.mark.parametrize("kind", [Named, Short, Annotated, AnnotatedText])
def test_other_modules_by_their_parameter(kind):
    check_counted(first_batch(hr.Collector, kind()))


@pytest.mark.parametrize("name", ["observation", "tensor_dict", "tds"])
def test_modules_with_other_names_are_fed_the_observation(name):
    scope = {"torch": torch}
    exec(
        f"class Module(torch.nn.Module):\n def forward(self, {name}):\n"
        f"  assert isinstance({name}, torch.Tensor)\n  return {name}[:, 2] % 4\n",
        scope,
    )
    batch = first_batch(hr.Collector, scope["Module"]())
    np.testing.assert_array_equal(batch["action"], batch["observation"][..., 2] % 4)


def test_trees_are_nested_keys():
    env = lambda: CounterEnv(5, layout="dict")  # noqa: E731 - one line
    module = nn.TensorDictModule(
        lambda count: count[:, 1] % 4, in_keys=[("observation", "count")], out_keys=["action"]
    )
    batch = first_batch(hr.Collector, module, env)
    np.testing.assert_array_equal(batch["action"], batch["observation"]["count"][..., 1] % 4)


def test_tuples_are_nested_keys():
    env = lambda: CounterEnv(5, layout="tuple")  # noqa: E731 - one line
    module = nn.TensorDictModule(
        lambda count: count[:, 1] % 4, in_keys=[("observation", "0")], out_keys=["action"]
    )
    batch = first_batch(hr.Collector, module, env)
    np.testing.assert_array_equal(batch["action"], batch["observation"][0][..., 1] % 4)


def test_a_module_that_writes_no_action():
    module = nn.TensorDictModule(remainder, in_keys=["observation"], out_keys=["act", "total"])
    with pytest.raises(
        hr.SpecError, match="policy: action: expected the keys action in .* got observation, act, total"
    ):
        first_batch(hr.Collector, module)


def test_a_module_that_writes_a_column_of_every_step():
    module = nn.TensorDictModule(remainder, in_keys=["observation"], out_keys=["action", "reward"])
    with pytest.raises(hr.SpecError, match="policy: the column 'reward'"):
        first_batch(hr.Collector, module)


@pytest.mark.parametrize(
    ("collector_type", "kind"),
    [(hr.AsyncCollector, "MEAN")] + [(hr.Collector, kind.name) for kind in hr.ExplorationType],
)
def test_tensordicts_own_exploration_type(collector_type, kind):
    # CR11: torchrl's context is tensordict's, under another name.
    class Telling(torch.nn.Module):
        def forward(self, td):
            number = [*nn.InteractionType].index(nn.interaction_type())
            td["action"] = torch.zeros(2, dtype=torch.int64)
            td["kind"] = torch.full((2,), number)
            return td

    batch = first_batch(collector_type, Telling(), exploration_type=hr.ExplorationType[kind])
    assert (batch["kind"] == [*nn.InteractionType].index(nn.InteractionType[kind])).all()
    assert nn.interaction_type() is None


def test_a_probabilistic_module():
    logits = torch.tensor([[0.0, 0.0, 9.0, 0.0]])
    module = nn.ProbabilisticTensorDictSequential(
        nn.TensorDictModule(
            lambda seen: logits.expand(len(seen), 4), in_keys=["observation"], out_keys=["logits"]
        ),
        nn.ProbabilisticTensorDictModule(
            in_keys=["logits"],
            out_keys=["action"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        ),
    )
    batch = first_batch(hr.Collector, module, exploration_type=hr.ExplorationType.MODE)
    assert (batch["action"] == 2).all()
    assert batch["logits"].shape == (2, 3, 4)
    (log_prob,) = [batch[name] for name in batch if name.endswith("log_prob")]
    np.testing.assert_allclose(log_prob, torch.log_softmax(logits, 1)[0, 2].item(), atol=1e-6)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_weights_of_a_tensordict_module(collector_type):
    # CP4: what state_dict gives is what an update takes.
    def module():
        linear = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.zeros_(linear.weight)
        return nn.TensorDictModule(
            torch.nn.Sequential(linear, torch.nn.Flatten(0)), in_keys=["observation"], out_keys=["value"]
        )

    class Acting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = module()

        def forward(self, td):
            td["observation"] = td["observation"].float()
            self.value(td)
            td["action"] = torch.zeros(len(td), dtype=torch.int64)
            return td

    policy, newer = Acting(), Acting()
    torch.nn.init.ones_(newer.value.module[0].weight)
    with collector_type(lambda: CounterEnv(50), policy, frames_per_batch=4) as collector:
        collector.update_policy_weights_(newer)
        batches = [collector.next(timeout=20) for _ in range(4)]  # A worker may be two ahead.
    for batch in batches:
        total = batch["observation"].sum(-1)
        np.testing.assert_array_equal(batch["value"], total * (batch["policy_version"] == 1))
    assert (batches[-1]["policy_version"] == 1).all()
