"""What a client and its server say to each other, read by a tap between them."""

import socket
import threading

import headrace as hr
from tests.server.hostile import connected


def recorded_turns(server, token):
    """Returns what each side said in a session over TCP that does nothing: (side, bytes), in turn."""
    turns = []

    def copy(source, destination, side):
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

    with socket.create_server(("127.0.0.1", 0)) as tap:

        def forward():
            one, _ = tap.accept()
            with one, connected(server) as other:
                back = threading.Thread(target=copy, args=(other, one, "server"))
                back.start()
                copy(one, other, "client")
                back.join()

        thread = threading.Thread(target=forward)
        thread.start()
        hr.Client(f"tcp://127.0.0.1:{tap.getsockname()[1]}", token=token).close()
        thread.join(10)
    return [(side, bytes(data)) for side, data in turns]
