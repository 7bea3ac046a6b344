"""Observers: frames of one environment, one a call, into items."""
