"""The state machine of a table: items, selectors, limiters, windows, draws and updates. No thread, no file, no user."""
