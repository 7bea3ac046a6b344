"""A process that looks like another system: what that system lacks is taken away, then Headrace is imported and used.

Run by test_platforms.py: `python other_system.py SYSTEM PART FOLDER`, with an empty folder for files.
"""

# Each system has modules of its own below these two, which Linux lacks.
import asyncio  # noqa: F401
import ctypes
import errno
import fcntl
import gc
import importlib
import mmap
import os
import pkgutil
import select
import shutil
import signal
import socket
import stat
import sys
import threading
import urllib.request  # noqa: F401
from pathlib import Path

import click.testing
import cloudpickle
import gymnasium
import hypothesis
import msgspec
import numpy as np
import optree
import pytest
import xxhash

# Whatever else is imported is imported where the system is another one already; these would not bear it.
THIRD_PARTY = (click, cloudpickle, gymnasium, hypothesis, msgspec, optree, xxhash)
OPTIONAL = (
    *(
        "PIL",
        "ale_py",
        "cv2",
        "dm_env",
        "envpool",
        "h5py",
        "jax",
        "matplotlib",
        "minari",
        "mujoco",
        "pettingzoo",
    ),
    *(
        "prometheus_client",
        "pyarrow",
        "ray",
        "stable_baselines3",
        "starlette",
        "tensordict",
        "torch",
        "uvicorn",
    ),
)
# What macOS lacks as well.
LINUX_OF_OS = """
    memfd_create MFD_CLOEXEC posix_fallocate posix_fadvise sched_getaffinity eventfd pidfd_open copy_file_range
"""
# What only Windows lacks.
UNIX_OF_OS = """
    uname register_at_fork fork forkpty sysconf statvfs fchmod chown lchown getuid geteuid getgid getpgid killpg setsid
    wait waitid mkfifo sendfile posix_spawn nice getloadavg openpty pread preadv pwrite pwritev sched_yield
    O_DIRECTORY O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_SYNC
"""
UNIX_OF_SIGNAL = """
    SIGKILL SIGCHLD SIGUSR1 SIGUSR2 SIGALRM SIGHUP SIGQUIT SIGSTOP SIGCONT pthread_kill pthread_sigmask setitimer
"""


def take_away(system):
    """Make this process look like one of macOS ("darwin") or Windows ("win32")."""
    for name in LINUX_OF_OS.split():
        without(os, name)
    without(select, "epoll")
    for name in [each for each in vars(mmap) if each.startswith("MADV_")]:
        without(mmap, name)
    if system == "win32":
        imitate_windows()
    else:
        # The system below is Linux all the same, and has to be asked for more than there is.
        mmap.MAP_NORESERVE = 0x4000
    sys.platform = system


def without(module, name):
    if hasattr(module, name):
        delattr(module, name)


def imitate_windows():
    refuse = {os.open: refuse_folders, os.fsync: refuse_read_only, os.rename: refuse_existing}
    for function, make in refuse.items():
        setattr(os, function.__name__, make(function))
    shutil._use_fd_functions = False
    for name in ("fcntl", "grp", "pwd", "resource", "termios", "syslog"):
        sys.modules[name] = None
    for module, names in ((os, UNIX_OF_OS), (signal, UNIX_OF_SIGNAL), (select, "poll")):
        for name in names.split():
            without(module, name)
    for name in ("AF_UNIX", "SCM_RIGHTS", "CMSG_SPACE", "send_fds", "recv_fds"):
        without(socket, name)
    for name in [each for each in vars(mmap) if each.startswith(("MAP_", "PROT_"))]:
        without(mmap, name)
    mmap.mmap = MappingOfWindows
    ctypes.CDLL = refuse_no_name(ctypes.CDLL)


class MappingOfWindows(mmap.mmap):
    """Takes no flags, and cannot advise."""

    def __new__(cls, fileno, length, tagname=None, access=mmap.ACCESS_DEFAULT, offset=0):
        return super().__new__(cls, fileno, length, access=access, offset=offset)

    @property
    def madvise(self):
        raise AttributeError("madvise")


def refuse_folders(function):
    def opened(path, flags, mode=0o777, **more):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a folder", path)
        return function(path, flags, mode, **more)

    return opened


def refuse_read_only(function):
    def synced(descriptor):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "opened for reading")
        function(descriptor)

    return synced


def refuse_existing(function):
    def renamed(source, target, **more):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "is there", target)
        function(source, target, **more)

    return renamed


def refuse_no_name(kind):
    class Library(kind):
        def __init__(self, name, *arguments, **named):
            if name is None:
                raise TypeError("a library has a name")
            super().__init__(name, *arguments, **named)

    return Library


