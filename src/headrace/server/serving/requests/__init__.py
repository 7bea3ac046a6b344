"""Requests of one client, and their answers."""
