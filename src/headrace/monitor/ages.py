"""Ages and weights of a table's items, read rarely, because a pass over the items holds the replay's lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headrace.errors import Unsupported

SECONDS_KEPT = 10.0
"""An answer is given again for so long, however many pages ask."""
MAX_ITEMS = 1_000_000
"""Tables with more items are not read: the pass would hold up learners for longer than 0.1 s."""


class Ages:
    """Answers from `TableView.distribution`, each kept for ten seconds.

    Args:
        now: returns seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._answers: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, replay: Any, replay_name: str, table_name: str) -> dict[str, Any]:
        """Returns the distribution of a table, and how old this answer is.

        Raises:
            KeyError: no such table.
            Unsupported: the tables of the replay have none, or too many items.
            Closed: the replay is closed.
        """
        # Held during the pass, so that pages that ask together share one answer.
        with self._lock:
            table = replay.table(table_name)
            key = (replay_name, table_name)
            made, answer = self._answers.get(key, (-SECONDS_KEPT, {}))
            if not answer or self._now() - made >= SECONDS_KEPT:
                made, answer = self._now(), self._read(table)
                self._answers[key] = (made, answer)
            return {**answer, "age_seconds": round(self._now() - made, 1)}

    @staticmethod
    def _read(table: Any) -> dict[str, Any]:
        if not hasattr(table, "distribution"):
            raise Unsupported("ages: the tables of this replay do not tell them")
        if len(table) > MAX_ITEMS:
            raise Unsupported(f"ages: expected at most {MAX_ITEMS} items, got {len(table)}")
        return asdict(table.distribution())
