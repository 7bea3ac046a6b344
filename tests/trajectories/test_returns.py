"""Returns and advantages (trajectories R1 to R3): against double sums, in NumPy and torch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.trajectories import discounted_returns, gae, lambda_returns, vtrace

NO = [False] * 3


def test_r3_terminated_at_the_end():
    advantages, returns = gae([1.0, 1, 1], [0.0] * 3, [0.0] * 3, [False, False, True], NO, 0.5, 1)
    assert advantages.tolist() == returns.tolist() == [1.75, 1.5, 1]


def test_r3_truncated_at_the_end():
    assert gae([1.0, 1, 1], [0.0] * 3, [0, 0, 8.0], NO, [False, False, True], 0.5, 1)[0].tolist() == [
        2.75,
        3.5,
        5,
    ]


def test_r3_terminated_in_the_middle():
    found = gae([1.0, 1, 1], [0.0] * 3, [8.0] * 3, [False, True, False], NO, 0.5, 1)[0]
    # The first row goes on to a terminal one; its next value is used as given.
    assert found.tolist() == [1 + 4 + 0.5, 1, 5]


# The model: one trajectory after another, each result a sum over the rest of its trajectory.


def trajectories(case):
    """Index lists of the trajectories of one row."""
    found = [[]]
    for t in range(len(case["rewards"])):
        if not case["mask"][t]:
            found.append([])
            continue
        found[-1].append(t)
        if case["terminated"][t] or case["truncated"][t] or case["ends"][t]:
            found.append([])
    return [run for run in found if run]


def bootstrap(case, t, gamma):
    return 0.0 if case["terminated"][t] else gamma * case["next_values"][t]


def sum_gae(case, run, at, gamma, lambda_):
    total = 0.0
    for k, t in enumerate(run[at:]):
        error = case["rewards"][t] + bootstrap(case, t, gamma) - case["values"][t]
        total += (gamma * lambda_) ** k * error
    return total


def sum_lambda(case, run, at, gamma, lambda_):
    rest = run[at:]

    def n_step(n):
        rewards = sum(gamma**k * case["rewards"][t] for k, t in enumerate(rest[:n]))
        return rewards + gamma ** (n - 1) * bootstrap(case, rest[n - 1], gamma)

    last = len(rest)
    mixed = sum((1 - lambda_) * lambda_ ** (n - 1) * n_step(n) for n in range(1, last))
    return mixed + lambda_ ** (last - 1) * n_step(last)


def sum_discounted(case, run, at, gamma, with_values):
    rest = run[at:]
    total = sum(gamma**k * case["rewards"][t] for k, t in enumerate(rest))
    return total + (gamma ** (len(rest) - 1) * bootstrap(case, rest[-1], gamma) if with_values else 0.0)


def target(case, run, at, gamma, lambda_, clip_rho, clip_c):
    total, weight = case["values"][run[at]], 1.0
    for k, t in enumerate(run[at:]):
        ratio = math.exp(case["log_rhos"][t])
        error = case["rewards"][t] + bootstrap(case, t, gamma) - case["values"][t]
        total += gamma**k * weight * min(clip_rho, ratio) * error
        weight *= lambda_ * min(clip_c, ratio)
    return total


def policy_advantage(case, run, at, gamma, *rest):
    t = run[at]
    if at + 1 < len(run):
        following = gamma * target(case, run, at + 1, gamma, *rest)
    else:
        following = bootstrap(case, t, gamma)
    return min(rest[1], math.exp(case["log_rhos"][t])) * (case["rewards"][t] + following - case["values"][t])


def modelled(case, function, *args):
    """The function of every real step; 0 elsewhere."""
    shape = case["rewards"].shape
    found = np.zeros(shape)
    for row in np.ndindex(shape[:-1]):
        one = {name: array[row] for name, array in case.items()}
        for run in trajectories(one):
            for at, t in enumerate(run):
                found[(*row, t)] = function(one, run, at, *args)
    return found


@st.composite
def cases(draw, with_nan=True):
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.integers(0, 7)))
    numbers = st.floats(-4, 4, width=16)
    case = {
        name: draw(hnp.arrays(np.float64, shape, elements=numbers))
        for name in ("rewards", "values", "next_values", "log_rhos")
    }
    for name, chance in (("terminated", 5), ("truncated", 5), ("ends", 5), ("mask", 2)):
        flags = draw(hnp.arrays(np.int8, shape, elements=st.integers(0, chance)))
        case[name] = flags > 0 if name == "mask" else flags == 1
    if with_nan:
        case["next_values"][case["terminated"]] = np.nan
        for name in ("rewards", "values", "next_values", "log_rhos"):
            case[name][~case["mask"]] = np.nan
        case["rewards"][draw(hnp.arrays(np.bool_, shape, elements=st.sampled_from([False] * 9 + [True])))] = (
            np.nan
        )
    return case


def arguments(case, *names):
    return [case[name] for name in names]


def options(case):
    return {"ends": case["ends"], "mask": case["mask"]}


FLAGS = ("terminated", "truncated")
SHARES = st.floats(0.05, 0.99)


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@given(cases(), SHARES, SHARES)
def test_r1_gae(case, gamma, lambda_):
    advantages, returns = gae(
        *arguments(case, "rewards", "values", "next_values", *FLAGS), gamma, lambda_, **options(case)
    )
    wanted = modelled(case, sum_gae, gamma, lambda_)
    assert_close(advantages, wanted)
    assert_close(returns, np.where(case["mask"], wanted + case["values"], 0))


@given(cases(), SHARES, SHARES)
def test_r1_lambda_returns(case, gamma, lambda_):
    found = lambda_returns(
        *arguments(case, "rewards", "next_values", *FLAGS), gamma, lambda_, **options(case)
    )
    assert_close(found, modelled(case, sum_lambda, gamma, lambda_))


@given(cases(), SHARES, st.booleans())
def test_r1_discounted_returns(case, gamma, with_values):
    next_values = {"next_values": case["next_values"]} if with_values else {}
    found = discounted_returns(*arguments(case, "rewards", *FLAGS), gamma, **next_values, **options(case))
    assert_close(found, modelled(case, sum_discounted, gamma, with_values))


@given(cases(), SHARES, SHARES, st.floats(0.1, 3), st.floats(0.1, 3) | st.just(math.inf))
def test_r1_vtrace(case, gamma, lambda_, clip_rho, clip_c):
    targets, advantages = vtrace(
        *arguments(case, "rewards", "values", "next_values", *FLAGS, "log_rhos"), gamma,
        clip_rho=clip_rho, clip_c=clip_c, lambda_=lambda_, **options(case),
    )  # fmt: skip
    rest = (gamma, lambda_, clip_rho, clip_c)
    assert_close(targets, modelled(case, target, *rest))
    assert_close(advantages, modelled(case, policy_advantage, gamma, lambda_, clip_rho, clip_c))


@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0, np.float32(0.5)])
def test_the_ends_of_the_range(share):
    rng = np.random.default_rng(0)
    rewards, values, next_values = rng.normal(size=(3, 2, 5))
    flags = rng.random((2, 2, 5)) < 0.2
    case = {
        "rewards": rewards, "values": values, "next_values": next_values, "terminated": flags[0],
        "truncated": flags[1], "ends": np.zeros((2, 5), bool), "mask": np.ones((2, 5), bool),
    }  # fmt: skip
    found = gae(rewards, values, next_values, *flags, share, share)[0]
    assert_close(found, modelled(case, sum_gae, float(share), float(share)))
    returns = lambda_returns(rewards, next_values, *flags, share, share)
    assert_close(returns, modelled(case, sum_lambda, float(share), float(share)))


def calls(shape, number, flag):
    """Every function with arrays made by `number` and `flag`, and the name of the argument that its dtype follows."""
    return {
        gae: ({"rewards": number(shape), "values": number(shape), "next_values": number(shape)}, "values"),
        lambda_returns: ({"rewards": number(shape), "next_values": number(shape)}, "rewards"),
        discounted_returns: ({"rewards": number(shape), "next_values": number(shape)}, "rewards"),
        vtrace: (
            {name: number(shape) for name in ("rewards", "values", "next_values", "log_rhos")},
            "values",
        ),
    }


FUNCTIONS = [gae, lambda_returns, discounted_returns, vtrace]
each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


def called(function, shape=(2, 3), number=np.ones, flag=lambda shape: np.zeros(shape, bool), **changes):
    given, _ = calls(shape, number, flag)[function]
    given |= {"terminated": flag(shape), "truncated": flag(shape)} | changes
    found = function(**given)
    return found if isinstance(found, tuple) else (found,)


@each_function
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1,), (2, 2, 4)])
def test_r1_any_leading_axes(function, shape):
    assert all(found.shape == shape for found in called(function, shape))


@each_function
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", "float16"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int32", "float64"),
        ("bool", "float64"),
    ],
)
def test_r1_the_dtype_of_values(function, dtype, expected):
    _, followed = calls((3,), np.ones, None)[function]
    found = called(function, (3,), **{followed: np.ones(3, dtype)})
    assert {result.dtype.name for result in found} == {expected}


@each_function
def test_r1_inputs_stay_and_may_be_strided(function):
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(3, 2))
    wide.flags.writeable = False
    strided, plain = (
        called(function, (2, 3), number=lambda _, array=array: array) for array in (wide.T, wide.T.copy())
    )
    for one, other in zip(strided, plain, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.shares_memory(one, wide)


@each_function
def test_r2_shapes(function):
    with pytest.raises(ValueError, match=r"^next_values: expected the shape of rewards, \[2, 3\], got \[3\]"):
        called(function, next_values=np.ones(3))
    with pytest.raises(ValueError, match="^truncated: expected the shape"):
        called(function, truncated=np.zeros((2, 4), bool))
    with pytest.raises(ValueError, match="^mask: expected the shape"):
        called(function, mask=np.zeros((3, 2), bool))
    with pytest.raises(ValueError, match="^ends: expected the shape"):
        called(function, ends=np.zeros(2, bool))
    with pytest.raises(ValueError, match="^rewards: expected a time axis"):
        called(function, ())


@each_function
def test_r2_dtypes(function):
    with pytest.raises(TypeError, match="^terminated: expected booleans, got dtype float64"):
        called(function, terminated=np.zeros((2, 3)))
    with pytest.raises(TypeError, match="^rewards: expected real numbers, got dtype complex128"):
        called(function, rewards=np.ones((2, 3), complex))
    with pytest.raises(
        TypeError, match="^next_values: expected a NumPy array, as the other arguments are, got dict"
    ):
        called(function, next_values={})


@each_function
@pytest.mark.parametrize("wrong", [-0.1, 1.01, math.nan])
def test_r2_shares(function, wrong):
    for name in ("gamma",) if function is discounted_returns else ("gamma", "lambda_"):
        with pytest.raises(ValueError, match=f"^{name}: expected a number from 0 to 1"):
            called(function, **{name: wrong})
        with pytest.raises(TypeError, match=f"^{name}: expected a number"):
            called(function, **{name: "1"})


@pytest.mark.parametrize("name", ["clip_rho", "clip_c"])
def test_r2_clips(name):
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"^{name}: expected a number above 0"):
            called(vtrace, **{name: wrong})
    with pytest.raises(TypeError, match=f"^{name}: expected a number above 0"):
        called(vtrace, **{name: "1"})
    assert called(vtrace, **{name: math.inf})[0].shape == (2, 3)


def random_case(seed=0, shape=(3, 40)):
    rng = np.random.default_rng(seed)
    case = {name: rng.normal(size=shape) for name in ("rewards", "values", "next_values", "log_rhos")}
    case |= {name: rng.random(shape) < 0.1 for name in ("terminated", "truncated", "ends")}
    case["mask"] = rng.random(shape) < 0.9
    case["rewards"][~case["mask"]] = np.nan
    case["next_values"][case["terminated"]] = np.nan
    return case


def with_case(function, case):
    names = [*calls((1,), np.ones, None)[function][0], *FLAGS]
    found = function(**{name: case[name] for name in names}, ends=case["ends"], mask=case["mask"])
    return found if isinstance(found, tuple) else (found,)


class TestTorch:
    torch = pytest.importorskip("torch")

    def tensors(self, case, dtype):
        return {
            name: self.torch.from_numpy(array).to(self.torch.bool if array.dtype == bool else dtype)
            for name, array in case.items()
        }

    @each_function
    @pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
    def test_as_numpy(self, function, dtype):
        case = random_case()
        kind = getattr(self.torch, dtype)
        found = with_case(function, self.tensors(case, kind))
        rounded = {
            name: array if array.dtype == bool else self.torch.from_numpy(array).to(kind).double().numpy()
            for name, array in case.items()
        }
        for one, other in zip(found, with_case(function, rounded), strict=True):
            assert one.dtype == kind
            assert self.torch.equal(one, self.torch.from_numpy(other).to(kind))

    @each_function
    def test_no_gradient(self, function):
        tensors = self.tensors(random_case(), self.torch.float32)
        tensors["rewards"].requires_grad_()
        tensors["next_values"].requires_grad_()
        assert not any(found.requires_grad for found in with_case(function, tensors))

    @each_function
    def test_one_library(self, function):
        with pytest.raises(
            TypeError, match=r"^next_values: expected a torch.Tensor, as the other arguments are"
        ):
            called(
                function,
                (3,),
                self.torch.ones,
                lambda shape: self.torch.zeros(shape, dtype=bool),
                next_values=[1, 2, 3],
            )
        ints = called(function, (3,), lambda shape: self.torch.ones(shape, dtype=int), self.falses)
        assert {found.dtype for found in ints} == {self.torch.float64}
        with pytest.raises(TypeError, match="^next_values: expected real numbers"):
            called(
                function,
                (3,),
                self.torch.ones,
                self.falses,
                next_values=self.torch.ones(3, dtype=self.torch.complex64),
            )
        with pytest.raises(TypeError, match="^truncated: expected booleans"):
            called(function, (3,), self.torch.ones, self.falses, truncated=self.torch.zeros(3))

    def falses(self, shape):
        return self.torch.zeros(shape, dtype=self.torch.bool)

    @each_function
    @pytest.mark.parametrize("shape", [(3, 40), (0,), (2, 1, 7)])
    def test_the_arithmetic_of_other_devices(self, monkeypatch, function, shape):
        # As on an accelerator: composed maps instead of a loop.
        from headrace.trajectories.returns import arrays, torch_arrays

        case = random_case(shape=shape)
        wanted = with_case(function, case)
        tensors = self.tensors(case, self.torch.float64)
        monkeypatch.setattr(torch_arrays, "torch_arrays", torch_arrays.TorchOnDevice)
        assert isinstance(arrays.arrays_of(tensors["values"]), torch_arrays.TorchOnDevice)
        for one, other in zip(with_case(function, tensors), wanted, strict=True):
            assert not one.requires_grad
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, atol=1e-12)
        half = with_case(function, self.tensors(case, self.torch.bfloat16))
        assert {found.dtype for found in half} == {self.torch.bfloat16}
        with pytest.raises(TypeError, match="^mask: expected booleans"):
            with_case(function, {**tensors, "mask": tensors["rewards"]})
        with pytest.raises(TypeError, match="^rewards: expected real numbers"):
            with_case(function, {**tensors, "rewards": tensors["rewards"].to(self.torch.complex64)})

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @each_function
    def test_on_cuda(self, function):
        case = random_case()
        tensors = {name: tensor.cuda() for name, tensor in self.tensors(case, self.torch.float32).items()}
        for one, other in zip(with_case(function, tensors), with_case(function, case), strict=True):
            assert one.device.type == "cuda"
            np.testing.assert_allclose(one.cpu().numpy(), other, rtol=1e-4, atol=1e-5)


class TestJax:
    @pytest.fixture
    def jnp(self):
        return pytest.importorskip("jax.numpy")

    @each_function
    @pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
    def test_as_numpy(self, jnp, function, compiled):
        import jax

        case = random_case()
        arrays = {name: jnp.asarray(array) for name, array in case.items()}
        one_call = (
            jax.jit(lambda given: with_case(function, given))
            if compiled
            else lambda given: with_case(function, given)
        )
        for one, other in zip(one_call(arrays), with_case(function, case), strict=True):
            assert isinstance(one, jax.Array)
            assert one.dtype == jnp.float32
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    @each_function
    def test_dtypes(self, jnp, function):
        def falses(shape):
            return jnp.zeros(shape, bool)

        for dtype, expected in (("bfloat16", "bfloat16"), ("int32", "float32")):
            found = called(function, (3,), lambda shape, dtype=dtype: jnp.ones(shape, dtype), falses)
            assert {result.dtype.name for result in found} == {expected}
        assert called(function, (2, 0), jnp.ones, falses)[0].shape == (2, 0)
        with pytest.raises(TypeError, match=r"^next_values: expected a jax.Array"):
            called(function, (3,), jnp.ones, falses, next_values=[1, 2, 3])
        with pytest.raises(TypeError, match="^truncated: expected booleans"):
            called(function, (3,), jnp.ones, falses, truncated=jnp.zeros(3))
        with pytest.raises(TypeError, match="^next_values: expected real numbers"):
            called(function, (3,), jnp.ones, falses, next_values=jnp.ones(3, jnp.complex64))
