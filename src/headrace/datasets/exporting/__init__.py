"""Parts that every export shares: sources, structure, header, atomic writing."""
