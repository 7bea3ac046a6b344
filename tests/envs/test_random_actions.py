"""Random actions: one stream a copy (collectors CS4), independent of the layout (CS5)."""

import numpy as np
import pytest
from gymnasium import spaces

from headrace.envs.random_actions import RandomActions
from headrace.errors import SpecError
from headrace.spec import Signature

SPACES = {
    "discrete": spaces.Discrete(5, start=-2),
    "box": spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 3.0], np.float32)),
    "scalar box": spaces.Box(-1, 1, ()),
    "half bounded": spaces.Box(
        np.array([-np.inf, 3.0, -np.inf, 0.0]), np.array([np.inf, np.inf, -3.0, 1.0]), dtype=np.float64
    ),
    "widest": spaces.Box(np.finfo(np.float64).min, np.finfo(np.float64).max, (3,), np.float64),
    "bytes": spaces.Box(0, 255, (2, 3), np.uint8),
    "half bounded bytes": spaces.Box(
        np.array([120, -np.inf, -np.inf]), np.array([np.inf, 9, np.inf]), dtype=np.int8
    ),
    "integers": spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, 1]]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "dict": spaces.Dict(
        b=spaces.Discrete(3), a=spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiBinary(3)))
    ),
    "large": spaces.Box(-1, 1, (5000,)),
}


def draw_tree(actions, space, active=None):
    signature = Signature({"action": Signature.of_space(space).tree})
    return signature.unflatten(actions.draw(active))["action"]


def pick(tree, i):
    if isinstance(tree, dict):
        return {key: pick(child, i) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(pick(child, i) for child in tree)
    return tree[i, ...] if tree.dtype.kind == "f" else tree[i]


@pytest.mark.parametrize("name", SPACES)
def test_actions_lie_in_their_space(name):
    """CS4, CP2: actions from the action space, of its dtype."""
    space = SPACES[name]
    actions = RandomActions(space, 3, seeds=[1, 2, 3])
    for _ in range(20):
        tree = draw_tree(actions, space)
        assert all(space.contains(pick(tree, i)) for i in range(3))


@pytest.mark.parametrize("name", SPACES)
def test_a_stream_depends_on_its_seed_alone(name):
    """CS5: six copies in one collector, or two in each of three workers: the same actions."""
    space = SPACES[name]
    whole = RandomActions(space, 6, seeds=range(10, 16))
    workers = [RandomActions(space, 2, seeds=range(10 + w, 12 + w)) for w in (0, 2, 4)]
    for _ in range(600 if name == "discrete" else 5):
        one, parts = whole.draw(), [worker.draw() for worker in workers]
        for column, array in one.items():
            np.testing.assert_array_equal(array, np.concatenate([part[column] for part in parts]))


def test_copies_that_wait_use_up_nothing():
    """CS5, CR7: a copy's k-th action is the same whenever the others wait."""
    space = SPACES["dict"]
    reference = RandomActions(space, 3, seeds=[1, 2, 3])
    expected = [reference.draw() for _ in range(700)]
    actions, taken = RandomActions(space, 3, seeds=[1, 2, 3]), np.zeros(3, int)
    rng = np.random.default_rng(0)
    for step in range(700):
        active = None if step < 5 else np.flatnonzero(rng.random(3) < 0.7)
        drawn = actions.draw(active)
        for i in range(3) if active is None else active:
            for name, array in drawn.items():
                np.testing.assert_array_equal(array[i], expected[taken[i]][name][i])
            taken[i] += 1
    assert len(set(taken.tolist())) > 1


def test_waiting_from_the_first_step_and_over_a_block():
    """CS5: also before anything was drawn, and where one cursor stands at the end of its block."""
    space = spaces.Discrete(1000)
    expected = [
        a["action"] for a in (lambda r: [r.draw() for _ in range(300)])(RandomActions(space, 2, [1, 2]))
    ]
    actions = RandomActions(space, 2, [1, 2])
    for k in range(300):
        drawn = actions.draw(np.array([0]))["action"]
        assert drawn[0] == expected[k][0]
        assert drawn[1] == expected[0][1]
    late = RandomActions(space, 2, [1, 2])
    for _ in range(256):
        late.draw()
    assert late.draw(np.array([1]))["action"].tolist() == expected[256].tolist()


def test_seeding_starts_the_streams_anew():
    """CS5: the same collector seeded twice does the same; CS1: static seeds give equal streams."""
    actions = RandomActions(spaces.Discrete(1000), 2, seeds=[1, 2])
    first = [actions.draw()["action"].tolist() for _ in range(5)]
    actions.draw(np.array([1]))
    actions.seed([1, 2])
    assert [actions.draw()["action"].tolist() for _ in range(5)] == first
    actions.seed([7, 7])
    assert all(a == b for a, b in (actions.draw()["action"] for _ in range(20)))


def test_unseeded_streams_differ():
    """CS4: unseeded: from the operating system."""
    draws = [RandomActions(spaces.Box(0, 1, (4,)), 2).draw()["action"] for _ in range(2)]
    assert len({array.tobytes() for array in (*draws[0], *draws[1])}) == 4


def test_the_stream_is_not_the_environments_own():
    """CS4: the copy's seed starts another stream than the environment's own generator."""
    from gymnasium.utils.seeding import np_random

    own = np_random(5)[0].integers(0, 1000, 20).tolist()
    actions = RandomActions(spaces.Discrete(1000), 1, seeds=[5])
    assert [int(actions.draw()["action"][0]) for _ in range(20)] != own


def test_earlier_actions_do_not_change():
    """`draw` promises arrays that are not written to again."""
    actions = RandomActions(spaces.Discrete(1000), 2, seeds=[1, 2])
    kept = [actions.draw()["action"] for _ in range(600)]
    copies = [array.copy() for array in kept[:256]]
    actions.draw(np.array([0]))
    np.testing.assert_array_equal(kept[:256], copies)


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (spaces.Discrete(3, start=1), {1, 2, 3}),
        (spaces.Box(2, 4, (), np.int16), {2, 3, 4}),
        (spaces.MultiBinary(1), {0, 1}),
    ],
)
def test_integers_are_uniform(space, values):
    """CS4: all values, both ends included, about equally often."""
    actions = RandomActions(space, 1, seeds=[0])
    drawn = np.array([actions.draw()["action"] for _ in range(3000)]).ravel()
    found, counts = np.unique(drawn, return_counts=True)
    assert set(found.tolist()) == values
    assert counts.min() > 0.85 * 3000 / len(values)


