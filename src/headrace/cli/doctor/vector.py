"""Examination of a vector environment: first of all of its resets at the ends of episodes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.cli.doctor.report import Report, shown_error
from headrace.cli.doctor.single import Stopped
from headrace.cli.doctor.tensors import ShownAsArrays
from headrace.cli.doctor.watch import Watch
from headrace.ends import Autoreset
from headrace.envs import VectorStepper, make_stepper, new_columns
from headrace.envs.adapters.old_gym import reset_values, step_values
from headrace.envs.protocol import NO_ENVS, AsyncStepper
from headrace.envs.random_actions import RandomActions
from headrace.envs.recognition import AdaptedEnv
from headrace.errors import SpecError

_DECLARE = (
    'Declare it: metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}; or say it to Headrace: '
    'hr.envs.adapt(env, autoreset="next_step")'
)


class VectorExamination:
    """Examines one vector environment.

    Args:
        env: the environment.
        report: gets the findings.
        steps: number of steps to take.
        seed: of the first reset.
        device: see `make_stepper`.
    """

    def __init__(self, env: Any, report: Report, *, steps: int, seed: int, device: str | None) -> None:
        self._given, self._report, self._steps, self._seed = env, report, steps, seed
        self._device = device
        self._env = ShownAsArrays(env.env if isinstance(env, AdaptedEnv) else env, report, device)
        self._seconds: list[float] = []
        self._ends = 0
        # Whether the environment has behaved as each mode at each end that was seen.
        self._fits = dict.fromkeys(Autoreset, True)

    def run(self) -> None:
        """Makes all checks.

        Raises:
            Stopped: some could not be made; the report says why.
        """
        report = self._report
        try:
            stepper = make_stepper(self._given, device=self._device)
        except (SpecError, ValueError) as error:
            if "autoreset" in str(error):
                report.error("autoreset", f"{error}", _DECLARE)
            else:
                report.error("spaces", f"{error}", "Make the environment as the message says.")
            raise Stopped from error
        self._mode = stepper.autoreset
        rows = stepper.batch_size if isinstance(stepper, AsyncStepper) else stepper.num_envs
        self._watch = Watch(report, stepper.observation_space, stepper.action_space, (rows,))
        self._actions = RandomActions(stepper.action_space, stepper.num_envs, range(stepper.num_envs))
        report.ok("spaces", f"{stepper.num_envs} times observation {stepper.observation_space}")
        try:
            if isinstance(stepper, AsyncStepper):
                self._walk_by_id(stepper)
            else:
                self._walk(np.zeros(stepper.num_envs, np.bool_))
        except Stopped:
            raise
        except Exception as error:
            report.error("step", shown_error(error), "Look at the traceback of the environment.")
            raise Stopped from error
        self._check_mode()
        if isinstance(stepper, AsyncStepper):
            self._check_receiving(stepper)
        else:
            self._check_collecting(stepper)
        self._watch.finish()

    def _walk(self, ended: NDArray[np.bool_]) -> None:
        """Takes random steps as a user of the declared mode would, and notes what each end does."""
        observation, info = reset_values(self._env.reset())
        self._watch.observation(observation, "reset")
        self._watch.info(info, "reset")
        for step in range(self._steps):
            place = f"step {step}"
            actions = self._watch.columns.action_tree(self._actions.draw())
            begin = time.perf_counter()
            returned = self._env.step(actions)
            self._seconds.append(time.perf_counter() - begin)
            ended = self._look(*step_values(returned), ended, place)
            if ended.any() and self._mode is Autoreset.DISABLED:
                self._env.reset(options={"reset_mask": ended.copy()})
                ended[:] = False

    def _walk_by_id(self, stepper: AsyncStepper) -> None:
        """Takes random steps of those environments that are ready, and notes what each end does."""
        pool, ended, has_begun = self._env, *np.zeros((2, stepper.num_envs), np.bool_)
        stepper.send_reset(np.arange(stepper.num_envs))
        for step in range(self._steps):
            begin = time.perf_counter()
            observation, reward, terminated, truncated, info = pool.recv()
            ids = np.asarray(info["env_id"])
            # The first result of each environment is that of its reset.
            flags = self._look(observation, reward, terminated, truncated, info, ended[ids], f"result {step}")
            ended[ids] = flags & has_begun[ids]
            has_begun[ids] = True
            pool.send(self._watch.columns.action_tree(self._actions.draw_for(ids)), ids)
            self._seconds.append(time.perf_counter() - begin)

    def _look(
        self,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any,
        ended: NDArray[np.bool_],
        place: str,
    ) -> NDArray[np.bool_]:
        """Checks the values of a step; returns the environments that it ends, `ended` are those of the step before."""
        self._watch.observation(observation, place)
        self._watch.outcome(reward, terminated, truncated, place)
        if "outcome" in self._report:
            raise Stopped
        flags: NDArray[np.bool_] = np.asarray(terminated) | np.asarray(truncated)
        self._note(ended, np.asarray(reward), flags, info)
        return flags

    def _note(self, ended: NDArray[np.bool_], reward: Any, flags: NDArray[np.bool_], info: Any) -> None:
        """Compares a step with what each mode says of it; `ended` are the ends of the step before."""
        self._ends += int(flags.sum())
        if flags.any():
            gives_last = "final_obs" in info
            self._fits[Autoreset.SAME_STEP] &= gives_last
            self._fits[Autoreset.NEXT_STEP] &= not gives_last
            self._fits[Autoreset.DISABLED] &= not gives_last
        if ended.any():
            # The step of a reset brings no reward and no end.
            self._fits[Autoreset.NEXT_STEP] &= not flags[ended].any() and not reward[ended].any()

    def _check_mode(self) -> None:
        report, mode = self._report, self._mode
        if not self._ends:
            report.note(
                "autoreset",
                f"declared {mode.value}; no episode ended in {self._steps} steps, so it was not seen",
            )
        elif not self._fits[mode]:
            expected = {
                Autoreset.SAME_STEP: "info['final_obs'] at each end, with the last observation",
                Autoreset.NEXT_STEP: "no final_obs, and a step without reward and flags after each end",
                Autoreset.DISABLED: "no final_obs, and no reset without a call",
            }[mode]
            others = [other.value for other, fits in self._fits.items() if fits and other is not mode]
            report.error(
                "autoreset",
                f"declared {mode.value}: expected {expected}; it does not do that"
                + (f", but what {' or '.join(others)} says" if others else ""),
                "Correct metadata['autoreset_mode'], or the environment; a wrong mode stores wrong last observations.",
            )
        else:
            report.ok("autoreset", f"declared {mode.value}, and does it ({self._ends} ends)")

    def _check_collecting(self, stepper: VectorStepper) -> None:
        """Steps once more as a collector does, with all its checks."""
        report = self._report
        rows = new_columns(stepper.observation_signature, stepper.num_envs)
        try:
            stepper.reset(rows)
            for _ in range(self._steps):
                step = stepper.step(self._actions.draw(), rows)
                if step.ended.size and stepper.autoreset is Autoreset.DISABLED:
                    stepper.reset(rows, envs=step.ended)
        except Exception as error:
            report.error(
                "last observation" if "final_obs" in str(error) else "collecting",
                f"{type(error).__name__}: {error}",
                "Give the last observation of each episode in info['final_obs'], an object array of one for each "
                "environment, or declare another mode.",
            )
            return
        report.ok("last observation", "given at each end")
        if not stepper.resets_by_mask:
            report.note(
                "reset by mask",
                "this environment resets itself, and is not known to reset some of its copies: max_frames_per_traj "
                "cannot be used with it",
            )

    def _check_receiving(self, stepper: AsyncStepper) -> None:
        """Takes further results as a collector does, with all its checks."""
        try:
            envs = NO_ENVS
            for _ in range(self._steps):
                envs = stepper.exchange(envs, self._actions.draw_for(envs)).envs
        except Exception as error:
            self._report.error(
                "collecting",
                shown_error(error),
                "Look at the traceback of the environment.",
            )
            return
        self._report.ok(
            "batch_size",
            f"{stepper.batch_size} of {stepper.num_envs}: a policy acts for those that are ready, by env_id",
        )

    @property
    def microseconds(self) -> dict[str, float]:
        """Mean time of a step of all environments, or of those that are ready."""
        return {"step": 1e6 * float(np.mean(self._seconds))} if self._seconds else {}
