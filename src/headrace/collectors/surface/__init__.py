"""The public methods that all collectors share, one topic a file."""
