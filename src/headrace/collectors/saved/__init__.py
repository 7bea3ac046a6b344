"""Checks of saved states, before anything of them is loaded."""
