"""The parts of a client."""
