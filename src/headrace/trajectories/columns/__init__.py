"""Trees of a step or of a frame, read into checked columns."""
