"""A replay buffer for Stable-Baselines3: `DQN(..., replay_buffer_class=ReplayBuffer)`, and SAC, TD3, DDPG alike."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

try:
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
    from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
except ImportError as error:
    raise ImportError(
        'headrace.integrations.sb3 needs Stable-Baselines3: pip install "headrace[sb3]"'
    ) from error

from headrace.integrations.lane_transitions import LaneTransitions
from headrace.integrations.priorities import Priorities
from headrace.replay.public import Replay
from headrace.spec import ArraySpec, Signature
from headrace.trajectories.writers.transition_writer import TransitionWriter
from headrace.views.view import View

if TYPE_CHECKING:
    import torch
    from gymnasium import spaces
    from numpy.typing import ArrayLike
    from stable_baselines3.common.vec_env import VecNormalize

_TABLE = "replay"


class PrioritizedSamples(NamedTuple):
    """A sample of a prioritized buffer: the fields of SB3's samples, then these.

    Attributes:
        weights: float32 `[B, 1]`: importance weights, at most 1; the loss of each transition is multiplied by its own.
        keys: uint64 `[B]`, for `ReplayBuffer.update_priorities`.
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    weights: torch.Tensor
    keys: NDArray[np.uint64]


class ReplayBuffer(SB3ReplayBuffer):
    """The replay buffer of SB3's off-policy algorithms over a `Replay`, which stores each observation once.

    The arguments up to `handle_timeout_termination` are those of SB3's own buffer, with the same meaning. An algorithm
    passes them; give the others with `replay_buffer_kwargs`. Observations may be those of a Dict space.

    A transition can be sampled when the next one of its environment is added (n-step: the next n), or its episode ends.
    A sample of a buffer that has no such transition yet ends the episodes where they are, and so does saving: a return
    of several steps does not go on over such an end.

    Args:
        buffer_size: number of transitions.
        observation_space, action_space: of one environment.
        device: of the samples; "auto" is a GPU if there is one.
        n_envs: number of environments, which are added together.
        optimize_memory_usage: no effect: no observation is stored twice in any case.
        handle_timeout_termination: True: a step whose info has a true "TimeLimit.truncated" is not `done` in samples.
        n_steps: largest number of transitions in a return; above 1 samples have `discounts`.
        gamma: the discount of one step, for n-step returns.
        priority_exponent: a transition is drawn in proportion to its priority to the power of this number, and samples
            are `PrioritizedSamples`. New transitions have the largest priority so far. None draws each as likely.
        importance_exponent: of the importance weights; 1 corrects for the priorities fully.

    Attributes:
        replay: the `Replay`, with statistics.
        priorities: its `importance_exponent` may be set at any time.

    Raises:
        ValueError: n_steps < 1, gamma outside [0, 1], or priority_exponent < 0.
        SpecError: a space whose observations are not arrays of one shape and dtype.

    >>> from gymnasium.spaces import Box, Discrete
    >>> buffer = ReplayBuffer(1000, Box(-1, 1, (3,)), Discrete(2), device="cpu")
    >>> for t in range(5):
    ...     numbers = np.full((2, 1, 3), t / 8, np.float32) + [[[0]], [[0.125]]]
    ...     observation, following = numbers.astype(np.float32)
    ...     buffer.add(observation, following, np.array([1]), np.array([1.0]), np.array([t == 4]), [{}])
    >>> buffer.sample(32).next_observations.shape, buffer.size(), buffer.replay.statistics().store.rows
    (torch.Size([32, 3]), 5, 6)
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        priority_exponent: float | None = None,
        importance_exponent: float = 0.4,
    ) -> None:
        # SB3's own buffer would allocate its arrays.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps = n_steps
        self.gamma = gamma
        self.priorities = Priorities(priority_exponent, importance_exponent)
        table = self.priorities.table(self.buffer_size * n_envs)
        # SB3 seeds NumPy's global generator, and its own buffers draw from it.
        seed = int(np.random.randint(2**31))  # noqa: NPY002
        self._use(Replay(self._signature(), [table], seed=seed))

    def _signature(self) -> Signature:
        action_dtype = self._maybe_cast_dtype(self.action_space.dtype)
        return Signature(
            {
                "observation": self._observation_specs(),
                "action": ArraySpec((self.action_dim,), action_dtype),
                "reward": ArraySpec((), np.float32),
                "terminated": ArraySpec((), np.bool_),
                "truncated": ArraySpec((), np.bool_),
            }
        )

    def _observation_specs(self) -> Any:
        if isinstance(self.obs_shape, dict):
            return {
                name: ArraySpec(shape, self.observation_space[name].dtype)
                for name, shape in self.obs_shape.items()
            }
        return ArraySpec(self.obs_shape, self.observation_space.dtype)

    def _use(self, replay: Replay) -> None:
        """Writes to a replay and samples from it."""
        self.replay = replay
        self._writer = TransitionWriter(
            replay, _TABLE, self.n_steps, self.gamma, lanes=self.n_envs, autoreset="disabled"
        )
        self._transitions = LaneTransitions(self._writer, replay.signature, self.n_envs)
        self._views = dict(self._writer.views)
        if self.n_steps > 1:
            # VecNormalize clips each reward of a return.
            self._views["rewards"] = View("reward", shift=f"0:{self.n_steps - 1}")
        # An algorithm closes no buffer. At the end of the process nothing has to be closed.
        weakref.finalize(self, _close, self._writer, replay).atexit = False

    # ---- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a transition of each environment.

        Args:
            obs: the observations, `[n_envs, ...]`; a dict of arrays for a Dict space.
            next_obs: the observations after the actions; of an episode that ended its last one.
            action: of each environment.
            reward: of each action.
            done: whether the episode ended, in whatever way.
            infos: of each environment.

        Raises:
            SpecError: an array does not fit the space; nothing was added.
        """
        ended = np.asarray(done, np.bool_).reshape(self.n_envs)
        timeouts = np.zeros(self.n_envs, np.bool_)
        if self.handle_timeout_termination:
            timeouts[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        self._transitions.add(
            self._read(obs),
            np.reshape(action, (self.n_envs, self.action_dim)),
            reward,
            ended & ~timeouts,
            timeouts,
            self._read(next_obs),
        )
        self.pos = (self.pos + 1) % self.buffer_size
        self.full |= self.pos == 0

    def _read(self, observation: Any) -> Any:
        """Returns observations in the shapes that are stored: a number of a Discrete space has an axis of 1."""
        if isinstance(self.obs_shape, dict):
            return {
                name: np.reshape(observation[name], (self.n_envs, *shape))
                for name, shape in self.obs_shape.items()
            }
        return np.reshape(observation, (self.n_envs, *self.obs_shape))

    def reset(self) -> None:
        """Removes all transitions."""
        super().reset()
        self._writer.reset(write_cached_steps=False)
        self._transitions.forget()
        self.replay.reset(_TABLE)

    def cut_episodes(self) -> None:
        """Ends the episodes where they are, without a flag, so that all transitions can be sampled."""
        self._writer.reset()
        self._transitions.forget()

    @property
    def dones(self) -> _Dones:
        """The array that SB3 writes when `learn` begins anew with `optimize_memory_usage`: it ends the episodes."""
        return _Dones(self)

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def sample(
        self, batch_size: int, env: VecNormalize | None = None
    ) -> ReplayBufferSamples | DictReplayBufferSamples | PrioritizedSamples:
        """Draws transitions, each by itself: one may come twice.

        Args:
            batch_size: number B of transitions.
            env: normalizes observations and rewards; None leaves them as they are.

        Returns:
            Tensors `[B, ...]`, of a Dict space dicts of them. `dones`, float32 `[B, 1]`, is 1 where an episode ended
            other than by a time limit. With n_steps > 1, `rewards` are n-step returns, `next_observations` come after
            them, and `discounts`, float32 `[B, 1]`, is the discount of what follows.

        Raises:
            ValueError: the buffer is empty, or batch_size < 1.
        """
        if not len(self.replay.table(_TABLE)):
            self.cut_episodes()
            if not len(self.replay.table(_TABLE)):
                raise ValueError("sample: the buffer is empty; add transitions first")
        sampled = self.replay.sample(_TABLE, batch_size, views=self._views, timeout=0)
        data = sampled.data
        discounts = self.gamma ** data["n"].astype(np.float32)[:, None] if self.n_steps > 1 else None
        fields = (
            self._to_tensors(self._normalize_obs(data["observation"], env)),
            self._to_tensors(data["action"]),
            self._to_tensors(self._normalize_obs(data["next_observation"], env)),
            self._to_tensors(data["terminated"].astype(np.float32)[:, None]),
            self._to_tensors(self._returns(data, env)[:, None]),
            None if discounts is None else self._to_tensors(discounts),
        )
        if self.priorities.exponent is not None:
            weights = self._to_tensors(self.priorities.weights(sampled.info)[:, None])
            return PrioritizedSamples(*fields, weights, sampled.info.keys)
        return (DictReplayBufferSamples if isinstance(self.obs_shape, dict) else ReplayBufferSamples)(*fields)

    def update_priorities(self, keys: ArrayLike, priorities: torch.Tensor | ArrayLike) -> None:
        """Sets the priorities of transitions; those that were removed since are ignored.

        Args:
            keys: of a sample, `[B]`.
            priorities: such as the absolute errors of the sample and a small number, `[B]` or `[B, 1]`.

        Raises:
            ValueError: the buffer has no priorities; or one is negative or not finite. Nothing changes.
        """
        self.priorities.update(self.replay, _TABLE, keys, priorities)

    def _returns(self, data: Any, env: VecNormalize | None) -> NDArray[np.float32]:
        """float32[B]: the n-step returns of rewards that are normalized each by itself."""
        if env is None or self.n_steps == 1:
            return self._normalize_reward(data["reward"], env)
        rewards = self._normalize_reward(data["rewards"], env)
        return rewards @ (self.gamma ** np.arange(self.n_steps, dtype=np.float32))

    def _to_tensors(self, tree: Any) -> Any:
        """Tensors on the buffer's device, over the same memory if that is possible."""
        if isinstance(tree, dict):
            return {name: self.to_torch(array, copy=False) for name, array in tree.items()}
        return self.to_torch(tree, copy=False)

    # ---- saving ------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """The settings, and a checkpoint of the replay as bytes of files; for `save_replay_buffer`."""
        self.cut_episodes()
        state = {name: value for name, value in vars(self).items() if name not in _MADE_FROM_REPLAY}
        with tempfile.TemporaryDirectory() as folder:
            path = self.replay.save(folder)
            files = {
                str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()
            }
        return state | {"files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("files")
        vars(self).update(state)
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            self._use(Replay.load(folder))


_MADE_FROM_REPLAY = {"replay", "_writer", "_transitions", "_views"}


class _Dones:
    """Ends the episodes of a buffer when an item is set."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    def __setitem__(self, index: SupportsIndex, value: object) -> None:
        self._buffer.cut_episodes()


def _close(writer: TransitionWriter, replay: Replay) -> None:
    writer.close()
    replay.close()
