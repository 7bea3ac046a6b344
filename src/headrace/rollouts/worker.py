"""`RolloutWorker`: steps environments with policies and returns batches, as RLlib's sample collection does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch
from headrace.checks import shown
from headrace.closing import Closing
from headrace.envs.agents import check_agents_act_together, is_multi_agent, possible_agents
from headrace.envs.columns import EnvironmentColumns
from headrace.errors import Closed
from headrace.policies import check_policy
from headrace.rollouts.agents.game import Game
from headrace.rollouts.agents.lanes import AgentLanes
from headrace.rollouts.agents.loop import MultiAgentLoop
from headrace.rollouts.agents.one_agent import OneAgent
from headrace.rollouts.callbacks import Calls
from headrace.rollouts.detection import Detection
from headrace.rollouts.environments import (
    close_environments,
    create_environments,
    raise_limit,
)
from headrace.rollouts.fragments import Fragments
from headrace.rollouts.lanes.keyed_lanes import KeyedLanes, takes_steps
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.postprocessing import Postprocessing
from headrace.rollouts.samplers import AsyncSampler, StopFlag, SyncSampler
from headrace.rollouts.settings import Settings
from headrace.rollouts.single_agent import SingleAgentLoop
from headrace.spec import Signature
from headrace.views import View
from headrace.views.view import check_views

DEFAULT_POLICY = "default_policy"


class RolloutWorker(Closing):
    """Steps environments with one policy or several, and returns their rows in batches.

    Close it, or use it as a context manager: this closes the environments and ends the thread of `sample_async`.

    Args:
        env_creator: returns a new gymnasium environment, or one with several agents; called `num_envs` times. If it has
            a positional argument, it gets a context with `worker_index` and `env_index`.
        policy: a callable from observations `[B, ...]` to actions `[B, ...]`; an object with
            `compute_actions(input_dict)`; or a dict of policies by id.
        batch_mode: "truncate_episodes": a batch has `rollout_fragment_length` steps of each environment.
            "complete_episodes": it has one whole episode of each.
        rollout_fragment_length: steps of each environment in a batch.
        count_steps_by: "env_steps" or "agent_steps", the unit of the fragment length.
        num_envs: N.
        horizon: the most steps of an episode; None: the environment's own limit.
        soft_horizon: whether an environment goes on at the horizon, without a reset, with a new episode id.
        no_done_at_end: whether the last rows of episodes have no flag.
        policy_mapping_fn: maps `(agent_id, episode)` to a policy id, once for each agent and episode.
        views: further columns of the batches, and of what policies see.
        callbacks: an object or a class with methods of `hr.rollouts.Callbacks`.
        sample_collector: a class derived from `hr.SampleCollector`, or another callable that makes such an object.
        max_seq_len: the longest sequence of recurrent policies; None: no sequences.
        sample_async: whether a thread steps ahead.
        detect_columns: whether columns that the policy's `loss` does not read are left out.
        seed: environment i is first reset with `seed + i`; None seeds nothing.
        worker_index: what the contexts of `env_creator` say, where several workers share one creator.

    Attributes:
        policy_map: policies by id.
        views: the worker's views; a change holds from the next `sample`.
        envs: the environments.
        sampler: the source of batches.
        pruned: by policy id, the columns that `detect_columns` left out.

    Raises:
        ValueError: a setting that is not legal.
        SpecError: spaces or views that do not fit.
        TypeError: an argument of another type.

    >>> import gymnasium
    >>> import numpy as np
    >>> def policy(observation):
    ...     return np.zeros(len(observation), np.int64)
    >>> def create():
    ...     return gymnasium.make("CartPole-v1")
    >>> with RolloutWorker(create, policy, rollout_fragment_length=5, num_envs=2) as worker:
    ...     batch = worker.sample()
    >>> batch.count, batch["next_observation"].shape, batch["t"]
    (10, (10, 4), array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4]))
    """

    # Rules: views-rollouts R1 to R16

    def __init__(
        self,
        env_creator: Callable[..., Any],
        policy: Any,
        *,
        batch_mode: str = "truncate_episodes",
        rollout_fragment_length: int = 200,
        count_steps_by: str = "env_steps",
        num_envs: int = 1,
        horizon: int | None = None,
        soft_horizon: bool = False,
        no_done_at_end: bool = False,
        policy_mapping_fn: Callable[[Any, Any], str] | None = None,
        views: Mapping[str, View] | None = None,
        callbacks: Any = None,
        sample_collector: Any = None,
        max_seq_len: int | None = None,
        sample_async: bool = False,
        detect_columns: bool = True,
        seed: int | None = None,
        worker_index: int = 0,
    ) -> None:
        self._settings = Settings(
            batch_mode=batch_mode,
            rollout_fragment_length=rollout_fragment_length,
            count_steps_by=count_steps_by,
            num_envs=num_envs,
            horizon=horizon,
            soft_horizon=soft_horizon,
            no_done_at_end=no_done_at_end,
            max_seq_len=max_seq_len,
            seed=seed,
            worker_index=worker_index,
        )
        self.policy_map = _policy_map(policy, policy_mapping_fn)
        self._mapping = policy_mapping_fn
        if sample_collector is not None and not callable(sample_collector):
            raise TypeError(
                "sample_collector: expected a class derived from hr.SampleCollector, or another callable that makes "
                f"such an object, got {shown(sample_collector)}"
            )
        self._sample_collector = sample_collector
        check_views(views or {})
        self.views: dict[str, View] = dict(views or {})
        self._calls = Calls(callbacks, self)
        self._detection = Detection(is_on=detect_columns)
        self._closed = False
        # By thread: a batch that `sample` did not return, because Ctrl-C came while a callback had it.
        self._unreturned: dict[int, SampleBatch | MultiAgentBatch] = {}
        self._stop = StopFlag()
        self.envs = create_environments(env_creator, num_envs, worker_index)
        try:
            if horizon is not None:
                for env in self.envs:
                    raise_limit(env, horizon)
            self._loop = self._make_loop()
        except BaseException:
            close_environments(self.envs)
            raise
        self.sampler: SyncSampler | AsyncSampler = (
            AsyncSampler(self._collect, self._stop) if sample_async else SyncSampler(self._collect)
        )

    @property
    def pruned(self) -> dict[str, frozenset[str]]:
        """By policy id, the names of the columns that its loss does not read."""
        return self._detection.pruned

    def sample(self) -> SampleBatch | MultiAgentBatch:
        """Returns the next batch: a `SampleBatch`, or a `MultiAgentBatch` of several agents or policies.

        An error of an environment drops its running episode; the next call resets that environment. Where Ctrl-C ends
        `on_sample_end`, the next call returns the batch.

        Raises:
            Closed: after `close`.
            SpecError: a policy, a view or an environment does not fit.
            Exception: any error of an environment, a policy or a callback, unchanged.
        """
        if self._closed:
            raise Closed("sample: the worker is closed")
        me = threading.get_ident()
        if me in self._unreturned:
            batch = self._unreturned[me]
            del self._unreturned[me]
        else:
            batch = self.sampler.get_data()
        # No call between these: Ctrl-C comes before the batch is taken, or in the callback.
        if self._calls.sample_end is not None:
            try:
                self._calls.sample_end(samples=batch)
            except KeyboardInterrupt:
                self._unreturned[me] = batch
                raise
        return batch

    def close(self) -> None:
        """Closes the environments. More calls do nothing."""
        if not self._closed:
            self._closed = True
            self.sampler.close()
            close_environments(self.envs)

    def _collect(self) -> SampleBatch | MultiAgentBatch:
        return self._loop.collect(self.views)

    def _make_loop(self) -> SingleAgentLoop | MultiAgentLoop:
        postprocessing = Postprocessing(self.policy_map, self._calls)
        several = [is_multi_agent(env) for env in self.envs]
        if any(several) and not all(several):
            raise TypeError("env_creator: expected environments with several agents always, or never")
        if all(several):
            for index, env in enumerate(self.envs):
                check_agents_act_together(env, index)
            return self._make_multi(postprocessing, self.envs)
        if len(self.policy_map) > 1:
            return self._make_multi(postprocessing, [OneAgent(env) for env in self.envs])
        return self._make_single(postprocessing)

    def _make_single(self, postprocessing: Postprocessing) -> SingleAgentLoop:
        # Here, so that batches can be used where gymnasium is not loaded.
        from headrace.envs.adapters.gymnasium_single import SingleEnvStepper

        stepper = SingleEnvStepper(self.envs)
        policy_id = next(iter(self.policy_map))
        observed = Signature({"observation": stepper.observation_signature.tree["observation"]})
        lanes = self._make_lanes(policy_id, observed, stepper.action_signature, postprocessing, several=False)
        lanes.use(self.views)
        return SingleAgentLoop(
            self._settings,
            stepper,
            lanes,
            Fragments({policy_id: lanes}, postprocessing, self._detection),
            self._calls,
            self._stop,
            follows_episodes=self._follows_episodes(postprocessing),
        )

    def _follows_episodes(self, postprocessing: Postprocessing) -> bool:
        """Whether a callback or a policy is given episodes."""
        return self._calls.follow_episodes or postprocessing.is_needed

    def _make_multi(self, postprocessing: Postprocessing, envs: Sequence[Any]) -> MultiAgentLoop:
        policies: dict[str, PolicyLanes] = {}

        def make_lanes(policy_id: str, columns: EnvironmentColumns) -> PolicyLanes:
            return self._make_lanes(
                policy_id, columns.observation, columns.acted, postprocessing, several=True
            )

        lanes = AgentLanes(policies, make_lanes, envs[0])
        lanes.use(self.views)
        if len(self.policy_map) == 1 and (agents := possible_agents(envs[0])):
            lanes.add_policy(next(iter(self.policy_map)), agents[0])
        return MultiAgentLoop(
            self._settings,
            [Game(env, index) for index, env in enumerate(envs)],
            lanes,
            Fragments(policies, postprocessing, self._detection, lanes.others),
            self._calls,
            self._stop,
            self._policy_id,
            follows_episodes=self._follows_episodes(postprocessing) or self._mapping is not None,
        )

    def _make_lanes(
        self,
        policy_id: str,
        observed: Signature,
        acted: Signature,
        postprocessing: Postprocessing,
        *,
        several: bool,
    ) -> PolicyLanes:
        make: Callable[..., PolicyLanes] = PolicyLanes
        if takes_steps(self._sample_collector):
            make = partial(KeyedLanes, self._sample_collector)
        return make(
            policy_id,
            self.policy_map[policy_id],
            observed,
            acted,
            lanes=self._settings.num_envs,
            max_seq_len=self._settings.max_seq_len,
            stored_env_t=several,
            shows_all=postprocessing.is_needed,
        )

    def _policy_id(self, agent_id: Any, episode: Any) -> str:
        """Maps an agent to a policy."""
        # Rules: views-rollouts M2
        if self._mapping is None:
            return next(iter(self.policy_map))
        policy_id = self._mapping(agent_id, episode)
        if policy_id not in self.policy_map:
            raise ValueError(
                f"policy_mapping_fn: agent {agent_id!r}: expected one of {', '.join(map(repr, self.policy_map))}, got "
                f"{policy_id!r}"
            )
        return policy_id


def _policy_map(policy: Any, policy_mapping_fn: Any) -> dict[str, Any]:
    policies = dict(policy) if isinstance(policy, Mapping) else {DEFAULT_POLICY: policy}
    if not policies:
        raise ValueError("policy: expected at least one policy, got an empty dict")
    for one in policies.values():
        check_policy(one)
    if len(policies) > 1 and policy_mapping_fn is None:
        raise ValueError(
            f"policy_mapping_fn: expected a function (agent_id, episode) -> one of {', '.join(map(repr, policies))}, "
            "because there are several policies"
        )
    return policies
