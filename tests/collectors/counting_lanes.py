"""Steps of lanes that count them."""

import numpy as np

import headrace as hr
from headrace.leases.forwarding import Steps
from headrace.testing import CounterEnv

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
NOTHING = np.empty(0, np.int64)


class Lanes:
    """Lanes that count their steps: observations are `[lane, episode, step]`."""

    def __init__(self, count):
        self.count = count
        self.episode, self.step = np.zeros((2, count), int)

    @property
    def now(self):
        return {"observation": np.stack([np.arange(self.count), self.episode, self.step], 1).astype(np.int64)}

    def begin_episodes(self, lanes):
        self.episode[lanes] += 1
        self.step[lanes] = 0

    def steps(self, ends):
        """Takes as many steps as `ends`, bool[T, lanes], has: episodes end where it is True."""
        seen, finals = [], []
        for ended in ends:
            seen.append(self.now["observation"])
            self.step += 1
            finals.append(self.now["observation"][ended])
            self.begin_episodes(ended)
        shape = (len(ends), self.count)
        columns = {
            name: np.zeros((*shape, *spec.shape), spec.dtype) for name, spec in SIGNATURE.columns.items()
        }
        columns |= {"observation": np.array(seen), "terminated": ends}
        rows = {
            name: np.zeros((ends.sum(), *column.shape[2:]), column.dtype) for name, column in columns.items()
        }
        rows |= {"observation": np.concatenate(finals)}
        ended = np.flatnonzero(ends.ravel())
        return Steps(columns, np.zeros(len(ends), np.int32), NOTHING, NOTHING, ended, rows)
