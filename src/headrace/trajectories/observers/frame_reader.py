"""Reads one frame of a driver, in any of its forms, and its position in the episode.

Nothing here changes the observer: a frame that does not fit is refused first.
"""

# Rules: trajectories P1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature, check_array
from headrace.trajectories.columns.leaf_reader import reader
from headrace.trajectories.frames import StepType, Trajectory

Columns = dict[str, Any]

# Plain integers: a member of an enum is slow to look up, and these are compared at every frame.
FIRST, MID, LAST = map(int, StepType)
# The pairs of trajectories F2, with what they are called there.
_NAMES = {
    (FIRST, MID): "first",
    (MID, MID): "middle",
    (MID, LAST): "last transition",
    (FIRST, LAST): "only transition",
    (LAST, FIRST): "boundary",
}
# By what a frame holds, which may be NumPy's integers.
_PAIRS = {pair: pair for pair in _NAMES}
_BATCHED = (
    "a leading axis that the signature does not have. Batched trajectories are not supported: an observer takes one "
    "frame of one environment. Use one observer for each environment, or a writer with lanes: hr.StepWriter, "
    "hr.SequenceWriter, hr.TransitionWriter, hr.EpisodeWriter"
)


class FrameReader:
    """Takes frames apart into columns and tells where they stand in their episode.

    Args:
        signature: of a `Trajectory` whose step types are integers without axes.

    Raises:
        SpecError: of something else.
    """

    # Rules: trajectories O4 to O6

    def __init__(self, signature: Signature) -> None:
        root = trees.compile_tree(signature.tree, lambda node: isinstance(node, ArraySpec))
        if (
            not isinstance(root, trees.Branch)
            or root.names != Trajectory._fields
            or root.kind != "namedtuple"
        ):
            raise SpecError(
                f"py_client: expected a signature of frames, hr.Signature.like(hr.Trajectory(...)), got {signature!r}"
            )
        self._specs = signature.columns
        for name in ("step_type", "next_step_type"):
            spec = self._specs.get(name)
            if spec is None or spec.shape != () or spec.dtype.kind not in "iu":
                found = spec or "a container"
                raise SpecError(f"{name}: expected one integer without axes in the signature, got {found!r}")
        self._root = root
        # The fields that are containers, with the names of their columns.
        self._nested = [
            (field, tuple(leaf.path for leaf in trees.leaves(child)), reader(child))
            for field, child in zip(root.names, root.children, strict=True)
            if isinstance(child, trees.Branch)
        ]

    def read(self, frame: Any) -> Columns:
        """Returns the columns of one frame, by name; their values are not checked.

        Args:
            frame: a `Trajectory`, a mapping of columns, or a plain list or tuple of leaves in the order of columns.

        Raises:
            SpecError: other leaves than the signature has, with their paths.
        """
        if type(frame) is Trajectory:
            step_type, observation, action, policy_info, next_step_type, reward, discount = frame
            # Written out: this is called at every step, and takes a third of what a loop over the fields does.
            columns = {
                "step_type": step_type,
                "observation": observation,
                "action": action,
                "policy_info": policy_info,
                "next_step_type": next_step_type,
                "reward": reward,
                "discount": discount,
            }
            for field, names, read in self._nested:
                value = columns.pop(field)
                # Most policies return no extra data.
                if names or value != ():
                    # The lengths are equal by construction, and asking zip for it costs as much as one leaf.
                    columns.update(zip(names, read(value)))  # noqa: B905
            return columns
        return self._read_other(frame)

    def _read_other(self, frame: Any) -> Columns:
        if isinstance(frame, Mapping):
            if frame.keys() != self._specs.keys():
                raise SpecError(trees.differences(tuple(self._specs), frame))
            return {name: frame[name] for name in self._specs}
        if isinstance(frame, tuple | list) and not hasattr(frame, "_fields"):
            if len(frame) != len(self._specs):
                raise SpecError(
                    f"the frame: expected {len(self._specs)} leaves, {', '.join(self._specs)}, got {len(frame)}"
                )
            return dict(zip(self._specs, frame, strict=True))
        columns: Columns = {}
        trees.collect(self._root, frame, columns)
        return columns

    def step_types(self, columns: Columns) -> tuple[int, int]:
        """Returns the pair (step_type, next_step_type) of a frame.

        Raises:
            SpecError: no integers without axes.
            ValueError: a pair that no frame has.
        """
        # Rules: trajectories F2
        first, following = columns["step_type"], columns["next_step_type"]
        try:
            pair = _PAIRS.get((first, following))
        except TypeError:  # Arrays.
            pair = None
        if pair is None:
            return self._checked_step_types(columns)
        if type(first) is StepType or type(following) is StepType:
            # Plain integers are stored without a look at the table of casts.
            columns["step_type"], columns["next_step_type"] = pair
        return pair

    def _checked_step_types(self, columns: Columns) -> tuple[int, int]:
        try:
            first, following = (
                int(check_array(columns[name], self._specs[name], name))
                for name in ("step_type", "next_step_type")
            )
        except SpecError as error:
            raise self.explained(error, columns) from None
        if (first, following) not in _NAMES:
            expected = ", ".join(f"{pair} {name}" for pair, name in _NAMES.items())
            raise ValueError(
                f"(step_type, next_step_type): expected {expected}, got ({first}, {following}); nothing was taken"
            )
        return first, following

    def check(self, columns: Columns) -> None:
        """Refuses the frames that a writer would refuse, without writing.

        Raises:
            SpecError: a shape or dtype that does not fit, with the path.
        """
        try:
            for name, spec in self._specs.items():
                check_array(columns[name], spec, name)
        except SpecError as error:
            raise self.explained(error, columns) from None

    def explained(self, error: SpecError, columns: Columns) -> SpecError:
        """Returns the error, or a better one if the frame is a batch."""
        # Rules: trajectories O5
        for name, spec in self._specs.items():
            shape = _shape(columns[name])
            if len(shape) == len(spec.shape) + 1 and shape[0] >= 1 and shape[1:] == spec.shape:
                got = f"{', '.join(map(str, shape))}"
                return SpecError(f"{name}: expected {spec!r}, got an array of shape [{got}]: {_BATCHED}")
        return error


def _shape(value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except (
        TypeError,
        ValueError,
    ):  # Ragged lists, arrays that are elsewhere: the table of casts tells of them.
        return ()
