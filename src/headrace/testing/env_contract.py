"""Contract of environment adapters, the `VectorStepper`s of `headrace.envs`, and of yours."""

# Rules: collectors CE2 to CE5, CE7, CR5, CS1, CS2

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs import Autoreset, StepResult, VectorStepper, new_columns
from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.testing.envs import NUM_ACTIONS, Ending, counter_transitions
from headrace.testing.pytest_hypothesis import given_contract, hypothesis, pytest, strategies

_LENGTHS = strategies.lists(strategies.integers(1, 5), min_size=1, max_size=4)
_STEPS = 14


class EnvContract(ABC):
    """Tests of a `VectorStepper`. Derive from it, define the abstract methods over counters; pytest does the rest.

    Lane i is a counter (`headrace.testing.CounterEnv(lengths[i], copy=i)`, or an environment of your library that
    gives the same numbers): its observation is int64[3] (i, episode, step), its reward `4 * step + action`.

    Attributes:
        info: an entry of `info` that the environments give at each reset and step, with its spec.
        seeds_of_two: the seeds that two lanes are to get of 5 and 6; (5, 5) where they share an environment.

    >>> from headrace.envs.adapters.gymnasium_single import SingleEnvStepper
    >>> from headrace.testing.envs import CounterEnv, counter_env_fns
    >>> class TestMine(EnvContract):
    ...     def make(self, lengths, *, ending="terminated", info_columns=None):
    ...         fns = counter_env_fns(lengths, ending=ending)
    ...         return SingleEnvStepper([fn() for fn in fns], info_columns)
    ...     def make_wrong(self):
    ...         return SingleEnvStepper([CounterEnv(3, layout="image")])
    ...     def seeds(self, stepper):
    ...         return [env.seeds for env in stepper.environments]
    ...     def times_closed(self, stepper):
    ...         return [env.closed for env in stepper.environments]
    >>> TestMine().test_every_transition_comes_once()
    """

    info: Mapping[str, ArraySpec] = {"count": ArraySpec((), np.int64)}
    seeds_of_two = (5, 6)

    @abstractmethod
    def make(
        self,
        lengths: Sequence[int],
        *,
        ending: Ending = "terminated",
        info_columns: Mapping[str, ArraySpec] | None = None,
    ) -> VectorStepper:
        """Returns a stepper of counters, one lane for each length of episodes."""

    @abstractmethod
    def make_wrong(self) -> VectorStepper:
        """Returns a stepper of an environment whose observations do not fit its observation space."""

    @abstractmethod
    def seeds(self, stepper: VectorStepper) -> list[list[int | None]] | None:
        """Returns the seeds that the counter of each lane was reset with; None if the library takes none at reset."""

    @abstractmethod
    def times_closed(self, stepper: VectorStepper) -> list[int]:
        """Returns how often each environment was closed."""

    def info_at(self, step: int, *, is_last: bool) -> float:  # noqa: ARG002 - for subclasses
        """Returns the entry `info` at a step of an episode of "terminated" ending."""
        return step

    # ---- transitions -----------------------------------------------------------------------------------------------

    def test_its_attributes_fit(self) -> None:
        """Signatures are those of the spaces, and the number of lanes is that of the environments."""
        stepper = self.make([3, 4])
        assert isinstance(stepper, VectorStepper)
        assert stepper.num_envs == 2
        assert stepper.observation_signature.columns == {"observation": ArraySpec(3, np.int64)}
        assert stepper.action_signature.columns["action"].shape == ()
        assert stepper.observation_space.shape == (3,)
        assert stepper.action_space.n == NUM_ACTIONS
        stepper.close()

    @given_contract
    @hypothesis.given(_LENGTHS, strategies.sampled_from(["terminated", "truncated"]))
    def test_every_transition_comes_once(self, lengths: Sequence[int], ending: Ending) -> None:
        """Every transition is there once, with its flags and its true last observation."""
        stepper = self.make(lengths, ending=ending)
        for lane, rows in enumerate(_collect(stepper, _STEPS)):
            known = counter_transitions(lengths[lane], len(rows))
            for row, episode, step, last in zip(
                rows, known["episode"], known["step"], known["last"], strict=True
            ):
                assert row["observation"].tolist() == [lane, episode, step]
                assert row["next_observation"].tolist() == [lane, episode, step + 1], "the last observation?"
                assert row["reward"] == 4 * step + row["action"]
                assert row["terminated"] == (last and ending == "terminated")
                assert row["truncated"] == (last and ending == "truncated")
        stepper.close()

    def test_a_lane_that_goes_on_alone_loses_no_step(self) -> None:
        """Lanes without an end take a transition at each step, whatever the others do."""
        stepper = self.make([_STEPS + 1, 2])
        assert len(_collect(stepper, _STEPS)[0]) == _STEPS
        stepper.close()

    def test_observations_go_into_the_rows_of_the_caller(self) -> None:
        """Rows of earlier steps keep what was written."""
        stepper = self.make([9, 9])
        rows = np.zeros((4, 2, 3), np.int64)
        stepper.reset({"observation": rows[0]})
        for step in range(3):
            stepper.step(_actions(stepper, step), {"observation": rows[step + 1]})
        assert rows[:, 1].tolist() == [[1, 0, step] for step in range(4)]
        stepper.close()

    # ---- resets ----------------------------------------------------------------------------------------------------

    def test_some_are_reset_by_mask(self) -> None:
        """A limit on trajectories resets some lanes; a stepper that cannot says so, and refuses."""
        stepper = self.make([9, 9])
        row = new_columns(stepper.observation_signature, 2)
        stepper.reset(row)
        stepper.step(_actions(stepper, 0), row)
        if not stepper.resets_by_mask:
            with pytest.raises(ValueError, match="reset"):
                stepper.reset(row, envs=np.array([1]))
            return
        stepper.reset(row, envs=np.array([1]))
        assert row["observation"].tolist() == [[0, 0, 1], [1, 1, 0]]
        step = stepper.step(_actions(stepper, 1), row)
        assert row["observation"].tolist() == [[0, 0, 2], [1, 1, 1]]
        assert not step.ended.size
        stepper.close()

    def test_all_are_reset(self) -> None:
        """A reset of all begins an episode in each lane, in the middle of others."""
        stepper = self.make([9, 2])
        row = new_columns(stepper.observation_signature, 2)
        stepper.reset(row)
        stepper.step(_actions(stepper, 0), row)
        stepper.reset(row)
        assert row["observation"].tolist() == [[0, 1, 0], [1, 1, 0]]
        step = stepper.step(_actions(stepper, 0), row)
        assert not step.ended.size
        assert not step.reset_steps.size
        stepper.close()

    def test_seeds_reach_their_lanes(self) -> None:
        """Each environment is reset with its own seed, later without; a library without seeds warns of it."""
        stepper = self.make([2, 2])
        row = new_columns(stepper.observation_signature, 2)
        if self.seeds(stepper) is None:
            with pytest.warns(UserWarning, match="seed"):
                stepper.reset(row, seeds=[5, 6])
        else:
            stepper.reset(row, seeds=[5, 6])
            stepper.reset(row)
            assert self.seeds(stepper) == [[seed, None] for seed in self.seeds_of_two]
        stepper.close()

    # ---- infos and checks ------------------------------------------------------------------------------------------

    def test_entries_of_info_are_columns(self) -> None:
        """An entry stands beside the observation that it came with."""
        (name,) = self.info
        stepper = self.make([2, 3], info_columns=self.info)
        row = new_columns(stepper.observation_signature, 2)
        stepper.reset(row)
        before = {}
        for number in range(9):
            before = {key: column.copy() for key, column in row.items()}
            step = stepper.step(_actions(stepper, number), row)
            for lane in range(2):
                count, last = int(row["observation"][lane, 2]), step.last_observation
                is_last = lane in step.ended
                if is_last:
                    count = int(last["observation"][lane, 2])
                    assert last[name][lane] == self.info_at(count, is_last=True)
                if not (is_last and stepper.autoreset is Autoreset.SAME_STEP):
                    assert row[name][lane] == self.info_at(count, is_last=is_last)
            _follow(stepper, step, row)
        assert before
        stepper.close()

    def test_a_missing_entry_of_info_is_an_error(self) -> None:
        """The message has the name."""
        stepper = self.make([2, 3], info_columns={"nothing_of_that_name": ArraySpec((), np.int64)})
        with pytest.raises(SpecError, match="nothing_of_that_name"):
            stepper.reset(new_columns(stepper.observation_signature, 2))
        stepper.close()

    def test_observations_that_do_not_fit_the_space_are_refused(self) -> None:
        """The message says which environment and column."""
        stepper = self.make_wrong()
        with pytest.raises(SpecError, match=r"environment.*observation"):
            stepper.reset(new_columns(stepper.observation_signature, stepper.num_envs))
        stepper.close()

    def test_it_closes_once(self) -> None:
        """Every environment is closed, and not again."""
        stepper = self.make([2, 3])
        stepper.close()
        stepper.close()
        assert set(self.times_closed(stepper)) == {1}


