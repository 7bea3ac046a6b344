"""What npz and Parquet share: sources, structure, all or nothing, progress, bad input (datasets, section 1)."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import headrace as hr
from headrace.datasets import load_npz, load_parquet, save_npz, save_parquet

FORMATS = {"npz": (save_npz, load_npz), "parquet": (save_parquet, load_parquet)}


@pytest.fixture(params=FORMATS)
def file_format(request):
    return FORMATS[request.param]


def episode(steps=3, start=0, **more):
    flags = np.arange(steps) == steps - 1
    observations = more.pop("observations", np.arange(start, start + steps + 1, dtype=np.float32)[:, None])
    return hr.Episode(observations, np.arange(steps), np.ones(steps), flags, flags & False, **more)


def in_folder(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- sources -------------------------------------------------------------------------------------------------------


def test_a_generator_is_read_once_and_one_at_a_time(tmp_path, file_format):
    """Datasets G1: an episode is asked for when the one before is done with."""
    save, load = file_format
    order = []

    def episodes():
        for start in range(3):
            order.append(f"made {start}")
            yield episode(start=start)

    path = save(episodes(), tmp_path / "x.npz", progress=lambda done, total: order.append(f"done {done}"))
    assert order == ["made 0", "done 1", "made 1", "done 2", "made 2", "done 3"]
    with load(path) as dataset:
        # A dataset is a source, too.
        assert list(load(save(dataset, tmp_path / "y.npz"))) == list(dataset)


def test_a_source_may_use_its_arrays_again(tmp_path, file_format):
    """Datasets G1: nothing is kept of an episode that is done."""
    save, load = file_format
    one = episode(infos={"s": np.array(["a", "b", "c"])}, extras={"w": np.zeros((4, 2), np.int64)})

    def again_and_again():
        for number in range(5):
            for array in (one.observations, one.actions, one.rewards, one.extras["w"]):
                array[:] = number
            one.infos["s"][:] = str(number)
            yield one

    path = save(again_and_again(), tmp_path / "x.npz")
    for number, back in enumerate(load(path)):
        for array in (back.observations, back.actions, back.rewards, back.extras["w"]):
            assert (array == number).all()
        assert back.infos["s"].tolist() == [str(number)] * 3


@pytest.mark.parametrize("wrong", ["text", None, {"observations": []}, ([], [])])
def test_something_that_is_no_episode_is_named_by_its_position(tmp_path, file_format, wrong):
    save, _ = file_format
    with pytest.raises(TypeError, match="position 1"):
        save([episode(), wrong], tmp_path / "x.npz")
    assert in_folder(tmp_path) == []


@pytest.mark.parametrize("wrong", [3, None, episode()])
def test_what_cannot_be_iterated_is_no_source(tmp_path, file_format, wrong):
    save, _ = file_format
    with pytest.raises(TypeError, match="source: expected an iterable of hr.Episode or a Replay"):
        save(wrong, tmp_path / "x.npz")


# ---- reading -------------------------------------------------------------------------------------------------------


def test_a_dataset_is_a_sequence_that_can_be_closed(tmp_path, file_format):
    """Datasets G3."""
    save, load = file_format
    episodes = [episode(steps=n + 1, start=10 * n) for n in range(4)]
    with load(save(episodes, tmp_path / "x.npz")) as dataset:
        assert isinstance(dataset, hr.datasets.EpisodeDataset)
        assert len(dataset) == 4
        assert dataset.total_steps == 10
        assert dataset[-1] == dataset[np.int64(3)] == episodes[3]
        assert dataset[1:3] == episodes[1:3]
        assert dataset[::-2] == episodes[::-2]
        assert list(dataset) == list(dataset) == episodes
        assert (dataset.observation_space, dataset.action_space) == (None, None)
        assert dataset.metadata == {}
        assert episodes[2] in dataset
        for wrong in (4, -5):
            with pytest.raises(IndexError, match=f"episode {wrong}: the dataset has 4"):
                dataset[wrong]
        with pytest.raises(TypeError):
            dataset["0"]
    with pytest.raises(hr.Closed):
        dataset[0]
    with pytest.raises(hr.Closed):
        list(dataset)
    dataset.close()
    assert "closed" in repr(dataset)


def test_an_episode_may_be_changed_without_changing_the_dataset(tmp_path, file_format):
    save, load = file_format
    dataset = load(save([episode()], tmp_path / "x.npz"))
    dataset[0].observations[:] = -1
    dataset[0].rewards[0] = 7
    assert dataset[0] == episode()


def test_two_datasets_read_one_file_at_once(tmp_path, file_format):
    """Datasets X5."""
    save, load = file_format
    path = save([episode(start=n) for n in range(3)], tmp_path / "x.npz")
    with load(path) as one, load(path) as other:
        for mine, theirs in zip(one, other, strict=True):
            assert mine == theirs


def test_a_file_that_is_not_there(tmp_path, file_format):
    """Datasets G11: the full path is told."""
    _, load = file_format
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
        load(tmp_path / "none.npz")


def test_a_file_of_another_kind(tmp_path, file_format):
    _, load = file_format
    for content in (b"", b"hello", b"PK\x03\x04", b"PAR1", b"\x80\x04N.", bytes(1000)):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(hr.DatasetError, match=str(tmp_path)):
            load(tmp_path / "x.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(hr.DatasetError, match=str(tmp_path)):
        load(tmp_path / "folder.npz")


def test_a_cut_file_is_never_read_as_a_whole_one(tmp_path, file_format):
    """Datasets G11: wherever it was cut."""
    save, load = file_format
    path = save(
        [episode(start=n, infos={"s": np.array(["a", "b", "c"])}) for n in range(3)], tmp_path / "x.npz"
    )
    whole = path.read_bytes()
    for size in range(0, len(whole), 41):
        path.write_bytes(whole[:size])
        with pytest.raises(hr.DatasetError, match="x.npz"):
            load(path)


def test_a_damaged_file_is_an_error_or_the_right_answer(tmp_path, file_format):
    """Datasets G11: never a wrong answer, whichever byte is wrong, and never another error."""
    save, load = file_format
    episodes = [episode(start=n, seed=n, infos={"s": np.array(["a", "b", "c"])}) for n in range(3)]
    path = save(episodes, tmp_path / "x.npz", metadata={"by": "me"})
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            with load(path) as dataset:
                found, metadata = list(dataset), dataset.metadata
        except hr.DatasetError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert found == episodes
            assert metadata == {"by": "me"}
    assert refused > len(whole) / 7 / 2


# ---- structure -----------------------------------------------------------------------------------------------------


def camera(size, **more):
    return episode(observations={"camera": np.zeros((4, size, size, 3), np.uint8)}, **more)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (camera(4), "observations/camera: expected uint8[8,8,3], got uint8[4,4,3]"),
        (episode(), "observations: expected a dict, got an array"),
        (
            episode(observations={"camera": np.zeros((4, 8, 8, 3))}),
            "observations/camera: expected uint8[8,8,3], got float64[8,8,3]",
        ),
        (
            episode(observations={"lidar": np.zeros((4, 8, 8, 3), np.uint8)}),
            "observations: expected camera; missing observations/camera; extra observations/lidar",
        ),
        (camera(8, infos={"lives": np.zeros(3)}), "infos: expected nothing; extra infos/lives"),
        (camera(8, extras={"lives": np.zeros(3)}), "extras: expected nothing; extra extras/lives"),
    ],
)
def test_an_episode_unlike_the_first_is_named(tmp_path, file_format, other, told):
    """Datasets G5, and G6: nothing is left."""
    save, _ = file_format
    with pytest.raises(hr.SpecError) as caught:
        save([camera(8), camera(8), other], tmp_path / "new" / "x.npz")
    assert str(caught.value) == f"episode 2: {told}"
    assert in_folder(tmp_path) == []


def test_what_is_no_array_is_refused(tmp_path, file_format):
    """Datasets G5: also where it came into an episode after that was made."""
    save, _ = file_format
    for path, value in (
        ("infos/o", {"o": np.array([object()] * 3)}),
        ("infos/o", {"o": "text"}),
        ("infos/o", {"o": np.float64(1.0)}),
        ("infos/t", {"t": np.zeros(3, "M8[s]")}),
        ("infos/short", {"short": np.zeros(2)}),
        ("infos", {1: np.zeros(3)}),
        ("infos", {"a/b": np.zeros(3)}),
        ("infos", np.zeros(3)),
        ("infos", {"nul\0": np.zeros(3)}),
        ("infos", {"\ud800": np.zeros(3)}),
    ):
        wrong = episode()
        wrong.infos = value
        with pytest.raises(hr.SpecError, match=f"episode 0: '?{path}"):
            save([wrong], tmp_path / "x.npz")
    for name, value in (
        ("rewards", np.zeros((3, 2))),
        ("terminations", np.ones(3, bool)),
        ("observations", {}),
        ("actions", np.zeros(4)),
    ):
        wrong = episode()
        setattr(wrong, name, value)
        with pytest.raises(hr.SpecError, match=f"episode 0: {name}"):
            save([wrong], tmp_path / "x.npz")
    for name, value in (("options", {"o": object()}), ("options", {1: 2}), ("seed", object()), ("id", {3})):
        wrong = episode()
        setattr(wrong, name, value)
        with pytest.raises(hr.SpecError, match=f"episode 0: {name}"):
            save([wrong], tmp_path / "x.npz")
    assert in_folder(tmp_path) == []


# ---- all or nothing ------------------------------------------------------------------------------------------------


def test_nothing_to_write(tmp_path, file_format):
    """Datasets G7."""
    save, _ = file_format
    for source in ([], iter(())):
        with pytest.raises(ValueError, match="at least one episode"):
            save(source, tmp_path / "new" / "x.npz")
    assert in_folder(tmp_path) == []


def test_an_existing_file_stays_unless_it_is_to_be_replaced(tmp_path, file_format):
    """Datasets G6."""
    save, load = file_format
    path = save([episode()], tmp_path / "x.npz")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite"):
        save([episode(start=1)], path)
    with pytest.raises(hr.SpecError):
        save([episode(), camera(3)], path, overwrite=True)
    assert path.read_bytes() == before
    assert save([episode(start=1)], path, overwrite=True) == path
    assert list(load(path)) == [episode(start=1)]
    assert in_folder(tmp_path) == ["x.npz"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_an_error_of_the_source_or_of_progress_leaves_nothing(tmp_path, file_format, error):
    """Datasets G6, G9."""
    save, _ = file_format

    def source():
        yield episode()
        raise error("from the source")

    def progress(done, total):
        raise error("from progress")

    with pytest.raises(error):
        save(source(), tmp_path / "x.npz")
    with pytest.raises(error):
        save([episode()], tmp_path / "x.npz", progress=progress)
    assert in_folder(tmp_path) == []


def test_a_file_that_reads_back_otherwise_does_not_get_its_name(tmp_path, file_format, monkeypatch):
    """Datasets G6: it is reopened and checked."""
    save, _ = file_format
    lengths = hr.datasets.exporting.header.Header.to_json
    calls = []

    def changing(self):
        calls.append(1)
        if len(calls) == 2:
            self.lengths[-1] += 1
        return lengths(self)

    monkeypatch.setattr(hr.datasets.exporting.header.Header, "to_json", changing)
    with pytest.raises(hr.DatasetError):
        save([episode()], tmp_path / "x.npz")
    assert in_folder(tmp_path) == []


INTERRUPTED = """
    import sys
    import numpy as np
    import headrace as hr

    def source():
        for n in range(10**9):
            if n == 50:
                print("ready", flush=True)
                sys.stdin.readline()  # Here the signal comes.
            yield hr.Episode(np.zeros((101, 50)), *np.zeros((2, 100)), *np.zeros((2, 100), bool))

    getattr(hr.datasets, sys.argv[1])(source(), sys.argv[2])