def import_everything():
    """Every module that needs no library which is not installed with Headrace."""
    for name in OPTIONAL:
        sys.modules[name] = None
    found, refused = 0, []
    import headrace

    for module in pkgutil.walk_packages(headrace.__path__, "headrace.", onerror=lambda name: None):
        if module.name == "headrace.__main__":
            continue
        try:
            importlib.import_module(module.name)
            found += 1
        except ImportError as error:
            text = f"{error} {error.__cause__}"
            assert any(
                f'"headrace[{extra}]"' in text for extra in ("torch", "jax", "minari", "parquet", "server")
            ) or any(f"import of {name}" in text or f"named '{name}" in text for name in OPTIONAL), (
                f"{module.name}: {text}"
            )
            refused.append(module.name)
    assert found > 200
    assert set(refused) >= {"headrace.memories", "headrace.replay.conversion.torch_batch"}
    for name in OPTIONAL:
        del sys.modules[name]


# ---- what works in one process -------------------------------------------------------------------------------------


def signature():
    import headrace as hr

    example = {
        "observation": np.zeros(3, np.float32),
        "action": 0,
        "reward": np.float32(0),
        "terminated": False,
        "truncated": False,
    }
    return hr.Signature.like(example)


def steps(count):
    for t in range(count):
        yield {
            "observation": np.full(3, t, np.float32),
            "action": t % 2,
            "reward": float(t),
            "terminated": False,
            "truncated": False,
        }


def filled(replay, table="t", count=50, **rule):
    import headrace as hr

    with replay.writer(items=[hr.ItemRule(table, 1, **rule)]) as writer:
        for step in steps(count):
            writer.append(step)
        writer.end_episode(step["observation"] + 1)
    return replay


def use_replays_and_tables(folder):
    import headrace as hr

    fifo = hr.selectors.Fifo()
    tables = [
        hr.Table("t", sampler=hr.selectors.Prioritized(), remover=fifo, max_size=1000),
        hr.Table("heap", sampler=hr.selectors.MaxHeap(), remover=hr.selectors.MinHeap(), max_size=20),
        hr.Table("own", sampler=hr.testing.RankBased(), remover=fifo, max_size=20),
        hr.Table.queue("q", 100),
    ]
    with hr.Replay(signature(), tables[:2] + tables[3:], seed=0) as replay:
        filled(replay, lookahead=1)
        filled(replay, "heap", priority=2.0)
        filled(replay, "q")
        batch = replay.sample("t", 8, views=hr.views.transition(n_step=2))
        later = batch.data["next_observation"][:, 0] - batch.data["observation"][:, 0]
        assert set(later.tolist()) <= {1, 2}
        assert replay.update_priorities("t", batch.info.keys, np.ones(8)) == len(
            set(batch.info.keys.tolist())
        )
        assert replay.sample("q", 2).data["reward"].tolist() == [0, 1]
        assert len(replay.sample("heap", 4).info.keys) == 4
        # A checkpoint is made of ordinary files; a second one removes the first.
        for _ in range(2):
            path = replay.save(folder / "checkpoints", keep=1)
        assert [each.name for each in (folder / "checkpoints").iterdir()] == [path.name]
        with hr.Replay.load(folder / "checkpoints") as again:
            assert (again.sample("t", 9).info.keys == replay.sample("t", 9).info.keys).all()
    with hr.Replay(signature(), tables[2:3], seed=0) as replay:
        assert len(filled(replay, "own").sample("own", 4).info.keys) == 4


def use_a_store_that_grows(_):
    import headrace as hr

    large = hr.Signature.like({"image": np.zeros((64, 64), np.uint8)})
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100_000)
    with hr.Replay(large, [table], seed=0) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for t in range(2000):
            writer.append({"image": np.full((64, 64), t % 200, np.uint8)})
        assert replay.statistics().store.pages > 4
        assert replay.sample("t", 32).data["image"].max() < 200
    with (
        hr.Replay(large, [table], capacity=64) as replay,
        replay.writer(items=[hr.ItemRule("t", 1)]) as writer,
    ):
        step = {"image": np.zeros((64, 64), np.uint8)}
        with pytest.raises(hr.StoreFull, match="capacity 64"):
            list(map(writer.append, [step] * 200))