def _actions(stepper: VectorStepper, number: int) -> dict[str, NDArray[Any]]:
    spec = stepper.action_signature.columns["action"]
    return {"action": ((number + np.arange(stepper.num_envs)) % NUM_ACTIONS).astype(spec.dtype)}


def _follow(stepper: VectorStepper, step: StepResult, row: Mapping[str, NDArray[Any]]) -> None:
    to_reset = step.over if stepper.lanes_may_wait else step.ended
    if to_reset.size and stepper.autoreset is Autoreset.DISABLED:
        stepper.reset(row, envs=to_reset)


def _collect(stepper: VectorStepper, num_steps: int) -> list[list[dict[str, Any]]]:
    """Returns the transitions of each lane, by the loop that `headrace.envs.protocol` documents."""
    row = new_columns(stepper.observation_signature, stepper.num_envs)
    stepper.reset(row)
    collected: list[list[dict[str, Any]]] = [[] for _ in range(stepper.num_envs)]
    for number in range(num_steps):
        next_row = new_columns(stepper.observation_signature, stepper.num_envs)
        actions = _actions(stepper, number)
        step = stepper.step(actions, next_row)
        for lane in set(range(stepper.num_envs)) - {*step.reset_steps.tolist(), *step.waiting.tolist()}:
            after = step.last_observation if lane in step.ended else next_row
            collected[lane].append(
                {
                    "observation": row["observation"][lane].copy(),
                    "next_observation": after["observation"][lane].copy(),
                    "action": actions["action"][lane],
                    "reward": step.reward[lane],
                    "terminated": step.terminated[lane],
                    "truncated": step.truncated[lane],
                }
            )
        _follow(stepper, step, next_row)
        row = next_row
    return collected
