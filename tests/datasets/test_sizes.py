"""Sizes to survive: long episodes, many short ones, large observations, more data than memory may hold."""

import subprocess
import sys
import time

import numpy as np
import pytest

import headrace as hr

SAVE = {
    "minari": lambda source, folder, **options: hr.datasets.save_minari(
        source, "x-v0", root=folder, **options
    ),
    "parquet": lambda source, folder, **options: hr.datasets.save_parquet(
        source, folder / "x.parquet", **options
    ),
    "npz": lambda source, folder, **options: hr.datasets.save_npz(source, folder / "x", **options),
}
LOAD = {
    "minari": hr.datasets.load_minari,
    "parquet": hr.datasets.load_parquet,
    "npz": hr.datasets.load_npz,
}


def episode(number, steps, shape=(2,), dtype=np.float32):
    """An episode whose values tell its number and the step."""
    end = np.arange(steps) == steps - 1
    rows = np.arange(number, number + steps + 1).astype(dtype).reshape(-1, *[1] * len(shape))
    observations = np.broadcast_to(rows, (steps + 1, *shape)).copy()
    return hr.Episode(observations, np.arange(steps) % 2, np.arange(steps, dtype=float), end, end & False)


@pytest.mark.parametrize("name", SAVE)
@pytest.mark.parametrize(
    ("steps", "shape", "dtype"),
    [(150_000, (2,), np.float64), (2, (1_000_000,), np.uint8)],
    ids=["long", "large rows"],
)
def test_g4_an_episode_of_many_steps_or_of_large_observations_comes_back(name, steps, shape, dtype, tmp_path):
    first = episode(0, steps, shape, dtype)
    with LOAD[name](SAVE[name]([first], tmp_path)) as dataset:
        assert (len(dataset), dataset.total_steps) == (1, steps)
        assert dataset[0] == first


@pytest.mark.parametrize("name", SAVE)
def test_x1_the_time_of_an_episode_does_not_grow_with_their_number(name, tmp_path):
    marks, count, parts = [time.process_time()], 480, 6

    def report(done, _):
        if done % (count // parts) == 0:
            marks.append(time.process_time())

    path = SAVE[name]((episode(number, 3) for number in range(count)), tmp_path, progress=report)
    written = np.diff(marks)
    # Whatever looks at all the episodes before it would make the last part eleven times as slow as the first.
    assert min(written[parts // 2 :]) < 4 * min(written[: parts // 2])
    with LOAD[name](path) as dataset:
        found = [each.observations[0, 0] for each in dataset]
    assert found == list(range(count))


# Writes a little and then seven times as much, and reads it back where the format reads on demand (G1, G3).
STREAM = """
import resource, sys
from pathlib import Path
import numpy as np
import headrace as hr

name, folder = sys.argv[1], Path(sys.argv[2])
end = np.arange(8) == 7

def source(count):
    for number in range(count):
        observations = np.full((9, 50_000), number, np.float32)
        yield hr.Episode(observations, np.arange(8), np.ones(8), end, end & False)

def there_and_back(count):
    if name == "minari":
        path = hr.datasets.save_minari(source(count), f"x{count}-v0", root=folder, compression=None)
        dataset = hr.datasets.load_minari(path)
    elif name == "parquet":
        path = hr.datasets.save_parquet(source(count), folder / f"x{count}.parquet", compression="none")
        dataset = hr.datasets.load_parquet(path)
    else:
        hr.datasets.save_npz(source(count), folder / f"x{count}", compressed=False)
        return
    with dataset:
        assert len(dataset) == count
        for number, each in enumerate(dataset):
            assert each.observations[0, 0] == each.observations[-1, -1] == number

there_and_back(10)
limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
there_and_back(70)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - limit) / 1024)
"""


@pytest.mark.parametrize("name", SAVE)
def test_g1_memory_does_not_grow_with_the_data(name, tmp_path):
    arguments = [sys.executable, "-c", STREAM, name, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    # 60 more episodes are 103 MiB.
    assert float(done.stdout) < 40, done.stdout
