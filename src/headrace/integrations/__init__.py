"""Replay buffers and conversions for other libraries, one module a library; each is imported when it is used."""
