"""Checkpoints of a replay: written whole or not at all, read only if every byte is right."""

from headrace.persist.checkpoint.loading import load as load
from headrace.persist.checkpoint.saving import save as save

__all__ = ["load", "save"]
