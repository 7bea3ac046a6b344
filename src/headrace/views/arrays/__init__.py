"""Views of rows that stand in arrays: episodes, fragments, and histories of running episodes."""
