"""A plain model of the rows that a collector hands out of counter environments, one step of one copy at a time."""

from dataclasses import dataclass, field

import numpy as np

ROW = ("copy", "episode", "step", "terminated", "truncated", "t", "episode_id", "version")


@dataclass
class Copy:
    """One counter environment with episodes of `length` steps."""

    length: int
    episode: int = 0
    step: int = 0
    identity: int = -1
    waits: bool = False
    is_over: bool = False  # The next step is the reset, whose row is masked (CE4, NEXT_STEP).

    def reset(self):
        self.episode, self.step, self.identity = self.episode + 1, 0, -1
        self.waits = self.is_over = False


@dataclass
class Model:
    """Model of the rows that a collector hands out (collectors CR4 to CR8, CQ2, CB5, CB6)."""

    lengths: list
    steps: int
    limit: int | None = None
    random_frames: int = 0
    reset_at_each_iter: bool = False
    reset_when_done: bool = True
    set_truncated: bool = False
    resets_take_a_step: bool = False
    begun: int = 0
    next_id: int = 0
    copies: list = field(default_factory=list)

    def __post_init__(self):
        self.copies = [Copy(length) for length in self.lengths]

    def reset(self, chosen=None):
        if not self.begun or (self.reset_at_each_iter and chosen is not None):
            return  # All are reset before the next rollout anyway.
        self.reset_at_once(chosen)

    def reset_at_once(self, chosen=None):
        for i, copy in enumerate(self.copies):
            if chosen is None or chosen[i]:
                copy.reset()

    def rollout(self, resets=None):
        """Returns a list of T rows for each copy; None is a masked row.

        Args:
            resets: maps steps to the copies that are reset before them; None: all.
        """
        if self.reset_at_each_iter and self.begun:
            self.reset()
        version = -1 if self.begun < self.random_frames else 0
        self.begun += self.steps * len(self.copies)
        rows = []
        for step in range(self.steps):
            if resets and step in resets:
                self.reset_at_once(resets[step])
            rows.append([self._step(i, copy, version) for i, copy in enumerate(self.copies)])
        lanes = [list(lane) for lane in zip(*rows, strict=True)]
        if self.set_truncated:
            for lane in lanes:
                valid = [row for row in lane if row is not None]
                if valid:
                    valid[-1]["truncated"] = True
                # A row that was reported does not change: it is marked where only a reset that was not asked for yet
                # could have brought its copy another row in this rollout.
                last = range(self.steps) if not self.reset_when_done else ()
                if self.resets_take_a_step:
                    last = range(max(0, self.steps - 2), self.steps)
                for row in (lane[step] for step in last):
                    if row is not None:
                        row["truncated"] |= row["terminated"]
        return lanes

    def _step(self, i, copy, version):
        if copy.waits:
            return None
        if copy.is_over:
            copy.reset()
            return None
        if copy.identity < 0:
            copy.identity, self.next_id = self.next_id, self.next_id + 1
        t = copy.step
        copy.step += 1
        terminated = copy.step == copy.length
        truncated = self.limit is not None and copy.step == self.limit
        values = (i, copy.episode, t, terminated, truncated, t, copy.identity, version)
        if terminated or truncated:
            copy.waits = not self.reset_when_done
            copy.is_over = self.reset_when_done and self.resets_take_a_step
            if not (copy.waits or copy.is_over):
                copy.reset()
        return dict(zip(ROW, values, strict=True))

    @property
    def stands_still(self):
        return all(copy.waits for copy in self.copies) and not self.reset_at_each_iter


def check_rows(batch, lanes):
    """Every column of a batch against the rows of the model."""
    mask = np.array([[row is not None for row in lane] for lane in lanes])
    np.testing.assert_array_equal(batch["mask"], mask)
    assert batch.frames == mask.sum()
    for name, column in batch.items():  # CB6
        assert (column[~mask] == (-1 if name == "episode_id" else 0)).all(), name
    rows = [row for lane in lanes for row in lane if row is not None]
    known = {name: np.array([row[name] for row in rows], int) for name in ROW}
    seen = np.stack([known["copy"], known["episode"], known["step"]], axis=1).reshape(-1, 3)
    np.testing.assert_array_equal(batch["observation"][mask], seen)
    np.testing.assert_array_equal(batch["next_observation"][mask], np.add(seen, [0, 0, 1]))
    np.testing.assert_array_equal(batch["reward"][mask], 4 * known["step"] + batch["action"][mask])
    for name in ("terminated", "truncated", "t", "episode_id"):
        np.testing.assert_array_equal(batch[name][mask], known[name], name)
    np.testing.assert_array_equal(batch["policy_version"][mask], known["version"])


def model_of(lengths, steps, options):
    names = {"max_frames_per_traj": "limit", "init_random_frames": "random_frames"}
    given = {names.get(name, name): value for name, value in options.items() if value is not None}
    return Model(lengths, steps, **given)
