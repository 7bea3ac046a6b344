"""Which items next: tables with selectors and rate limiters over a store, and the `Replay` that has them."""

from headrace.replay.estimate import estimate_bytes
from headrace.replay.intake.writer import Writer
from headrace.replay.public import Replay
from headrace.replay.sampling.packing import PackedBatch
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo
from headrace.replay.table_view import TableView
from headrace.tables.description import rate_limiters, selectors
from headrace.tables.description.rules import ItemRule
from headrace.tables.description.table import Table

__all__ = [
    "ItemRule",
    "PackedBatch",
    "Replay",
    "ReplaySample",
    "SampleInfo",
    "Table",
    "TableView",
    "Writer",
    "estimate_bytes",
    "rate_limiters",
    "selectors",
]
