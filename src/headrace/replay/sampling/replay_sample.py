"""A sampled batch: data, facts about its items, and the mask of real rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Unsupported
from headrace.replay.sampling.batch_description import BatchDescription, described
from headrace.replay.sampling.packing import ONE_STEP, BatchLayout, PackedBatch, pack
from headrace.trees import at_path

if TYPE_CHECKING:
    from headrace.replay.sampling.origin import Origin
    from headrace.views.explanation import Explanation


@dataclass(slots=True)
class SampleInfo:
    """Data about each item of a batch, at the instant of its draw.

    Attributes:
        keys: uint64[B]; for `update_priorities` and `delete`.
        probabilities: float64[B], with which it was drawn.
        table_size: int64[B], before the draw's own removal.
        priorities: float64[B].
        times_sampled: int64[B], this draw included.
    """

    # Rules: replay B3

    keys: NDArray[np.uint64]
    probabilities: NDArray[np.float64]
    table_size: NDArray[np.int64]
    priorities: NDArray[np.float64]
    times_sampled: NDArray[np.int64]


class ColumnsByName:
    """Access to the parts of a batch's `data` by name."""

    __slots__ = ()
    data: Any
    info: SampleInfo
    mask: Any

    def describe(self) -> BatchDescription:
        """Returns statistics of every column, shares of the flags, and suspicious things; its text is a table.

        >>> data = {"observation": np.zeros((3, 2), np.float32), "reward": np.array([1.0, 2.0, 6.0])}
        >>> found = ReplaySample(data, SampleInfo(*np.zeros((5, 3)))).describe()
        >>> found.columns["reward"].mean, found.suspicious
        (3.0, ('observation: 0 in all 3 rows', 'reward: all positive'))
        """
        return described(self.data, self.info.keys, self.mask)

    def __getitem__(self, name: str) -> Any:
        """Returns a column or view of `data`; a path such as "observation/camera" returns that leaf or sub-tree.

        Raises:
            KeyError: no such part; the message has the known names.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"batch[...]: expected the name of a column, got {name!r}; batch.data is the whole tree"
            )
        data = self.data
        # The name of a view may contain a slash.
        return data[name] if isinstance(data, dict) and name in data else at_path(data, name)


class BatchMemory(NamedTuple):
    """The memory in which the arrays of a batch lie.

    Attributes:
        buffer: all arrays but the wide ones; it holds other bytes as well.
        form: equal for batches whose arrays have the same places in the buffer, shapes and dtypes.
        wide: the arrays of wide columns, in an order that the form determines.
    """

    buffer: NDArray[np.uint8]
    form: object
    wide: Sequence[NDArray[Any]] = ()


@dataclass(slots=True)
class ReplaySample(ColumnsByName):
    """A batch of items, copied out: it never changes, and writing to it changes nothing else.

    Attributes:
        data: the signature's tree, or a dict of views; leaves `[B, ...]` for items of one step, `[B, L, ...]` for
            longer ones, L being the longest item of the batch. `batch["observation/camera"]` reads a part of it.
        info: keys, priorities and so on of the items.
        mask: bool[B, L], True for real rows; None if no row is padding.
        layout: the lengths of the items, for `pack`.
    """

    # Rules: replay B4

    data: Any
    info: SampleInfo
    mask: NDArray[np.bool_] | None = None
    layout: BatchLayout = ONE_STEP
    _origin: Origin | None = field(default=None, init=False, repr=False, compare=False)
    _memory: BatchMemory | None = field(default=None, init=False, repr=False, compare=False)

    def explain(self, i: int) -> Explanation:
        """Tells where element `i` comes from: its lane, episode and step, and the stored rows that each view shows.

        Goals of hindsight are left out: the rows are those of the stored values.

        Raises:
            Closed: the replay is closed, or draws other columns now.
            IndexError: no such element.
            ItemNotFound: the item has left the table since, so other steps may be in its rows.
            Unsupported: the batch was not drawn in this process.
        """
        key = int(self.info.keys[i])
        if self._origin is None:
            raise Unsupported("explain: expected a batch drawn from a replay of this process")
        return self._origin.explain(key)

    def pack(self) -> PackedBatch:
        """Returns the rows without padding, one item after another: leaves `[sum(lengths), ...]`, and the lengths.

        >>> import numpy as np
        >>> info = SampleInfo(*np.zeros((5, 2)))
        >>> mask = np.array([[True, True, True], [True, False, False]])
        >>> packed = ReplaySample({"x": np.array([[1, 2, 3], [4, 0, 0]])}, info, mask, BatchLayout(3)).pack()
        >>> packed.data["x"], packed.lengths, packed.offsets
        (array([1, 2, 3, 4]), array([3, 1]), array([0, 3, 4]))
        >>> packed.pad(packed.data["x"] * 10)
        array([[10, 20, 30],
               [40,  0,  0]])
        """
        return pack(self)
