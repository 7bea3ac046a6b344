"""The announcement of a payload whose buffers are compressed."""

from __future__ import annotations

from headrace.leases.messages import Message


class Packed(Message, kw_only=True):
    """Both directions: the payload of the next message comes as buffers, some of which are compressed by zstd.

    The receiver puts the buffers together, so the message means the same as without compression.

    Attributes:
        buffers: of each buffer the number of bytes, and the number of bytes as it travels. It is compressed if the
            second number is smaller, and comes as it is if both are equal.
    """

    buffers: list[tuple[int, int]]
