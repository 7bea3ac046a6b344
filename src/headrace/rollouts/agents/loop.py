"""Collects from environments with several agents; each policy acts once a step, for all its agents."""

# Rules: views-rollouts R2 to R4, R14, M1 to M8

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.envs.agents import Returned
from headrace.rollouts.agents.game import AgentStep, Game
from headrace.rollouts.agents.lanes import AgentLanes
from headrace.rollouts.callbacks import Calls
from headrace.rollouts.fragments import Fragments
from headrace.rollouts.pieces import AgentRun
from headrace.rollouts.samplers import StopFlag
from headrace.rollouts.settings import Settings
from headrace.views import View


class MultiAgentLoop:
    """Steps n environments with several agents each.

    Args:
        settings: of the worker.
        games: the environments.
        lanes: of the policies.
        fragments: the pieces.
        calls: the callbacks.
        stop: ends `collect` early.
        mapping: maps `(agent_id, episode)` to a policy id.
        follows_episodes: whether anything is given episodes, so that their rewards must be added up.
    """

    def __init__(
        self,
        settings: Settings,
        games: list[Game],
        lanes: AgentLanes,
        fragments: Fragments,
        calls: Calls,
        stop: StopFlag,
        mapping: Callable[[Any, Any], str],
        *,
        follows_episodes: bool,
    ) -> None:
        self._settings, self._games, self._lanes = settings, games, lanes
        self._fragments, self._calls, self._stop, self._mapping = fragments, calls, stop, mapping
        self._follows_episodes = follows_episodes
        self._begin_fragment()

    def collect(self, views: Mapping[str, View]) -> MultiAgentBatch:
        """Returns the next fragment.

        Args:
            views: of the worker.
        """
        self._lanes.use(views, self._games)
        while games := [game for game in self._games if game.left > 0]:
            self._step(games)
        return self._cut()

    def _step(self, games: list[Game]) -> None:
        self._stop.check()
        for game in games:
            if game.episode is None:
                self._reset(game)
        actions = self._lanes.act(games)
        try:
            for game in games:
                self._step_one(game, actions[game.index])
        finally:
            self._flush()

    def _flush(self) -> None:
        """Writes the rows of this step; an observation that does not fit drops the episode of its environment."""
        if refused := self._lanes.flush():
            for game, _ in refused:
                self._drop(game)
            raise refused[0][1]

    def _drop(self, game: Game) -> None:
        if not self._settings.takes_whole_episodes:
            game.left += game.agent_steps if self._settings.counts_agent_steps else game.steps
        self._env_steps -= game.steps
        for run in game.runs.values():
            self._lanes.drop(run)
        if game.episode is not None:
            self._fragments.drop_episode(game.episode)
        game.forget_episode()

    def _reset(self, game: Game) -> None:
        """Begins an episode; an error drops it."""
        try:
            self._begin_episode(game)
        except BaseException:
            self._drop(game)
            raise

    def _begin_episode(self, game: Game) -> None:
        seed = self._settings.seed
        is_first = seed is not None and not game.was_reset
        observations = game.reset(seed + game.index if is_first and seed is not None else None)
        game.episode = self._fragments.new_episode()
        if self._calls.start is not None:
            self._calls.start(episode=game.episode, env_index=game.index)
        for agent_id, observation in observations.items():
            self._begin(game, agent_id, observation)

    def _begin(self, game: Game, agent_id: Any, observation: Any) -> None:
        """Begins the trajectory of an agent that is observed for the first time."""
        assert game.episode is not None
        run = game.runs[agent_id] = AgentRun(agent_id)
        run.policy_id = self._mapping(agent_id, game.episode)
        self._lanes.begin(game, run, observation)
        run.piece = self._fragments.open(
            game.episode,
            run.policy_id,
            run.lane,
            env_index=game.index,
            agent_id=agent_id,
            place=len(game.runs) - 1,
            agent_index=game.agent_index(agent_id),
            peers=game.runs,
        )
        run.begin = run.piece.first
        self._lanes.write_numbers(run, game.env_t)
        game.acting.append(run)

    def _step_one(self, game: Game, actions: Mapping[Any, Any]) -> None:
        """Steps one environment, and records the steps of agents that it completes; an error drops its episode."""
        try:
            returned = game.step(actions)
            if not self._records_together(game, returned):
                self._record(game, returned)
        except BaseException:
            self._drop(game)
            raise

    def _record(self, game: Game, returned: Returned) -> None:
        """Records a step in which agents may join, pause or end."""
        episode = game.episode
        assert episode is not None
        for run in game.acting:
            run.has_acted, run.reward = True, 0.0
        game.check(returned)
        game.add_rewards({key: value for key, value in returned.rewards.items() if key != "__all__"})
        game.count_step()
        is_over = game.is_over(returned)
        at_horizon = not is_over and game.env_t == self._settings.horizon
        is_cut = is_over or (at_horizon and not self._settings.soft_horizon)
        steps = game.agent_steps_of(returned, cut=is_cut, flags=not self._settings.no_done_at_end)
        self._count(game, len(steps))
        game.acting = []
        for step in steps:
            self._complete(game, step, returned)
        self._meet(game, returned, is_cut=is_cut)
        if self._calls.step is not None:
            self._calls.step(episode=episode, env_index=game.index)
        if is_cut:
            self._end(game)
        elif at_horizon:
            self._continue(game)

    def _records_together(self, game: Game, returned: Returned) -> bool:
        """Records a step that brings nothing but a row for each agent that acted, if it is one."""
        if not self._lanes.writes_together or game.env_t + 1 == self._settings.horizon:
            return False
        if not game.goes_on_together(returned):
            return False
        assert game.episode is not None
        self._lanes.complete_later(game, returned.rewards, returned.observations)
        game.count_step()
        if self._follows_episodes:
            game.episode.add_all(returned.rewards)
        self._count(game, len(game.acting))
        if self._calls.step is not None:
            self._calls.step(episode=game.episode, env_index=game.index)
        return True

    def _count(self, game: Game, agent_steps: int) -> None:
        self._env_steps += 1
        game.steps += 1
        game.agent_steps += agent_steps
        if not self._settings.takes_whole_episodes:
            game.left -= agent_steps if self._settings.counts_agent_steps else 1

    def _complete(self, game: Game, step: AgentStep, returned: Returned) -> None:
        run = step.run
        observation = returned.observations[run.agent_id] if step.is_observed else None
        self._lanes.complete(game, step, observation, returned.infos)
        run.has_acted, run.reward = False, 0.0
        if not step.is_last:
            game.acting.append(run)
            return
        run.is_done, run.last_is_known = True, step.is_observed
        if run.piece is not None:
            run.stop = self._lanes.place(run)
            self._fragments.close(run.piece, is_end=True, last_is_known=step.is_observed)
            run.piece = None
        if not self._lanes.shows_others:
            self._lanes.release(run)

    def _meet(self, game: Game, returned: Returned, *, is_cut: bool) -> None:
        """Begins the trajectories of agents that are observed for the first time."""
        for agent_id, observation in returned.observations.items():
            if agent_id in game.runs:
                continue
            if returned.terminations.get(agent_id) or returned.truncations.get(agent_id):
                # Rules: views-rollouts M6
                game.runs[agent_id] = AgentRun(agent_id, is_done=True)
            elif not is_cut:
                self._begin(game, agent_id, observation)

    def _end(self, game: Game) -> None:
        """Ends an episode; the environment is reset before its next step."""
        episode = game.episode
        assert episode is not None
        for run in game.runs.values():
            if run.piece is not None:
                self._lanes.drop(run)
            self._lanes.release(run)
        # If this raises, the steps of the episode are given back (`_drop`), so they must not be forgotten before.
        self._fragments.end_episode(episode)
        self._count_episode(game)
        game.forget_episode()
        if self._calls.end is not None:
            self._calls.end(episode=episode, env_index=game.index)

    def _continue(self, game: Game) -> None:
        """Ends an episode without a reset, and begins the next one."""
        # Rules: views-rollouts H2
        episode, game.episode = game.episode, self._fragments.new_episode()
        assert episode is not None
        game.env_t = 0
        for run in game.runs.values():
            if run.piece is not None:
                run.piece = self._fragments.into_next_episode(run.piece, game.episode)
                self._lanes.write_numbers(run, 0)
        self._fragments.end_episode(episode)
        self._count_episode(game)
        if self._calls.end is not None:
            self._calls.end(episode=episode, env_index=game.index)
        if self._calls.start is not None:
            self._calls.start(episode=game.episode, env_index=game.index)

    def _count_episode(self, game: Game) -> None:
        game.steps = game.agent_steps = 0
        if self._settings.takes_whole_episodes:
            game.left -= 1

    def _cut(self) -> MultiAgentBatch:
        """Returns the batch of the closed pieces, and begins the next fragment."""
        running = [run for game in self._games for run in game.runs.values() if run.piece is not None]
        for run in running:
            if run.piece is not None:
                self._fragments.close(run.piece, is_end=False)
        try:
            return MultiAgentBatch(self._fragments.take(), self._env_steps)
        finally:
            for run in running:
                if run.piece is not None:
                    run.piece = self._fragments.after(run.piece)
            self._lanes.forget(self._games)
            self._begin_fragment()

    def _begin_fragment(self) -> None:
        self._env_steps = 0
        for game in self._games:
            game.steps = game.agent_steps = 0
            game.left = self._settings.fragment_units
