"""Views of rows that stand in a store, as `Replay.sample` presents them."""
