"""Rows that come from elsewhere: pages are leased to a writer, which fills them and reports what it has written."""