def use_sequences_and_writers(_):
    import headrace as hr

    with hr.Replay(signature(), [hr.Table.queue("q", 100)], seed=0) as replay:
        with hr.EpisodeWriter(replay, "q", max_length=10) as writer:
            for length in (2, 4):
                writer.add_first(np.zeros(3, np.float32))
                for t in range(length):
                    writer.add(t, 1.0, t == length - 1, False, np.full(3, t + 1, np.float32))
        batch = replay.sample("q", 2)
        assert batch.mask.sum(axis=1).tolist() == [3, 5]
        assert batch.pack().lengths.tolist() == [3, 5]
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with hr.Replay(signature(), [table], seed=0) as replay:
        with hr.TransitionWriter(replay, "t", n_step=2, gamma=0.9) as writer:
            writer.add_first(np.zeros(3, np.float32))
            for t in range(5):
                writer.add(t, 1.0, False, t == 4, np.full(3, t + 1, np.float32))
        batch = replay.sample("t", 20, views=writer.views)
        rewards = sorted(set(batch.data["reward"].tolist()))
        assert rewards == pytest.approx([1.0, 1.9])


def use_observers(_):
    import headrace as hr

    first, middle, last = hr.StepType
    kinds = [(first, middle), (middle, middle), (middle, last), (last, first)]
    frames = [hr.Trajectory(now, np.float32(t), 0, (), then, 1.0, 1.0) for t, (now, then) in enumerate(kinds)]
    with hr.Replay(hr.Signature.like(frames[0]), [hr.Table.queue("q", 10)]) as replay:
        with hr.AddTrajectoryObserver(replay, "q", sequence_length=2) as observer:
            for frame in frames:
                observer(frame)
        assert replay.sample("q", 1).data.observation.tolist() == [[0, 1]]


def use_accumulator_and_queue(_):
    import headrace as hr

    accumulator = hr.TrajectoryAccumulator({"step": {"x": np.zeros((5, 2))}, "last": {"x": np.zeros((1, 2))}})
    queue = hr.BatchQueue({"step": {"x": np.zeros((5, 2))}, "last": {"x": np.zeros((1, 2))}}, batch_size=2)
    for t in range(5):
        accumulator.add("step", {"x": [t, t]})
    accumulator.add("last", {"x": [5, 5]})
    sample = accumulator.build()
    senders = [threading.Thread(target=queue.send, args=(sample,)) for _ in range(4)]
    for sender in senders:
        sender.start()
    with queue:
        batch, info = queue.sample(timeout=10)
        queue.sample(timeout=10)
    for sender in senders:
        sender.join()
    assert batch["step"]["x"].shape == (2, 5, 2)
    assert info.size <= 2


def use_loaders(_):
    import headrace as hr

    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with filled(hr.Replay(signature(), [table], seed=0)) as replay:
        with hr.loaders.Loader(replay, "t", batch_size=4, prefetch=2) as loader:
            batches = [next(loader) for _ in range(5)]
            state = loader.state_dict()
        assert {batch.data["reward"].shape for batch in batches} == {(4,)}
        with hr.loaders.Loader(replay, "t", batch_size=4, prefetch=0) as loader:
            loader.load_state_dict(state)
            next(loader)


def use_collectors_and_weights(_):
    import headrace as hr

    policy = hr.FunctionalPolicy(
        lambda weights, observation: (observation[:, 0] > weights["w"]).astype(int), {"w": np.zeros(1)}
    )
    with hr.Collector(
        "CartPole-v1", policy, frames_per_batch=20, num_envs=2, total_frames=40, seed=0
    ) as collector:
        first = next(collector)
        collector.update_policy_weights_(weights={"w": np.ones(1)})
        second = next(collector)
    assert (first["policy_version"] == 0).all()
    assert (second["policy_version"] == 1).all()
    assert hr.weights.NoSync().receiver().read() == (0, None)
    with hr.Collector("CartPole-v1", frames_per_batch=20, seed=0) as collector:
        assert len(next(collector).flatten()["reward"]) == 20


def use_datasets(folder):
    import headrace as hr

    episode = hr.Episode(np.zeros((4, 3)), [0, 1, 0], [0.0, 0.0, 1.0], [False, False, True], [False] * 3)
    for count in (1, 2):
        hr.datasets.save_npz([episode] * count, folder / "line", overwrite=count > 1)
    with hr.datasets.load_npz(folder / "line.npz") as dataset:
        assert list(dataset) == [episode, episode]
    from headrace.datasets.exporting.atomic import writing

    for text in ("old", "new"):
        with writing(folder / "many", overwrite=text == "new") as temporary:
            temporary.mkdir()
            (temporary / "part").write_text(text, encoding="utf-8")
    assert (folder / "many" / "part").read_text(encoding="utf-8") == "new"