def test_forms_of_intervals():
    """CS4: as gymnasium's Box.sample: uniform, exponential from the bound, normal."""
    actions = RandomActions(SPACES["half bounded"], 1, seeds=[0])
    drawn = np.array([actions.draw()["action"][0] for _ in range(4000)])
    np.testing.assert_allclose(drawn.mean(0), [0, 4, -4, 0.5], atol=0.07)
    np.testing.assert_allclose(drawn.std(0), [1, 1, 1, 12**-0.5], atol=0.07)


def test_errors():
    """A space without a fixed shape, and seeds that do not go with the copies."""
    with pytest.raises(SpecError, match="text"):
        RandomActions(spaces.Dict(text=spaces.Text(5)), 1)
    with pytest.raises(ValueError, match="seeds: expected 2"):
        RandomActions(spaces.Discrete(2), 2, seeds=[1])


def test_actions_that_were_handed_out_stay():
    # Also where environments wait afterwards, and the others use up the block.
    actions = RandomActions(spaces.Discrete(1000), 2, seeds=[1, 2])
    held = [actions.draw()["action"] for _ in range(3)]
    before = [action.copy() for action in held]
    for _ in range(600):
        actions.draw(active=np.array([0]))
    np.testing.assert_array_equal(held, before)


def test_a_state_near_the_end_of_a_block_continues_in_actions_that_were_used():
    # CQ3: with the next actions, whatever the state was loaded into.
    first, second = (RandomActions(spaces.Discrete(1000), 2, seeds=[1, 2]) for _ in range(2))
    second.draw_for(np.array([0]))
    for _ in range(255):
        first.draw_for(np.array([0, 1]))
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        drawn = [actions.draw_for(np.array([0, 1]))["action"].tolist() for actions in (first, second)]
        assert drawn[0] == drawn[1]
