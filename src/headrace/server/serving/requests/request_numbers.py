"""Numbers of the requests of one client that wait for their answers."""

from __future__ import annotations

from collections.abc import Container, Iterable

from headrace.leases.checking import LeaseError


def check_unused(numbers: Iterable[int], waiting: Container[int]) -> None:
    """Refuses requests with numbers under which others wait: those would be forgotten, and hold up other clients.

    Raises:
        LeaseError: a request waits under one of these numbers.
    """
    # tests/server/test_request_numbers.py
    for number in numbers:
        if number in waiting:
            raise LeaseError(f"number: expected one under which no request waits, got {number}")
