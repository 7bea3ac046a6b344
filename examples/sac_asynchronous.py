"""SAC while worker processes fill the replay: a pendulum is swung up.

Workers write each step once into the learner's replay. A thread draws batches ahead. The table's rate limiter keeps
learner and workers together, one batch for each new frame: whoever is ahead waits.

    pip install "headrace[torch]"
    python examples/sac_asynchronous.py --steps 8000

The algorithm is that of T. Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (2018), with a temperature
that is learnt.
"""

from __future__ import annotations

import argparse
import copy
import time

import gymnasium
import torch
from torch import nn
from torch.distributions import Normal

import headrace as hr

# Any environment whose observations are vectors and whose actions are vectors within bounds.
ENV = "Pendulum-v1"
WORKERS, NUM_ENVS, STEPS = 2, 2, 10  # Each worker reports after STEPS steps of its NUM_ENVS environments.
RANDOM_FRAMES, CAPACITY = 1_000, 100_000
BATCH, BATCHES_PER_FRAME, GAMMA, LEARNING_RATE, TARGET_SHARE = 256, 1.0, 0.99, 1e-3, 0.01
UPDATES_PER_PUBLICATION = 20  # The workers get new weights this often.


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


class Actor(nn.Module):
    """A normal distribution of actions, squashed into the bounds of the action space."""

    def __init__(self, observations: int, low: torch.Tensor, high: torch.Tensor) -> None:
        super().__init__()
        self.net = network(observations, 2 * len(low))
        self.register_buffer("middle", (high + low) / 2)
        self.register_buffer("reach", (high - low) / 2)

    def sample(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions float32[n, d] with their gradients, and their log probabilities float32[n]."""
        mean, log_std = self.net(observation).chunk(2, dim=-1)
        normal = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        squashed = torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(self.reach * (1 - squashed.square()) + 1e-6)
        return self.middle + self.reach * squashed, log_prob.sum(-1)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """What acts: a sample, or the middle of the distribution where the collector asks for the mode."""
        if hr.exploration_type() is hr.ExplorationType.MODE:
            mean, _ = self.net(observation).chunk(2, dim=-1)
            return self.middle + self.reach * torch.tanh(mean)
        return self.sample(observation)[0]


class TwinCritic(nn.Module):
    """Two values of an action, float32[n, 2]; the lesser one is believed."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList([network(inputs, 1), network(inputs, 1)])

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The values of both networks."""
        seen = torch.cat((observation, action), dim=1)
        return torch.cat([net(seen) for net in self.nets], dim=1)


class Sac:
    """The learner: one update a batch."""

    def __init__(self) -> None:
        with gymnasium.make(ENV) as env:
            observations = env.observation_space.shape[0]
            low, high = torch.as_tensor(env.action_space.low), torch.as_tensor(env.action_space.high)
        self.actor, self.critic = Actor(observations, low, high), TwinCritic(observations + len(low))
        self.target = copy.deepcopy(self.critic)
        self.log_temperature = torch.zeros((), requires_grad=True)
        self.least_entropy = -float(len(low))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=LEARNING_RATE)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=LEARNING_RATE)
        self.temperature_optimizer = torch.optim.Adam([self.log_temperature], lr=LEARNING_RATE)

    def update(self, data: dict[str, torch.Tensor]) -> float:
        """Learns from a batch of `hr.views.transition`; returns the critics' loss."""
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            action, log_prob = self.actor.sample(data["next_observation"])
            value = self.target(data["next_observation"], action).amin(dim=1) - temperature * log_prob
            # The discount is 0 after a termination only: a truncated episode goes on with the value of what followed.
            goal = data["reward"] + data["discount"] * value
        values = self.critic(data["observation"], data["action"])
        loss = (values - goal.unsqueeze(1)).square().mean()
        step(self.critic_optimizer, loss)

        action, log_prob = self.actor.sample(data["observation"])
        value = self.critic(data["observation"], action).amin(dim=1)
        step(self.actor_optimizer, (temperature * log_prob - value).mean())
        surplus = -log_prob.detach().mean() - self.least_entropy
        step(self.temperature_optimizer, self.log_temperature.exp() * surplus)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.lerp_(new, TARGET_SHARE)
        return float(loss.detach())


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step down the gradient."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def evaluate(actor: Actor, seed: int) -> float:
    """The mean return of 10 episodes without noise. An episode of the pendulum has 200 steps: one batch."""
    with hr.Collector(
        ENV, actor, frames_per_batch=2000, num_envs=10, exploration_type=hr.ExplorationType.MODE, seed=seed
    ) as collector:
        return float(collector.next()["reward"].sum(axis=1).mean())


def new_replay(seed: int) -> hr.Replay:
    """Transitions, of which each new one beyond the random ones is worth BATCHES_PER_FRAME batches."""
    samples = BATCH * BATCHES_PER_FRAME
    apart = 4 * WORKERS * NUM_ENVS * STEPS * samples  # Learner and workers may be this far apart.
    limiter = hr.rate_limiters.SampleToInsertRatio(samples, RANDOM_FRAMES, error_buffer=apart)
    table = hr.Table.uniform(CAPACITY, name="transitions", rate_limiter=limiter)
    return hr.Replay(hr.collectors.signature(ENV), [table], seed=seed)


def main(steps: int = 8_000, seed: int = 0) -> tuple[float, list[float]]:
    """Trains until so many frames are collected; returns the return of the trained actor, and every loss."""
    torch.manual_seed(seed)
    learner = Sac()
    replay = new_replay(seed)
    collector = hr.MultiCollector(
        ENV,
        learner.actor,
        sync=False,
        num_workers=WORKERS,
        num_envs=NUM_ENVS,
        frames_per_batch=NUM_ENVS * STEPS,
        total_frames=steps,
        init_random_frames=RANDOM_FRAMES,
        replay_buffer=replay,  # Each transition is an item of its table; `items` makes others.
        seed=seed,
    )
    loader = hr.loaders.Loader(
        replay, "transitions", BATCH, views=hr.views.transition(gamma=GAMMA), to="torch", timeout=60
    )
    losses: list[float] = []
    began = time.perf_counter()
    with replay, collector, loader:
        collector.start()  # From here on the workers fill the replay by themselves.
        for batch in loader:
            losses.append(learner.update(batch.data))
            if len(losses) % UPDATES_PER_PUBLICATION == 0:
                collector.update_policy_weights_(learner.actor)
            if len(losses) % 1000 == 0:
                print(f"{len(losses):6} updates: return {evaluate(learner.actor, seed + 1000):7.1f}")
            if len(losses) >= (steps - RANDOM_FRAMES) * BATCHES_PER_FRAME:
                break
        told = collector.statistics()
    result, seconds = evaluate(learner.actor, seed + 1000), time.perf_counter() - began
    print(f"return {result:.1f} after {told.frames:,} frames and {len(losses):,} updates in {seconds:.0f} s")
    print(
        f"the workers waited {told.wait_seconds:.0f} s; their weights were {told.lag_mean:.1f} publications old"
    )
    return result, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=8_000, help="frames of all environments, a multiple of 20"
    )
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small, and the workers need the cores.
    main(**vars(parser.parse_args()))
