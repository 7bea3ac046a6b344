"""Queues on a server."""
