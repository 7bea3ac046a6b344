"""Batches out of the answers of a server."""
