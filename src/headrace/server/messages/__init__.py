"""Messages between clients and servers."""
