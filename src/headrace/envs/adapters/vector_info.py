"""The info of a gymnasium vector environment: entries of its environments, and their last observations."""

# Rules: collectors CE4, CE5

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs.columns import EnvironmentColumns
from headrace.envs.protocol import Columns, Indices
from headrace.errors import SpecError
from headrace.spec import check_array


class VectorInfo:
    """Reads and checks infos.

    Args:
        columns: of one environment.
        num_envs: n.

    Attributes:
        names: of all entries that it reads.
    """

    def __init__(self, columns: EnvironmentColumns, num_envs: int) -> None:
        self._columns = columns
        self._num_envs = num_envs
        read = ("final_obs", "final_info", *columns.info)
        self.names = frozenset(read) | {f"_{name}" for name in read}

    def column(self, name: str, info: Mapping[str, Any], envs: Indices | None, step: int) -> NDArray[Any]:
        """Returns an entry as a column `[n, ...]`.

        Args:
            name: of the entry.
            info: has it.
            envs: the environments that must have the entry; None: all.
            step: the number of the step, for messages.

        Raises:
            SpecError: the entry is missing or does not fit.
        """
        wanted = slice(None) if envs is None else envs
        present = self._present(name, info)
        if not present[wanted].all():
            lacking = np.arange(self._num_envs)[wanted][~present[wanted]]
            raise SpecError(
                f"environments {lacking.tolist()}: {self._columns.missing_info(name, info, step)}"
            )
        return check_array(info[name], self._columns.info[name], name, (self._num_envs,))

    def _present(self, name: str, info: Mapping[str, Any]) -> NDArray[np.bool_]:
        """bool[n], which environments have this entry: gymnasium says so in `_name`; the others hold zeros or None."""
        if f"_{name}" not in info:
            return np.full(self._num_envs, name in info)
        present = np.asarray(info[f"_{name}"], np.bool_)
        self._check_one_each(f"_{name}", present)
        return present & (name in info)

    def _check_one_each(self, name: str, entry: NDArray[Any]) -> None:
        if entry.shape != (self._num_envs,):
            raise SpecError(
                f"info: {name}: expected one entry for each of {self._num_envs} environments, got shape {entry.shape}"
            )

    def read_final(self, info: Mapping[str, Any], ended: Indices, out: Columns, step: int) -> None:
        """Writes the last observations of episodes, from `final_obs`, with their info columns.

        Args:
            info: of the step; `final_obs` is an object array of one observation per environment, or a batched tree.
            ended: the environments whose episodes ended.
            out: columns `[n, ...]`.
            step: the number of the step, for messages.

        Raises:
            SpecError: an observation is missing or does not fit.
        """
        final: Any = info.get("final_obs")
        present = self._present("final_obs", info)
        if isinstance(final, np.ndarray) and final.dtype == object:
            self._check_one_each("final_obs", final)
            present &= np.array([value is not None for value in final])
        if not present[ended].all():
            raise SpecError(
                f"environments {ended[~present[ended]].tolist()}: final_obs: expected the last observation of the "
                "episode that ended, as SAME_STEP environments give it in info, got none; say what the environment "
                "does with hr.envs.adapt(env, autoreset=...)"
            )
        self._write_final(final, ended, out)
        for name in self._columns.info:
            out[name][ended] = self.column(name, info.get("final_info", {}), ended, step)[ended]

    def _write_final(self, final: Any, ended: Indices, out: Columns) -> None:
        if isinstance(final, np.ndarray) and final.dtype == object:
            for i in ended.tolist():
                for name, array in self._checked(final[i], (), f"environment {i}").items():
                    out[name][i] = array
        else:
            where = f"environments {ended.tolist()}"
            for name, array in self._checked(final, (self._num_envs,), where).items():
                out[name][ended] = array[ended]

    def _checked(self, observation: Any, leading: tuple[int, ...], where: str) -> dict[str, NDArray[Any]]:
        try:
            return self._columns.observation.validate({"observation": observation}, leading)
        except SpecError as error:
            raise SpecError(f"{where}: final_obs: {error}") from error
