"""Lanes of a policy: rows of trajectories, and what is shown of them."""
