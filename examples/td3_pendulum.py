"""TD3 swings up a pendulum: a worker process collects into the learner's replay while the learner learns.

The worker writes each step once. Its 3-step transitions are cut from the steps when a batch is drawn, by a thread that
stays two batches ahead. The table's rate limiter keeps learner and worker together, one batch for each new frame:
whoever is ahead waits.

    pip install "headrace[torch]"
    python examples/td3_pendulum.py --steps 20000

The algorithm is that of S. Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (2018).
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from torch import nn
from torch.nn import functional

import headrace as hr

ENV, NUM_ENVS, LARGEST_ACTION = "Pendulum-v1", 4, 2.0
N_STEP, GAMMA, BATCH = 3, 0.98, 128
RANDOM_FRAMES = 1_000
FRAMES_PER_ROLLOUT = 20


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


class Actor(nn.Module):
    """Actions float32[n, 1] for observations float32[n, 3]; with `noise` it explores."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.net, self.noise = network(3, 1), noise

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """What acts: the collector gives a module tensors."""
        action = LARGEST_ACTION * torch.tanh(self.net(observation))
        return (action + self.noise * torch.randn_like(action)).clamp(-LARGEST_ACTION, LARGEST_ACTION)


class TwinCritic(nn.Module):
    """Two values of an action, float32[n, 2]; the lesser one is believed."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([network(4, 1), network(4, 1)])

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The values of both networks."""
        seen = torch.cat((observation, action), dim=1)
        return torch.cat([net(seen) for net in self.nets], dim=1)


class Td3:
    """The learner: one update a batch."""

    def __init__(self, actor: Actor) -> None:
        self.actor, self.critic = actor, TwinCritic()
        self.target_actor, self.target_critic = copy.deepcopy(actor), copy.deepcopy(self.critic)
        self.target_actor.noise = 0.2  # Smooths the targets.
        self.actor_optimizer = torch.optim.Adam(self.actor.net.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.updates = 0

    def update(self, data: dict[str, torch.Tensor]) -> float:
        """Learns from a batch of `hr.views.transition`; the critics' loss."""
        following = data["next_observation"]
        with torch.no_grad():
            # At the end of an episode too: the discount is 0 after termination, and gamma**n where it goes on.
            value = self.target_critic(following, self.target_actor(following)).amin(dim=1)
            target = data["reward"] + data["discount"] * value
        values = self.critic(data["observation"], data["action"])
        loss = functional.mse_loss(values, target.unsqueeze(1).expand_as(values))
        step(self.critic_optimizer, loss)
        self.updates += 1
        if self.updates % 2 == 0:
            action = LARGEST_ACTION * torch.tanh(self.actor.net(data["observation"]))
            step(self.actor_optimizer, -self.critic(data["observation"], action)[:, 0].mean())
            follow(self.target_actor, self.actor)
            follow(self.target_critic, self.critic)
        return float(loss.detach())


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step down the gradient."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def follow(target: nn.Module, source: nn.Module, share: float = 0.01) -> None:
    """Moves the target's weights a little."""
    with torch.no_grad():
        for old, new in zip(target.parameters(), source.parameters(), strict=True):
            old.lerp_(new, share)


def evaluate(actor: Actor, seed: int) -> float:
    """The mean return of 10 episodes without noise. An episode of the pendulum has 200 steps: one batch."""
    greedy = copy.deepcopy(actor)
    greedy.noise = 0.0
    with hr.Collector(ENV, greedy, frames_per_batch=2000, num_envs=10, seed=seed) as collector:
        batch = next(collector)  # float32[10, 200] rewards
    return float(batch["reward"].sum(axis=1).mean())


def main(steps: int = 20_000, seed: int = 0) -> tuple[float, list[float]]:
    """Trains for so many frames; returns the return of the trained actor, and every loss."""
    torch.manual_seed(seed)
    actor = Actor(noise=0.2)
    learner = Td3(actor)

    # Each frame beyond the random ones is worth one batch. Learner and worker may be a few rollouts apart.
    apart = 4 * FRAMES_PER_ROLLOUT * BATCH
    limiter = hr.rate_limiters.SampleToInsertRatio(BATCH, RANDOM_FRAMES, error_buffer=apart)
    table = hr.Table.uniform(100_000, name="transitions", rate_limiter=limiter)
    replay = hr.Replay(hr.collectors.signature(ENV), [table], seed=seed)
    collector = hr.AsyncCollector(
        ENV,
        actor,
        frames_per_batch=FRAMES_PER_ROLLOUT,
        total_frames=steps,
        init_random_frames=RANDOM_FRAMES,
        num_envs=NUM_ENVS,
        replay_buffer=replay,
        items=[hr.ItemRule("transitions", length=1, lookahead=N_STEP)],
        seed=seed,
    )
    views = hr.views.transition(n_step=N_STEP, gamma=GAMMA)
    loader = hr.loaders.Loader(replay, "transitions", BATCH, views=views, prefetch=2, to="torch", timeout=60)
    losses, began = [], time.perf_counter()
    with replay, collector, loader:
        collector.start()  # From here on it fills the replay by itself.
        for batch in loader:
            losses.append(learner.update(batch.data))
            if learner.updates % 20 == 0:
                collector.update_policy_weights_(actor)
            if learner.updates % 2000 == 0:
                print(f"{learner.updates:6} updates: return {evaluate(actor, seed + 1000):7.1f}")
            if learner.updates == steps - RANDOM_FRAMES:
                break
        told = collector.statistics()
    result, seconds = evaluate(actor, seed + 1000), time.perf_counter() - began
    print(f"return {result:.1f} after {told.frames} frames and {learner.updates} updates in {seconds:.0f} s")
    print(f"the worker's weights were {told.lag_mean:.1f} publications old in its last rollout")
    return result, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="frames of all copies, a multiple of 20")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small, and the worker needs a core of its own.
    main(**vars(parser.parse_args()))
