"""Batches `[N, T, ...]`, made of committed steps."""
