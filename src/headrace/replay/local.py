"""The inside of a replay of this process, for the parts of Headrace that bring or read rows in place."""

from __future__ import annotations

import threading
from typing import Protocol

from headrace.clock import Clock
from headrace.replay.declarations import Declarations
from headrace.replay.item_keys import ItemKeys
from headrace.replay.lifetime import Lifetime
from headrace.replay.open_writers import OpenWriters
from headrace.replay.sampling.sampler import Sampling
from headrace.spec import Signature
from headrace.store.store import Store
from headrace.tables.live_table import LiveTable


class LocalReplay(Protocol):
    """A replay whose rows lie in this process; `core_of(replay)` gives it.

    Intakes, leases, collectors and the readers of stored episodes ask for it. Everything else asks for `ReplayLike`.

    Attributes:
        store: the rows.
        lock: of the store and the tables.
        clock: for deadlines.
        lifetime: whether the replay is open.
        keys: of new items.
        writers: those that can bring items.
        declarations: of final and padded rows.
        sampling: makes batches.
    """

    store: Store
    lock: threading.RLock
    clock: Clock
    lifetime: Lifetime
    keys: ItemKeys
    writers: OpenWriters
    declarations: Declarations
    sampling: Sampling

    @property
    def signature(self) -> Signature:
        """The signature of one step."""

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns that final rows hold values of; empty before the first is declared."""

    @property
    def is_closed(self) -> bool:
        """See `Lifetime.is_closed`."""

    def check_open(self) -> None:
        """See `Lifetime.check_open`."""

    def live_table(self, name: str) -> LiveTable:
        """Returns the state of a table.

        Raises:
            KeyError: no such table.
            Closed: the replay is closed.
        """

    def items_may_leave(self) -> bool:
        """Whether learners can be expected to let items leave, so that waiting for a free page makes sense."""
