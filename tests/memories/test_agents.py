"""Memories part 9: agents of skrl on our memory end with the weights that they have on skrl's own, bit for bit.

For skrl 1.4 and for 2.x: whichever is installed.
"""

import logging

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
skrl = pytest.importorskip("skrl")

import headrace as hr  # noqa: E402

OLD = int(skrl.__version__.split(".")[0]) < 2

pytestmark = [pytest.mark.filterwarnings("ignore")]

if OLD:
    from skrl.agents.torch.dqn import DQN, DQN_DEFAULT_CONFIG
    from skrl.agents.torch.ppo import PPO, PPO_DEFAULT_CONFIG
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
else:
    from skrl.agents.torch.dqn import DQN, DQN_CFG
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.envs.wrappers.torch import wrap_env  # noqa: E402
from skrl.memories.torch import RandomMemory as SkrlMemory  # noqa: E402
from skrl.trainers.torch import SequentialTrainer  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("skrl").setLevel(logging.ERROR)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def spaces(env):
    return {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}


def network(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.Tanh(), torch.nn.Linear(16, outputs))


def observation(inputs):
    return inputs["states"] if OLD else inputs["observations"]


class Policy(CategoricalMixin, Model):
    def __init__(self, env):
        Model.__init__(self, **spaces(env))
        CategoricalMixin.__init__(self, unnormalized_log_prob=True)
        self.net = network(4, 2)

    def compute(self, inputs, role=""):
        return self.net(observation(inputs)), {}


class Value(DeterministicMixin, Model):
    def __init__(self, env, outputs=1):
        Model.__init__(self, **spaces(env))
        DeterministicMixin.__init__(self)
        self.net = network(4, outputs)

    def compute(self, inputs, role=""):
        return self.net(observation(inputs)), {}


class FlatActions(gym.vector.VectorActionWrapper):
    """skrl 1.4 gives discrete actions as (N, 1)."""

    def actions(self, actions):
        return np.reshape(actions, -1)


EXPERIMENT = {"write_interval": 0, "checkpoint_interval": 0}


def settings(name, **values):
    if OLD:
        base = {"PPO": lambda: PPO_DEFAULT_CONFIG, "DQN": lambda: DQN_DEFAULT_CONFIG}[name]().copy()
        return base | values | {"experiment": dict(base["experiment"], **EXPERIMENT)}
    config = {"PPO": lambda: PPO_CFG, "DQN": lambda: DQN_CFG}[name]()(**values)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    return config


def ppo(env, memory):
    models = {"policy": Policy(env), "value": Value(env)}
    config = settings("PPO", rollouts=8, learning_epochs=2, mini_batches=4)
    return PPO(models=models, memory=memory, cfg=config, **spaces(env))


def dqn(env, memory):
    models = {"q_network": Value(env, 2), "target_q_network": Value(env, 2)}
    config = settings("DQN", learning_starts=10, batch_size=16, random_timesteps=5)
    return DQN(models=models, memory=memory, cfg=config, **spaces(env))


def trained(make_agent, make_memory, steps):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - what skrl draws from
    vector = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    vector.reset(seed=0)
    vector.action_space.seed(0)
    vector.single_action_space.seed(0)
    env = wrap_env(FlatActions(vector), verbose=False)
    agent = make_agent(env, make_memory(env.num_envs))
    trainer = SequentialTrainer(
        env=env, agents=agent, cfg={"timesteps": steps, "headless": True, "disable_progressbar": True}
    )
    trainer.train()
    env.close()
    names = ("policy", "value") if make_agent is ppo else ("q_network", "target_q_network")
    return [value for name in names for value in agent.models[name].state_dict().values()]


# Four mini-batches of 16 rows: skrl 1.4 drops the rest where it does not come out even.
# A PPO of skrl 2.1 draws its epochs with `sample`, and needs replacement=False for that.
@pytest.mark.parametrize(
    ("make_agent", "size", "steps", "replacement"),
    [(ppo, 8, 40, False), (dqn, 30, 60, True), (dqn, 200, 60, False)],
)
def test_the_same_weights_bit_for_bit(make_agent, size, steps, replacement):
    def memory_of(cls):
        return lambda num_envs: cls(
            memory_size=size, num_envs=num_envs, device="cpu", replacement=replacement
        )

    ours = trained(make_agent, memory_of(hr.memories.RandomMemory), steps)
    theirs = trained(make_agent, memory_of(SkrlMemory), steps)
    untrained = trained(make_agent, memory_of(SkrlMemory), 1)
    assert all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))
    assert not all(torch.equal(left, right) for left, right in zip(ours, untrained, strict=True))
