"""The parts of a server that work for one client each."""
