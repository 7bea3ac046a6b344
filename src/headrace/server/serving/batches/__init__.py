"""Batches on their way to clients."""
