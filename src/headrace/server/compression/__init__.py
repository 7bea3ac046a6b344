"""Compression of payloads between machines."""
