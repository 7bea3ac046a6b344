"""The messages between clients and their server, recorded by a connection between them."""

import socket
import threading
from contextlib import contextmanager

import headrace as hr
from tests.server.hostile import connected


@contextmanager
def tapped(server):
    """Taps a server's TCP address.

    Yields:
        The address of the tap, and a list that gets for each connection what each side said: [(side, bytearray)], in
        turn.
    """
    connections, threads = [], []

    def copy(source, destination, side, turns):
        try:
            while data := source.recv(1 << 16):
                if turns and turns[-1][0] == side:
                    turns[-1][1].extend(data)
                else:
                    turns.append((side, bytearray(data)))
                destination.sendall(data)
            destination.shutdown(socket.SHUT_WR)
        except OSError:  # The other side has ended.
            pass

    def forward(one, turns):
        with one, connected(server) as other:
            back = threading.Thread(target=copy, args=(other, one, "server", turns))
            back.start()
            copy(one, other, "client", turns)
            back.join()

    def accept(tap):
        while True:
            try:
                one, _ = tap.accept()
            except OSError:  # The tap is closed.
                return
            connections.append([])
            threads.append(threading.Thread(target=forward, args=(one, connections[-1])))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as tap:
        accepting = threading.Thread(target=accept, args=(tap,))
        accepting.start()
        try:
            yield f"tcp://127.0.0.1:{tap.getsockname()[1]}", connections
        finally:
            tap.shutdown(socket.SHUT_RDWR)
            accepting.join(10)
            for thread in threads:
                thread.join(10)


def recorded_turns(server, token):
    """Returns what each side said in a session over TCP that does nothing: (side, bytes), in turn."""
    with tapped(server) as (address, connections):
        hr.Client(address, token=token).close()
    return [(side, bytes(data)) for side, data in connections[0]]
