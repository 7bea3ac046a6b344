"""Batches of columns in memory: rows and sequences of steps, several policies, and conversion to torch and JAX.

Nothing here needs a store, so views, rollouts and collectors share it.
"""
