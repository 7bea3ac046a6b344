"""Step writers: steps of one environment or of many lanes into items."""
