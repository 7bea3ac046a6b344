"""The loop that collects: the same inline and in worker processes."""
