"""A worker process, seen from the process of its collector."""
