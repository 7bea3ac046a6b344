"""server WI5: nothing from the network is unpickled or evaluated; dtypes are from a fixed list, little-endian."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.server.client.answers.placed_arrays import array_in
from headrace.server.client.queues.packed_samples import PackedSamples
from headrace.server.messages.answers import PlacedArray
from headrace.server.messages.dtypes import dtype_of
from headrace.server.messages.views import ArrayValue, array_of

SOURCES = Path(hr.__file__).parent
FOREIGN = [
    *(">f4", ">i8", "=f4", "f4", "float32", "O", "|O", "S8", "<U4", "|V8", "<M8[s]", "<m8[s]"),
    *(
        "",
        "i4,f4",
        "(2,3)<f4",
        "2<f4",
        "{'names': ['a'], 'formats': ['<f4']}",
        "__import__('os')",
        "object",
        "\0",
    ),
]


@pytest.mark.parametrize("name", FOREIGN)
def test_other_dtypes_are_refused_on_both_sides(name):
    """Answers name them to a client, and fills of views to a server."""
    with pytest.raises(ValueError, match="dtype: expected"):
        array_in(np.zeros(64, np.uint8), PlacedArray(name, (2,), None, 0))
    with pytest.raises(ValueError, match="dtype: expected"):
        array_of(ArrayValue(name, (1,), bytes(4)))


@pytest.mark.parametrize("kind", "?bBhHiIlLqQefdFD")
def test_numbers_and_bools_are_taken(kind):
    dtype = np.dtype(kind)
    assert dtype_of(dtype.newbyteorder("<").str) == dtype
    value = np.ones(3, dtype)
    assert (array_of(ArrayValue(value.dtype.str, (3,), value.tobytes())) == value).all()


@pytest.mark.parametrize("dtype", [">i4", "<i4"])
def test_values_travel_in_little_endian_order(dtype, monkeypatch):
    """The order of the caller's arrays does not matter."""
    sent, packed = [], PackedSamples.packed
    monkeypatch.setattr(
        PackedSamples, "packed", lambda self, pieces: sent.append(b"".join(pieces)) or packed(self, pieces)
    )
    with hr.BatchQueue({"n": np.zeros(2, dtype)}, 1) as queue:
        with hr.Server({"q": queue}) as server, hr.Client(server.address) as client:
            remote = client.queue("q")
            remote.send({"n": np.array([1, 0x01020304], dtype)})
            remote.wait(10)
            batch, _ = remote.sample(timeout=10)
    assert batch["n"].tolist() == [[1, 0x01020304]]
    assert sent[0].startswith(b"\x01\0\0\0\x04\x03\x02\x01")


@pytest.mark.parametrize("dtype", [">f8", "<f8"])
def test_fills_of_views_keep_their_values(dtype):
    """They are described to the server with their dtype."""
    views = {"n": hr.View("n", shift=-1, fill=np.array(2.5, dtype))}
    with hr.Replay(hr.Signature.like({"n": 0.0}), [hr.Table.queue("q", 9)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            writer.append({"n": 7.0})
        with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
            assert client.replay("r").sample("q", 1, views=views)["n"].tolist() == [2.5]


@pytest.mark.parametrize("folder", ["server", "leases"])
def test_no_code_that_could_do_so_is_there(folder):
    """Neither modules that unpickle, nor calls that evaluate; numpy.load would unpickle, too."""
    found = []
    for path in sorted((SOURCES / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call):
                names = [ast.unparse(node.func)]
            found += [
                f"{path.name}: {name}"
                for name in names
                if name.split(".")[0] in {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
                or name in {"eval", "exec", "compile", "__import__", "np.load", "numpy.load"}
            ]
    assert found == []


SESSION = """
import pickle, sys
import numpy as np
import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.messages.requests import Ping, SendSamples
from tests.server.hostile import SESSION, said_to

class Told:
    def __reduce__(self):
        return print, ("unpickled",)

def all_of_it(server):
    with hr.Client(server.address) as client:
        replay, queue = client.replay("r"), client.queue("q")
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": 1.0})
        replay.sample("t", 1, views={"x": hr.View("x", fill=np.array(1.0))})
        queue.send({"x": 2.0})
        queue.wait(10)
        queue.sample(timeout=10)
        client.statistics()
        try:
            replay.sample("none", 1)
        except KeyError:
            pass
    for data in (pickle.dumps(Told()), b"__import__('os').abort()"):
        said_to(server, data)
        said_to(server, SESSION + encoded(SendSamples(number=1, queue="q", first=1, count=1), data))
        said_to(server, SESSION + encoded(Ping(number=1), data) + data)

table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
with hr.Replay(hr.Signature.like({"x": 0.0}), [table]) as replay, hr.BatchQueue({"x": 0.0}, 1) as queue:
    with hr.Server({"r": replay, "q": queue}) as server:
        all_of_it(server)  # Imports what is imported late.
        found = []
        watched = ("pickle.find_class", "exec", "compile", "marshal.loads", "import", "os.system", "subprocess.Popen")
        sys.addaudithook(lambda event, arguments: found.append((event, arguments)) if event in watched else None)
        all_of_it(server)
        seen = [*found]
        eval("1 + 1")
        assert len(found) > len(seen), "the watch sees nothing"
        print(seen)
"""


def test_a_session_evaluates_nothing():
    """Of a client, and of peers that send pickles and code in all places."""
    run = subprocess.run(
        [sys.executable, "-c", SESSION],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[]\n"
