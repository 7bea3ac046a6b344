"""All workers of a collector together: which may begin a rollout, and what becomes of their rollouts."""