def use_commands(folder):
    from headrace.cli import main

    run = click.testing.CliRunner().invoke
    collected = run(
        main, ["collect", "CartPole-v1", "--steps=64", "--num-envs=2", f"--out={folder / 'collected'}"]
    )
    assert collected.exit_code == 0, collected.output
    shown = run(main, ["inspect", str(folder / "collected")])
    assert shown.exit_code == 0, shown.output


def use_contracts(_):
    from headrace.store.memory.arena import Arena
    from headrace.tables.description.selectors import Prioritized
    from headrace.testing import RateLimiterContract, SelectorContract, StorageContract

    class Selector(SelectorContract):
        def make(self):
            return Prioritized()

    class Private(StorageContract):
        def make(self, nbytes):
            return Arena.private(nbytes)

    assert RateLimiterContract is not None
    Selector().test_one_item_is_picked_for_certain()
    private = Private()
    private.test_it_begins_with_zeros()
    private.test_arrays_are_its_bytes()
    private.test_arrays_outlive_it()
    private.test_a_store_lives_in_it()


def use_torch(_):
    import headrace as hr

    torch = importlib.import_module("torch")
    memory = hr.memories.RandomMemory(memory_size=10, num_envs=2, device="cpu")
    memory.create_tensor("x", size=3, dtype=torch.float32)
    for _ in range(5):
        memory.add_samples(x=torch.ones(2, 3))
    [[x]] = memory.sample(["x"], batch_size=4)
    assert x.shape == (4, 3)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with filled(hr.Replay(signature(), [table], seed=0)) as replay:
        with hr.loaders.Loader(replay, "t", batch_size=4, to="torch") as loader:
            assert next(loader).data["observation"].shape == (4, 3)


# ---- what says that it needs Linux ---------------------------------------------------------------------------------


def refuse_everything(folder):
    import headrace as hr
    from headrace.cli import main
    from headrace.persist.disk.stored import StoredReplay
    from headrace.store.memory.arena import Arena

    here = {"darwin": "macOS", "win32": "Windows"}[sys.platform]
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with hr.Replay(signature(), [table], seed=0) as replay:
        uses = {
            "path: .*files.*replay.save": lambda: hr.Replay(signature(), [table], path=folder / "store"),
            "AsyncCollector: .*hr.Collector": lambda: hr.AsyncCollector("CartPole-v1", frames_per_batch=8),
            "SharedMemory: .*descriptor": lambda: hr.weights.SharedMemory({"w": np.zeros(1)}),
            "a store on disk": lambda: StoredReplay(folder / "store"),
            "Arena.share:": replay._core.store.share,
            "Arena.shared:": lambda: Arena.shared(4096),
            "Arena.file:": lambda: Arena.file(folder / "rows", 4096),
            "Arena.copy_on_write:": lambda: Arena.copy_on_write(folder / "rows", 4096),
        }
        for message, use in uses.items():
            with pytest.raises(hr.Unsupported, match=f"{message}.*") as raised:
                use()
            assert "expected Linux, for " in str(raised.value)
            assert f"got {here}. " in str(raised.value)
        # What was refused has changed nothing.
        assert len(filled(replay).sample("t", 4).info.keys) == 4
    if sys.platform == "win32":
        with pytest.raises(hr.Unsupported, match="forks"):
            hr.testing.in_forked_child(lambda: None)
    done = click.testing.CliRunner().invoke(main, ["collect", "CartPole-v1", "--steps=8", "--workers=1"])
    assert done.exit_code == 1
    assert "hr.AsyncCollector: expected Linux" in done.output
    assert list(folder.iterdir()) == []


PARTS = {
    "imports": [lambda _: import_everything()],
    "uses": [
        use_replays_and_tables,
        use_a_store_that_grows,
        use_sequences_and_writers,
        use_observers,
        use_accumulator_and_queue,
        use_loaders,
        use_collectors_and_weights,
        use_datasets,
        use_commands,
        use_contracts,
    ],
    "torch": [use_torch],
    "refusals": [refuse_everything],
}


def open_descriptors():
    """By number, what the process has open."""
    return {number for number in range(256) if is_open(number)}


def is_open(number):
    try:
        return stat.S_IFMT(os.fstat(number).st_mode) != 0
    except OSError:
        return False


def main(system, part, folder):
    if part == "torch":
        importlib.import_module("torch")
    before, threads = open_descriptors(), set(threading.enumerate())
    take_away(system)
    for each in PARTS[part]:
        each(Path(folder))
    gc.collect()
    assert open_descriptors() == before
    assert set(threading.enumerate()) == threads
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
