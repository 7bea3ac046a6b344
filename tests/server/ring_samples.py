"""Rings for samples, and samples for them: some as they should be, and some not."""

import socket
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import headrace as hr
from headrace.errors import SpecError
from headrace.kernels import shared_count
from headrace.server.client.queues.sample_ring import SampleRing
from headrace.server.messages.samples import SampleLayout
from headrace.spec import ArraySpec
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked_reader
from headrace.trees import compile_tree

needs_compiled = pytest.mark.skipif(
    shared_count.__file__.endswith(".py"), reason="plain kernels write every sample the checked way"
)
EXAMPLES = [
    np.zeros(3, np.int16),
    0.0,
    {"observation": np.zeros((2, 2), np.float32), "reward": np.float32(0), "done": False},
    (np.zeros(2, np.uint8), {"a": 0, "b": [np.float16(0), np.complex64(0)]}),
    {"empty": np.zeros((0, 4)), "a": np.int8(0)},
]
ODD = st.one_of(
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from(["text", None, [1, 2, 3]]),
    hnp.arrays(
        st.sampled_from([np.int16, np.float32, np.float64, np.uint8, np.bool_, np.dtype(">i2")]),
        st.sampled_from([(), (1,), (2,), (3,), (2, 2), (0, 4)]),
    ).map(np.transpose),
)


def like(example):
    """Trees like an example, some with leaves of other kinds and some of another structure."""
    if isinstance(example, dict):
        exact = st.fixed_dictionaries({name: like(value) for name, value in example.items()})
        return st.one_of(exact, exact, exact, exact.map(lambda found: {**found, "more": 0}), ODD)
    if isinstance(example, tuple | list):
        return st.tuples(*map(like, example)).map(type(example))
    array = np.asarray(example)
    exact = hnp.arrays(array.dtype, array.shape)
    return st.one_of(exact, exact, exact.map(lambda found: found[()]), ODD)


SAMPLES = [st.lists(like(example), max_size=3) for example in EXAMPLES]


def opened(example):
    """A ring that takes samples at once, and the checked reader of samples."""
    signature = hr.Signature.like(example)
    ring = SampleRing(signature, SampleLayout(signature), 64, is_shared=False)
    ring.rows.free_until, ring.rows.quiet_until = ring.places, 1 << 40
    node = compile_tree(signature.tree, lambda node: isinstance(node, ArraySpec))
    checks = [LeafCheck(path, spec) for path, spec in signature.columns.items()]
    return ring, checked_reader(node, checks)


def taken(call):
    try:
        return call()
    except SpecError as error:
        return str(error)


def confirmed(stream):
    """Returns the number of the last sample that is confirmed, also by answers that its client has not read yet."""
    number = stream._count.get()
    if not stream._is_shared:
        with suppress(BlockingIOError):
            connection = stream._sender.link._channel._socket
            number += connection.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT).count(b"hrl1")
    return number
