"""Checkpoints of a replay: written whole or not at all, read only if every byte is right.

`Replay.save` and `Replay.load` come here.
"""

from headrace.persist.loading import load as load
from headrace.persist.saving import save as save

__all__ = ["load", "save"]
