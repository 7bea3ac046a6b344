"""Frames: in pieces of any size, with descriptors, and refused before memory is taken for them."""

import os
import socket
import struct
import threading
from contextlib import ExitStack, closing

import numpy as np
import pytest

import headrace as hr
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame, FrameReader, encoded
from headrace.leases.messages import VERSION, Ack, Goodbye, Hello, Lease, LeaseMessage

HELLO = encoded(Hello(version=VERSION))


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_frames_come_in_pieces_of_any_size(piece):
    reader, found = FrameReader(LeaseMessage), []
    sent = [(Ack(writer=1, sequence=n), bytes(n)) for n in range(5)]
    data = HELLO + b"".join(encoded(message, payload) for message, payload in sent)
    for first in range(0, len(data), piece):
        reader.feed(data[first : first + piece], [])
        while (frame := reader.take()) is not None:
            found.append((frame.message, frame.payload))
    assert found == sent


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\nxxxxxx", "does not speak"),
        (struct.pack("<4sIIQ", b"hrl1", 1 << 30, 0, 0), "announced"),
        (struct.pack("<4sIIQ", b"hrl1", 10, 0, 1), "announced"),
        (HELLO + struct.pack("<4sIIQ", b"hrl1", 10, 5, 0), "announced"),
        (HELLO + struct.pack("<4sIIQ", b"hrl1", 10, 0, 1 << 40), "announced"),
        (encoded(Hello(version=VERSION + 1)), "version"),
        (encoded(Ack(writer=0, sequence=0)), "no message"),
        (HELLO + struct.pack("<4sIIQ", b"hrl1", 3, 0, 0) + b"\xff\xff\xff", "no message"),
        (HELLO + encoded(Goodbye(reason="ab")).replace(b"ab", b"\xff\xfe"), "no message"),
    ],
)
def test_what_is_not_of_the_protocol_is_refused(data, told):
    reader = FrameReader(LeaseMessage)
    reader.feed(data, [])
    with pytest.raises(hr.Disconnected, match=told):
        reader.take()


def test_descriptors_come_with_their_frame():
    one, other = Channel.pair(LeaseMessage)
    read, write = os.pipe()
    one.send(Ack(writer=0, sequence=1))
    one.send_soon(Ack(writer=0, sequence=2), descriptors=(write,))
    os.close(write)
    assert other.receive() == Frame(Ack(writer=0, sequence=1), b"", [])
    frame = other.receive()
    os.write(frame.descriptors[0], b"here")
    assert os.read(read, 4) == b"here"
    for descriptor in (read, *frame.descriptors):
        os.close(descriptor)
    one.close()
    other.close()


def test_a_frame_whose_descriptors_do_not_come_is_refused():
    """Else the peer could send without end, and all of it would be kept."""
    reader = FrameReader(LeaseMessage)
    reader.feed(HELLO + encoded(Ack(writer=0, sequence=1), descriptors=1), [])
    with pytest.raises(hr.Disconnected, match="announced 1 descriptors and sent 0"):
        reader.take()


def test_descriptors_without_a_frame_are_refused_and_closed():
    one, other = Channel.pair(LeaseMessage)
    read, write = os.pipe()
    one.send(Ack(writer=0, sequence=1))
    other.receive()
    for _ in range(2):
        socket.send_fds(one._socket, [HELLO[:1]], [write] * 4)
    os.close(write)
    with pytest.raises(hr.Disconnected, match="belong to no frame"):
        other.receive()
    other.close()
    assert os.read(read, 1) == b"", "a descriptor is still open"
    os.close(read)
    one.close()


def test_a_frame_as_long_as_the_latest_comes_with_one_read():
    """Most answers of a server are as long as the ones before; a longer frame takes several reads."""
    one, other = Channel.pair(LeaseMessage)
    reads = []
    for nbytes in (40_000, 40_000, 100, 50_000, 50_000):
        one.send_soon(Ack(writer=1, sequence=nbytes), payload=bytes(nbytes))
        frames, count = [], 0
        while not frames:
            frames, count = list(other.receive_ready()), count + 1
        [frame] = frames
        assert (frame.message.sequence, len(frame.payload)) == (nbytes, nbytes)
        reads.append(count)
    assert reads == [2, 1, 1, 2, 1]
    one.close()
    other.close()


def test_what_a_peer_does_not_read_is_bounded():
    one, other = Channel.pair(LeaseMessage)
    lease = Lease(writer=0, page=1, purpose="rows")
    assert one.send_soon(lease)
    while one.send_soon(lease, payload=bytes(1000), most=100_000):
        pass
    with pytest.raises(hr.Disconnected, match="does not read"):
        one.send_soon(lease, payload=bytes(100_000), most=100_000)
    one.close()
    other.close()


