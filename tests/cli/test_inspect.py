"""`headrace inspect` (datasets X3)."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.inspect import contact_sheet
from headrace.datasets import save_minari, save_npz, save_parquet
from headrace.datasets.exporting.structure import Column
from headrace.monitor import pictures

PNG = b"\x89PNG\r\n"


def inspect(*arguments):
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def episode(steps, number=0, observations=None):
    end = np.arange(steps) == steps - 1
    return hr.Episode(
        np.arange(steps + 1.0) if observations is None else observations,
        np.arange(steps),
        np.full(steps, float(number)),
        end & (number % 2 == 0),
        end & (number % 2 == 1),
        seed=number,
    )


@pytest.mark.parametrize("save", [save_npz, save_parquet])
def test_contents_for_machines(tmp_path, save):
    path = save(
        [episode(n + 1, n) for n in range(30)], tmp_path / "x.npz", metadata={"by": "me", "nan": np.nan}
    )
    done = inspect(path, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output, parse_constant=pytest.fail)
    assert (told["episodes"], told["steps"], told["terminated"], told["truncated"]) == (30, 465, 15, 15)
    assert told["kind"] == save.__name__.removeprefix("save_")
    assert told["length"] == {"mean": 15.5, "min": 1, "max": 30}
    assert told["return"]["max"] == 29 * 30
    assert told["columns"]["observations"] == "float64[]"
    assert told["metadata"]["by"] == "me"
    assert told["observation_space"] is None
    assert told["contents"][3] == {
        "episode": 3, "id": None, "seed": 3, "length": 4, "return": 12.0, "terminated": False, "truncated": True
    }  # fmt: skip
    assert len(told["contents"]) == 30


def test_what_a_person_sees(tmp_path):
    path = save_npz([episode(n + 1, n) for n in range(30)], tmp_path / "[x]", metadata={"by": "[me]"})
    done = inspect(path)
    assert done.exit_code == 0, done.output
    for word in (
        "30",
        "465",
        "terminated",
        "truncated",
        "return",
        "length",
        "observations",
        "[me]",
        "and 10 more",
    ):
        assert word in done.output
    assert "[x].npz" in done.output.replace("\n", "")


def test_spaces_of_minari(tmp_path):
    pytest.importorskip("h5py")
    save_minari([episode(3)], "line-v0", root=tmp_path)
    done = inspect(tmp_path / "line-v0")
    assert done.exit_code == 0, done.output
    assert "Box" in done.output
    assert "Discrete" in done.output
    assert "Discrete" in json.loads(inspect(tmp_path / "line-v0", "--json").output)["action_space"]


@pytest.mark.parametrize("shape", [(), (84, 84), (32, 32, 3), (4, 20, 30), (16, 16, 1)])
def test_a_picture(tmp_path, shape):
    images = np.random.default_rng(0).integers(0, 255, (6, *shape), dtype=np.uint8)
    path = save_npz([episode(5, n, {"camera": images}) for n in range(6)], tmp_path / "a$x")
    done = inspect(path, "--png", tmp_path / "x.png", "--json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("shape", "dtype", "found"),
    [
        ((84, 84), "u1", True),
        ((84, 84, 3), "u1", True),
        ((4, 84, 84), "u1", True),
        ((84, 84, 3), "f4", False),
        ((3, 4), "u1", False),
        ((84, 84, 7), "u1", False),
        ((128,), "u1", False),
    ],
)
def test_what_counts_as_an_image(shape, dtype, found):
    assert contact_sheet.is_image(Column("observations/x", np.dtype(dtype), shape)) is found
    assert not contact_sheet.is_image(Column("infos/x", np.dtype(dtype), shape))


def test_of_a_stack_the_newest_frame_is_shown():
    stack = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((4, 20, 30), np.uint8)
    assert pictures.as_picture(stack).tolist() == np.full((20, 30), 3).tolist()
    colour = np.zeros((20, 30, 3), np.uint8)
    assert pictures.as_picture(colour) is colour


def test_a_sheet_has_the_ends_of_the_first_episodes():
    images = np.arange(21, dtype=np.uint8)[:, None, None] * np.ones((21, 10, 10), np.uint8)
    one = episode(20, observations=images)
    sheet = contact_sheet.ContactSheet.of(hr.datasets.exporting.structure.Structure.of(one))
    for _ in range(9):
        sheet.add(one)
    assert [[image[0, 0] for image in row] for row in sheet.rows] == [[0, 3, 6, 9, 11, 14, 17, 20]] * 4
    short = contact_sheet.ContactSheet.of(hr.datasets.exporting.structure.Structure.of(one))
    short.add(episode(2, observations=images[:3]))
    assert len(short.rows[0]) == 3


def test_exit_codes(tmp_path):
    path = save_npz([episode(3)], tmp_path / "x.npz")
    nothing = inspect(tmp_path / "nothing")
    assert (nothing.exit_code, "SOURCE" in nothing.output, "nothing" in nothing.output) == (2, False, True)
    assert inspect().exit_code == 2
    done = inspect(path, "--png", tmp_path / "no" / "folder.png")
    assert (done.exit_code, "folder.png" in done.output.replace("\n", "")) == (1, True)
    path.write_bytes(path.read_bytes()[:100])
    done = inspect(path)
    assert (done.exit_code, done.output.startswith("Error: DatasetError: ")) == (1, True)


def test_a_replay_without_complete_episodes_is_1(tmp_path):
    step = {"observation": 0.0, "action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 100)]) as replay:
        replay.save(tmp_path / "run")
    done = inspect(tmp_path / "run")
    assert (done.exit_code, "no complete episode" in done.output.replace("\n", " ")) == (1, True)


def test_folders_of_other_things_are_named(tmp_path):
    (tmp_path / "run").mkdir()
    done = inspect(tmp_path / "run")
    assert (done.exit_code, "CheckpointError" in done.output) == (1, False)
    assert "the folder holds nothing" in done.output.replace("\n", " ")
    (tmp_path / "run" / "notes.txt").write_text("x")
    assert "notes.txt" in inspect(tmp_path / "run").output
    done = inspect(tmp_path / "run" / "nothing")
    assert (done.exit_code, "no such file or folder" in done.output) == (2, True)


def test_a_folder_of_train(tmp_path):
    torch = pytest.importorskip("torch")
    from headrace.cli.dqn import checkpoint
    from headrace.cli.dqn.network import NetworkShape
    from headrace.cli.dqn.policy import EpsilonGreedy
    from headrace.cli.episodes import EndedEpisode, write_csv

    folder = tmp_path / "run"
    folder.mkdir()
    about = {"result": {"environment": "Line-v0", "frames": 30, "episodes": 2}, "settings": {"gamma": 0.9}}
    policy = EpsilonGreedy(NetworkShape((4,), num_actions=2, hidden_units=8), 0, 0.0)
    checkpoint.save(folder / "policy.pt", policy, about)
    ended = [EndedEpisode(3, 10.5, 20, True, False, 25), EndedEpisode(4, -1.0, 5, False, True, 30)]
    write_csv(folder / "episodes.csv", ended)
    done = inspect(folder, "--json", "--png", tmp_path / "x.png")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["kind"], told["episodes"], told["steps"], told["terminated"], told["truncated"]) == (
        "training", 2, 25, 1, 1,
    )  # fmt: skip
    assert told["return"] == {"mean": 4.75, "min": -1.0, "max": 10.5}
    assert [row["id"] for row in told["contents"]] == [3, 4]
    assert told["metadata"] == {"environment": "Line-v0", "frames": 30, "settings": {"gamma": 0.9}}
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
    assert "Line-v0" in inspect(folder).output
    (folder / "episodes.csv").write_text("nonsense\n1\n")
    assert "DatasetError" in inspect(folder).output
    torch.save({}, folder / "policy.pt")
    assert "CheckpointError" in inspect(folder).output


def test_episodes_are_counted_in_whole_numbers():
    from matplotlib.figure import Figure

    from headrace.cli.figures import use_whole_numbers

    for last in (0, 1, 3, 44, 99_968):
        axes = Figure().add_subplot()
        axes.plot([0, last], [0, 1], ".")
        use_whole_numbers(axes.xaxis)
        assert [tick for tick in axes.get_xticks() if tick != round(tick)] == []


# ---- servers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    signature = hr.Signature.like({"camera": np.zeros((4, 4), np.uint8), "r": 0.0, "z": 0j})
    tables = [hr.Table.queue("t\x1b[31m", 9), hr.Table.queue("empty", 9)]
    with (
        hr.Replay(signature, tables) as replay,
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"robot": replay, "samples": queue}, token="s3cret") as server,
    ):
        with replay.writer(items=[hr.ItemRule("t\x1b[31m", 2, priority=3.0)]) as writer:
            for n in range(2):
                writer.append({"camera": np.full((4, 4), n, np.uint8), "r": -0.5 * n, "z": 1j})
        monkeypatch.setenv("HEADRACE_TOKEN", "s3cret")
        before = replay.statistics()
        yield server
        assert replay.statistics() == before


def test_a_server_for_machines(server):
    done = inspect(server.address, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output, parse_constant=pytest.fail)
    assert found["server"]["connections"] == 1
    assert found["queues"]["samples"]["samples_received"] == 0
    robot = found["replays"]["robot"]
    assert robot["columns"] == {"camera": "uint8[4, 4]", "r": "float64[]", "z": "complex128[]"}
    empty = robot["tables"]["empty"]
    assert (empty["sample"], empty["items"]) == (None, None)
    table = robot["tables"]["t\x1b[31m"]
    assert (table["items"]["rows"], table["items"]["oldest_age"], table["inserts"]) == (2, 0, 1)
    sample = table["sample"]
    assert (sample["items"], sample["rows"], sample["priorities"]["low"]) == (1, 2, 3.0)
    columns = sample["columns"]
    assert list(columns) == ["camera", "r"]
    assert [columns["camera"][name] for name in ("shape", "low", "mean", "high")] == [[4, 4], 0, 0.5, 1]
    assert [columns["r"][name] for name in ("rows", "low", "mean", "high")] == [2, -0.5, -0.25, 0]
    assert table["suspicious"] == []


def test_a_server_as_a_person_sees_it(server):
    done = inspect(server.address)
    assert done.exit_code == 0, done.output
    for word in (
        "tcp://",
        "connections",
        "replay robot: 2 rows",
        "t\\x1b[31m",
        "items of robot",
        "random items of t\\x1b[31m: 1, with 2 rows",
        "queue samples",
    ):
        assert word in done.output
    assert "random items of empty" not in done.output


def test_what_a_server_holds_is_judged():
    step = {"observation": np.zeros(3), "reward": 1.0}
    table = hr.Table.prioritized(999, 1.0, name="t")
    with hr.Replay(hr.Signature.like(step), [table]) as replay, hr.Server({"robot": replay}) as server:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for n in range(200):
                writer.append({"observation": np.array([n, n % 7, np.nan]), "reward": 1.0 + n})
        keys = next(replay.items("t", 200)).info.keys
        replay.update_priorities("t", keys, [1e9] + [1.0] * 199)
        output = inspect(server.address).output
        told = json.loads(inspect(server.address, "--json").output)["replays"]["robot"]["tables"]["t"]
    assert len(told["suspicious"]) == 3
    for sentence in ("sample of t: reward: all positive", "sample of t: observation: NaN in"):
        assert sentence in output
    assert "table t: a few items have nearly all the weight" in output


def test_wrong_use_with_addresses(server, tmp_path, monkeypatch):
    assert inspect(server.address, "--verify").exit_code == 2
    assert inspect(server.address, "--png", tmp_path / "x.png").exit_code == 2
    assert inspect(tmp_path, "--ca", tmp_path / "x.pem").exit_code == 2
    assert inspect("tcp://nowhere").exit_code == 2
    monkeypatch.delenv("HEADRACE_TOKEN")
    refused = inspect(server.address)
    assert (refused.exit_code, "Set HEADRACE_TOKEN" in refused.output) == (1, True)
