"""Minari reads what was written here, and the other way round (datasets K, X6).

Skipped where Minari is not installed.
"""

import sys
import types
import warnings

import gymnasium
import numpy as np
import optree
import pytest
from gymnasium import spaces

from headrace import Episode
from headrace.datasets.minari.public import load_minari, save_minari

minari = pytest.importorskip("minari")
EpisodeBuffer = pytest.importorskip("minari.data_collector.episode_buffer").EpisodeBuffer

FORMATS = pytest.mark.parametrize("form", ["hdf5", "arrow", "parquet"])
# What Minari says of metadata that was not given, and of episodes that its own collector cut off.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def collector(monkeypatch):
    """Minari's collector, whose one need of JAX is a map over trees."""
    jax, tree_util = types.ModuleType("jax"), types.ModuleType("jax.tree_util")
    tree_util.tree_map = optree.tree_map
    jax.tree_util = tree_util
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.tree_util", tree_util)
    return minari.DataCollector


def same_tree(ours, theirs):
    if isinstance(ours, dict):
        assert set(ours) == set(theirs)
        return all(same_tree(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        return all(map(same_tree, ours, theirs))
    theirs = np.asarray(theirs)
    if ours.dtype.kind == "U" and theirs.dtype.kind == "U":
        return ours.tolist() == theirs.tolist()
    if theirs.dtype.kind in "OS":
        theirs = np.array([each.decode() for each in theirs.ravel()]).reshape(theirs.shape)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    return True


def same(ours, theirs):
    parts = ("observations", "actions", "rewards", "terminations", "truncations")
    return all(same_tree(getattr(ours, part), getattr(theirs, part)) for part in parts)


def episode(steps=3, number=0, **others):
    random = np.random.default_rng(number)
    observations = {
        "image": random.integers(0, 256, (steps + 1, 40, 40, 3), np.uint8),
        "stack": random.integers(0, 256, (steps + 1, 4, 36, 36), np.uint8),
        "pair": (random.normal(size=(steps + 1, 2)).astype(np.float32), np.arange(steps + 1)),
        "text": np.array(["a\u00e9", "b"] * steps)[: steps + 1],
    }
    actions = {"on": random.integers(0, 2, (steps, 2)).astype(bool), "which": random.integers(0, 3, steps)}
    infos = {"lives": np.arange(steps + 1), "deep": {"x": np.zeros((steps, 2))}, "name": ["x"] * steps}
    last = np.arange(steps) == steps - 1
    whole = {"infos": infos, "extras": {"logp": np.zeros(steps)}, **others}
    return Episode(observations, actions, random.normal(size=steps), last, np.zeros(steps, bool), **whole)


def vector_episode(steps=3, number=0, **others):
    random = np.random.default_rng(number)
    observations = random.uniform(-0.2, 0.2, (steps + 1, 4)).astype(np.float32)
    last = np.arange(steps) == steps - 1
    return Episode(
        observations, random.integers(0, 2, steps), np.ones(steps), last, np.zeros(steps, bool), **others
    )


def plain(tree):
    """As Minari's writers take it: strings in lists, and in a MultiBinary space int8."""
    if isinstance(tree, dict):
        return {key: plain(each) for key, each in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(plain, tree))
    if tree.dtype.kind == "U":
        return tree.tolist()
    return tree.astype(np.int8) if tree.dtype == bool and tree.ndim > 1 else tree


def buffer(ep, **others):
    """An episode as Minari has it."""
    parts = {
        name: getattr(ep, name)
        for name in ("observations", "actions", "rewards", "terminations", "truncations")
    }
    extras = {"extras": ep.extras} if ep.extras else {}
    whole = {"infos": plain({**ep.infos, **extras}), "seed": ep.seed, "options": ep.options, **others}
    return EpisodeBuffer(**{name: plain(tree) for name, tree in parts.items()}, **whole)


def test_the_worked_example():
    """Section 5."""
    ep = vector_episode(3, seed=7)
    save_minari([ep], "demo/line-v0")
    assert minari.load_dataset("demo/line-v0")[0].observations.shape == (4, 4)


@pytest.mark.parametrize("compression", ["gzip", None])
def test_minari_reads_every_episode(compression):
    """K4 to K7, K10."""
    episodes = [episode(steps, steps) for steps in (3, 1, 5)]
    save_minari(episodes, "demo/sub/line-v1", compression=compression)
    dataset = minari.load_dataset("demo/sub/line-v1")
    assert len(dataset) == 3
    assert dataset.total_steps == 9
    assert dataset.minari_version == "0.5.0"
    assert dataset.observation_space == load_minari("demo/sub/line-v1").observation_space
    for ours, theirs in zip(episodes, dataset, strict=True):
        assert same(ours, theirs)
        assert set(theirs.infos) == {"lives", "deep", "name", "extras"}
        assert "EpisodeData" in repr(theirs)
        assert dataset.observation_space.contains(
            {**{key: theirs.observations[key][0] for key in ("image", "stack", "text")},
             "pair": tuple(each[0] for each in theirs.observations["pair"])}
        )  # fmt: skip
    assert len(dataset.sample_episodes(2)) == 2


def test_an_episode_without_infos_can_be_printed():
    """K6."""
    save_minari([vector_episode()], "line-v0")
    assert "infos=dict with the following keys: []" in repr(minari.load_dataset("line-v0")[0])


def test_minari_lists_the_dataset_and_its_namespaces():
    """K1, K4."""
    save_minari([vector_episode()], "demo/sub/line-v1", author=["A", "B"], description="d")
    found = minari.list_local_datasets()["demo/sub/line-v1"]
    assert found["author"] == ["A", "B"]
    assert minari.namespace.list_local_namespaces() == ["demo", "demo/sub"]
    assert minari.load_dataset("demo/sub/line-v1").storage.metadata["author"] == {"A", "B"}


def test_minari_reads_seeds_and_options():
    """K9."""
    options = {
        "wind": {"speed": 1.5, "name": "west"},
        "n": 3,
        "xs": np.arange(3),
        "texts": np.array(["a", "bc"]),
    }
    save_minari([vector_episode(seed=2**64 - 1, options=options, id="x"), vector_episode()], "line-v0")
    first, second = minari.load_dataset("line-v0").storage.get_episode_metadata([0, 1])
    assert first["seed"] == 2**64 - 1
    assert first["options"]["wind"] == {"speed": 1.5, "name": "west"}
    assert first["options"]["n"] == 3
    assert first["options"]["xs"].tolist() == [0, 1, 2]
    assert first["options"]["texts"].tolist() == ["a", "bc"]
    assert first["total_steps"] == 3
    assert "seed" not in second
    assert "options" not in second


def test_minari_makes_the_environment_again():
    """K8."""
    save_minari([vector_episode()], "line-v0", env_spec="CartPole-v1", eval_env_spec="CartPole-v0")
    dataset = minari.load_dataset("line-v0")
    assert dataset.recover_environment().spec.id == "CartPole-v1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium calls CartPole-v0 out of date.
        assert dataset.recover_environment(eval_env=True).spec.id == "CartPole-v0"


def test_minari_normalizes_scores():
    """K4."""
    save_minari([vector_episode()], "line-v0", ref_min_score=1.0, ref_max_score=3.0)
    dataset = minari.load_dataset("line-v0")
    assert minari.get_normalized_score(dataset, np.array([1.0, 2.0])).tolist() == [0, 0.5]


@pytest.mark.parametrize("make", [vector_episode, episode])
def test_minari_appends(make):
    """X6."""
    episodes = [make(3, number, seed=number) for number in range(2)]
    path = save_minari(episodes, "line-v0")
    dataset = minari.load_dataset("line-v0")
    more = make(4, 9, seed=9)
    with load_minari(path) as opened:  # It may be open here meanwhile.
        dataset.update_dataset_from_buffer([buffer(more)])
        assert opened[1] == episodes[1]
    assert len(dataset) == 3
    with load_minari(path) as again:
        assert [again[0], again[1]] == episodes
        assert again[2].seed == 9
        assert again[2].infos.keys() == more.infos.keys()
        assert again[2].extras.keys() == more.extras.keys()
        assert same(again[2], dataset[2])
        np.testing.assert_array_equal(again[2].rewards, more.rewards)
        assert again.total_steps == 10


def test_minari_appends_to_an_episode():
    """K6: the first axis can be extended."""
    save_minari([vector_episode(3)], "line-v0")
    dataset = minari.load_dataset("line-v0")
    more = EpisodeBuffer(id=0, observations=np.zeros((2, 4), np.float32), actions=np.zeros(2, int), rewards=[1.0] * 2,
                         terminations=[False, True], truncations=[False] * 2, infos={})  # fmt: skip
    dataset.storage.update_episodes([more])
    assert dataset[0].observations.shape == (6, 4)


@pytest.mark.parametrize("make", [vector_episode, episode])
def test_minari_combines_and_splits(make):
    """X6."""
    for name in ("a-v0", "b-v0"):
        save_minari([make(3, number) for number in range(2)], name)
    parts = [minari.load_dataset(name) for name in ("a-v0", "b-v0")]
    if make is episode:  # Combining makes JPEG of images, and that loses.
        parts[0]._observation_space = spaces.Dict(
            {**parts[0].observation_space, "image": spaces.Box(0, 254, (40, 40, 3), np.uint8)}
        )
    combined = minari.combine_datasets(parts, "c-v0")
    assert len(combined) == 4
    found = load_minari("c-v0")
    for number in range(4):
        assert same(make(3, number % 2), combined[number])
        assert found[number].rewards.tolist() == make(3, number % 2).rewards.tolist()
        assert same(found[number], combined[number])
    assert [len(each) for each in minari.split_dataset(parts[0], [1, 1])] == [1, 1]


class Walk(gymnasium.Env):
    """Counts to five; what it shows has every kind of space, and its infos every kind of info."""

    observation_space = spaces.Dict({
        "pose": spaces.Tuple([spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(9)]), "name": spaces.Text(8),
        "camera": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    })  # fmt: skip
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._seen()

    def step(self, action):
        self.steps += 1
        observation, info = self._seen()
        return observation, float(self.steps), self.steps == 5, False, info

    def _seen(self):
        step = self.steps
        camera = np.full((36, 36, 3), step * 20, np.uint8)
        observation = {"pose": (np.full(2, step, np.float32), step), "name": f"step {step}", "camera": camera}
        return observation, {"step": np.array([step]), "deep": {"er": np.full((2, 2), step / 2)}}


def collect(collector, form, **options):
    env = collector(Walk(), record_infos=True, data_format=form, **options)
    env.reset(seed=3, options={"wind": {"speed": 1.5}})
    for _ in range(5):
        env.step(np.array([1, 2]))
    env.reset(seed=2**63 + 1)
    env.step(np.array([0, 1]))
    env.create_dataset(f"walk/{form}-v0")


# The collector leaves its temporary folders to the end of the interpreter.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@FORMATS
@pytest.mark.parametrize("jpeg_encoding", [True, False])
def test_what_its_collector_made_is_read(collector, form, jpeg_encoding):
    """K11, G8: its collector flags the episode that was cut off as truncated."""
    collect(collector, form, jpeg_encoding=jpeg_encoding)
    with load_minari(f"walk/{form}-v0") as dataset:
        first, second = dataset
        assert dataset.observation_space == Walk.observation_space
        assert dataset.action_space == Walk.action_space
        assert dataset.total_steps == 6
    assert (len(first), first.terminated, first.truncated) == (5, True, False)
    assert (len(second), second.terminated, second.truncated) == (1, False, True)
    assert (first.seed, second.seed) == (3, 2**63 + 1)
    assert first.options == {"wind": {"speed": 1.5}}
    assert first.observations["pose"][0].tolist() == [[step] * 2 for step in range(6)]
    assert first.observations["pose"][1].tolist() == list(range(6))
    assert first.observations["name"].tolist() == [f"step {step}" for step in range(6)]
    np.testing.assert_allclose(first.observations["camera"][:, 0, 0, 0], np.arange(6) * 20, atol=2)
    assert first.observations["camera"].shape == (6, 36, 36, 3)
    assert first.actions.tolist() == [[1, 2]] * 5
    assert second.actions.tolist() == [[0, 1]]
    assert first.rewards.tolist() == [1, 2, 3, 4, 5]
    assert first.infos["step"].tolist() == [[step] for step in range(6)]
    assert first.infos["deep"]["er"].shape == (6, 2, 2)


@FORMATS
@pytest.mark.parametrize("make", [vector_episode, episode])
def test_what_it_made_from_buffers_is_read(form, make):
    """K11, K12: value for value, scalars among the infos too."""
    episodes = [make(steps, steps, seed=steps, options={"n": steps}) for steps in (1, 4)]
    space = save_minari(episodes, "ours-v0") and load_minari("ours-v0").observation_space
    buffers = []
    for ep in episodes:
        rows = len(ep) + 1
        infos = {"value": np.arange(float(rows)), "deep": {"x": np.zeros((rows, 2, 3))}, "text": ["a"] * rows}
        buffers.append(buffer(ep, infos=infos))
    minari.create_dataset_from_buffers(
        f"theirs{form}-v0", buffers, observation_space=space, action_space=load_minari("ours-v0").action_space,
        data_format=form, jpeg_encoding=False,
    )  # fmt: skip
    with load_minari(f"theirs{form}-v0") as dataset:
        for ours, theirs in zip(episodes, dataset, strict=True):
            assert theirs.seed == ours.seed
            assert theirs.options == ours.options
            assert theirs.infos["value"].tolist() == np.arange(len(ours) + 1.0).tolist()
            assert theirs.infos["deep"]["x"].shape == (len(ours) + 1, 2, 3)
            assert theirs.infos["text"].tolist() == ["a"] * (len(ours) + 1)
            np.testing.assert_array_equal(theirs.rewards, ours.rewards)
            assert same_tree(ours.observations, theirs.observations)
            assert same_tree(plain(ours.actions), theirs.actions)
            assert (theirs.terminated, theirs.truncated) == (ours.terminated, ours.truncated)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_long_episodes_that_it_made_are_read_right(form):
    """K11: its own reader cuts them into pieces."""
    steps = 40_000
    buffers = [
        EpisodeBuffer(
            observations=np.arange(length + 1.0)[:, None],
            actions=np.arange(length) % 2,
            rewards=np.arange(length) / 2,
            terminations=np.arange(length) == length - 1,
            truncations=np.zeros(length, bool),
        )
        for length in (steps, 3)
    ]
    box = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    minari.create_dataset_from_buffers(
        "long-v0", buffers, observation_space=box, action_space=spaces.Discrete(2), data_format=form
    )
    with load_minari("long-v0") as dataset:
        assert [len(ep) for ep in dataset] == [steps, 3]
        np.testing.assert_array_equal(dataset[0].observations[:, 0], np.arange(steps + 1.0))
        np.testing.assert_array_equal(dataset[0].rewards, np.arange(steps) / 2)
        assert dataset[1].observations[:, 0].tolist() == [0, 1, 2, 3]
