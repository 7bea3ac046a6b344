"""A server whose process is killed and started again; a process that has imported everything forks it."""

import json
import subprocess
import sys

import headrace as hr

NUMBERS = hr.Signature.like({"n": 0})

_FORKS = """
import json, os, signal, sys, time
import headrace as hr
import headrace.server
path, socket, bound, most, signature = sys.argv[1:]
signature = hr.Signature.from_json(json.loads(signature))
fifo = hr.selectors.Fifo()
limiter = hr.rate_limiters.Queue(int(bound)) if bound else hr.rate_limiters.MinSize(1)
settings = {"max_size": 10**6, "rate_limiter": limiter, "max_times_sampled": int(most)}

def serve():
    tables = [hr.Table(name, sampler=fifo, remover=fifo, **settings) for name in "tu"]
    replay = hr.Replay(signature, tables, path=path, capacity=200_000)
    with hr.Server({"r": replay}, address=None, unix=socket):
        print("ready", flush=True)
        time.sleep(10**6)

with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 1)]) as replay:
    with hr.Server({"r": replay}) as server, hr.Client(server.address):
        pass  # Loads everything once.
child = 0
for line in sys.stdin:
    if line == "start\\n":
        child = os.fork()
        if not child:
            serve()
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print("killed", flush=True)
"""


class KilledServer:
    """A server of the replay "r" on disk, with the tables "t" and "u".

    Args:
        folder: of the replay and the socket.
        bound: of the rate limiter, which is a queue; None: there is none.
        most: number of times that an item is sampled.
        signature: of the replay.
    """

    def __init__(self, folder, bound=None, most=1, signature=NUMBERS):
        arguments = [str(folder / "replay"), str(folder / "socket"), str(bound or ""), str(most)]
        arguments.append(json.dumps(signature.to_json()))
        self.address = f"unix://{folder / 'socket'}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._is_running = False
        self.start()

    def _do(self, what, expected):
        self._process.stdin.write(f"{what}\n")
        assert self._process.stdout.readline() == f"{expected}\n"

    def start(self):
        self._do("start", "ready")
        self._is_running = True

    def kill(self):
        if self._is_running:
            self._is_running = False
            self._do("kill", "killed")

    def close(self):
        self.kill()
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
