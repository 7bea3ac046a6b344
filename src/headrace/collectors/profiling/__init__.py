"""Profiles of collection: Chrome traces of rollouts."""
