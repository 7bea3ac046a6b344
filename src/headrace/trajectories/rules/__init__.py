"""Rules of step writers: which windows, transitions, episodes and patterns become items."""
