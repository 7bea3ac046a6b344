"""Channels over TLS."""