def test_a_message_with_descriptors_does_not_wait_for_the_peer():
    one, other = Channel.pair(LeaseMessage)
    payload = bytes(1 << 22)
    assert not one.send_soon(
        Ack(writer=0, sequence=1), parts=[memoryview(payload)], descriptors=(one.fileno(),)
    )
    assert one.unsent
    while (frames := list(other.receive_ready())) == []:
        one.send_rest()
    assert frames[0].message == Ack(writer=0, sequence=1)
    assert frames[0].payload == payload
    assert os.fstat(frames[0].descriptors[0]).st_ino == os.fstat(one.fileno()).st_ino
    frames[0].close_descriptors()
    one.close()
    other.close()


def test_what_waits_is_sent_in_order():
    one, other = Channel.pair(LeaseMessage)
    count = 0
    while one.send_soon(Ack(writer=0, sequence=count), payload=bytes(5000)):
        count += 1
    for number in range(count + 1):
        while not (is_sent := one.send_rest()) and number < count:
            break
        assert other.receive().message.sequence == number
    assert is_sent
    one.close()
    other.close()


def test_a_message_that_is_being_held_when_the_hold_ends_is_sent_before_later_ones():
    """A writer's thread sends steps while the thread that listens ends a hold: the order of steps must be kept."""

    class Ending(list):
        """Lets the other thread end the hold just before the first message is added."""

        def __iadd__(self, pieces):
            listening.start()
            listening.join(0.1)  # It ends at once, unless it waits for this thread.
            return super().__iadd__(pieces)

    one, other = Channel.pair(LeaseMessage)
    listening = threading.Thread(target=one.send_held)
    one.hold()
    one._held = Ending()
    one.send_soon(Ack(writer=0, sequence=1))
    listening.join(10)
    one.send_soon(Ack(writer=0, sequence=2))
    assert [other.receive().message.sequence for _ in range(2)] == [1, 2]
    assert not one.unsent
    one.close()
    other.close()


@pytest.mark.parametrize("descriptors", [(), (0,)], ids=["no descriptor", "a descriptor"])
@pytest.mark.parametrize("holds", [True, False])
def test_messages_that_may_wait_go_with_the_next_one_and_before_it(holds, descriptors):
    one, other = Channel.pair(LeaseMessage)
    if holds:
        one.hold()
    for sequence in (1, 2):
        one.send_later(Ack(writer=0, sequence=sequence))
    if holds:
        one.send_held()
    assert not one.unsent  # Else the thread that listens would wait for the chance to send it.
    assert not one.bytes_out
    assert one.send_soon(Ack(writer=0, sequence=3), descriptors=descriptors)
    frames = [other.receive() for _ in range(3)]
    assert [frame.message.sequence for frame in frames] == [1, 2, 3]
    assert [len(frame.descriptors) for frame in frames] == [0, 0, len(descriptors)]
    for frame in frames:
        frame.close_descriptors()
    one.close()
    other.close()


@pytest.mark.parametrize("due", ["another message", "send_waiting"])
def test_messages_that_may_wait_go_at_the_end_of_a_hold_if_one_is_due(due):
    one, other = Channel.pair(LeaseMessage)
    one.send_later(Ack(writer=0, sequence=1))
    one.hold()
    if due == "send_waiting":
        one.send_waiting()
    else:
        assert one.send_soon(Ack(writer=0, sequence=2))
    assert one.unsent
    assert not one.bytes_out
    one.send_held()
    assert other.receive().message.sequence == 1
    assert not one.unsent
    one.send_later(Ack(writer=0, sequence=3))
    one.hold()
    one.send_held()  # What was due before is sent.
    sent = one.bytes_out
    one.send_waiting()
    one.send_waiting()
    assert one.bytes_out > sent
    assert [other.receive().message.sequence for _ in range(2 - (due == "send_waiting"))][-1] == 3
    one.close()
    other.close()


def test_a_peer_that_ends_is_noticed():
    one, other = socket.socketpair()
    channel = Channel(one, LeaseMessage)
    other.sendall(HELLO[:5])
    other.close()
    with pytest.raises(hr.Disconnected, match="ended"):
        channel.receive()
    channel.close()
    with pytest.raises(hr.Disconnected):
        channel.send(Ack(writer=0, sequence=np.int64(1).item()))


@pytest.mark.parametrize("descriptors", [0, 1])
def test_a_message_longer_than_the_system_takes_is_sent_whole(descriptors):
    payload = np.random.default_rng(0).bytes(1 << 24)
    with ExitStack() as stack:
        one, other = (stack.enter_context(closing(end)) for end in Channel.pair(LeaseMessage))
        given = (stack.enter_context(open(os.devnull)).fileno(),) * descriptors
        sender = threading.Thread(
            target=one.send,
            args=(Ack(writer=0, sequence=1),),
            kwargs={"payload": payload, "descriptors": given},
        )
        sender.start()
        frame = other.receive()
        sender.join()
        assert frame.payload == payload
        assert len(frame.descriptors) == descriptors
        assert one.bytes_out == other.bytes_in > len(payload)
        frame.close_descriptors()