"""


@pytest.mark.parametrize("name", ["save_npz", "save_parquet"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_leaves_no_file(tmp_path, name, number):
    """Datasets G6: Ctrl-C leaves nothing; even a kill leaves no file under the target's name."""
    target = tmp_path / "x.npz"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), name, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, number)
        assert process.wait(55) != 0
    left = in_folder(tmp_path)
    assert left == [] if number == signal.SIGINT else all(each.startswith(".x.npz.") for each in left)


# ---- progress ------------------------------------------------------------------------------------------------------


def test_progress_rises_by_one_up_to_the_number_of_episodes(tmp_path, file_format):
    """Datasets G9."""
    save, _ = file_format
    seen = []
    save([episode()] * 3, tmp_path / "x.npz", progress=lambda *now: seen.append(now))
    save(iter([episode()] * 2), tmp_path / "y.npz", progress=lambda *now: seen.append(now))
    assert seen == [(1, 3), (2, 3), (3, 3), (1, None), (2, None)]
    save([episode()], tmp_path / "z.npz", progress=True)  # No terminal: no bar.


def test_wrong_arguments_touch_nothing(tmp_path, file_format):
    save, _ = file_format
    with pytest.raises(TypeError, match="progress"):
        save([episode()], tmp_path / "x.npz", progress=3)
    with pytest.raises(TypeError, match="metadata: expected a mapping"):
        save([episode()], tmp_path / "x.npz", metadata=[1])
    with pytest.raises(hr.SpecError, match="metadata/a"):
        save([episode()], tmp_path / "x.npz", metadata={"a": object()})
    assert in_folder(tmp_path) == []


# ---- loading what is heavy -------------------------------------------------------------------------------------------


def test_nothing_heavy_is_loaded_to_read_a_file(tmp_path):
    """Datasets G10: an optional library is imported when its format is used."""
    save_npz([episode()], tmp_path / "x.npz")
    code = (
        f"import headrace as hr, sys; list(hr.datasets.load_npz({str(tmp_path / 'x.npz')!r})); "
        "print([m for m in ('pyarrow', 'h5py', 'minari', 'jax', 'torch', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=55, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_pyarrow_the_error_names_the_extra(tmp_path):
    """Datasets G10."""
    code = """
        import sys
        sys.modules["pyarrow"] = None
        import headrace as hr
        for call in (lambda: hr.datasets.save_parquet([], sys.argv[1]), lambda: hr.datasets.load_parquet(sys.argv[1])):
            try:
                call()
            except ImportError as error:
                assert 'pip install "headrace[parquet]"' in str(error), error
            else:
                raise AssertionError
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "x")],
        check=True,
        timeout=55,
        capture_output=True,
    )
