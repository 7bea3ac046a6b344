"""Environments with several agents: their steps, and the lanes of their agents."""
