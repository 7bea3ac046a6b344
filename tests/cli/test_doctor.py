"""`headrace doctor`: each fault of an environment is found and explained, and a sound one has none."""

import json
import re
import threading

import envpool
import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium import spaces

from headrace.cli import main
from headrace.cli.doctor.report import Report
from headrace.cli.doctor.run import examine
from headrace.testing import CounterEnv, counter_vector_env
from headrace.testing.agents import CounterAgents
from headrace.testing.dm_envs import DmCounterEnv
from headrace.testing.envpools import CounterEnvPool
from headrace.trees import map_leaves


class Walk(gymnasium.Env):
    """A sound environment: a random walk, terminated at the border, truncated after 30 steps."""

    observation_space = spaces.Box(-3, 3, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.count = self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.at.copy(), {"count": 0}

    def step(self, action):
        self.at += self.np_random.uniform(-0.3, 0.3, 2).astype(np.float32) + np.float32(action - 0.5)
        self.count += 1
        self.at = self.at.clip(-3, 3)
        return (
            self.at.copy(),
            float(self.at[0]),
            bool(abs(self.at[0]) > 2),
            self.count == 30,
            {"count": self.count},
        )


def found(build, steps=200):
    report = Report()
    examine(build, report, steps=steps, seed=0)
    return {finding.check: finding for finding in report.findings}


def levels(findings):
    return {check: finding.level for check, finding in findings.items() if finding.level != "ok"}


@pytest.mark.parametrize(
    "build",
    [
        Walk,
        lambda: CounterEnv([3, 5], ending="truncated"),
        lambda: CounterEnv([3, 5], layout="dict"),
        lambda: gymnasium.make("CartPole-v1"),
        lambda: counter_vector_env([3, 4], "same_step"),
        lambda: counter_vector_env([3, 4], "next_step"),
        lambda: counter_vector_env([3, 4], "disabled"),
    ],
)
def test_sound_environments(build):
    findings = found(build)
    # The counters count the episodes, so another episode is another observation.
    assert set(levels(findings)) <= {"seeds"}
    assert len(findings) >= 12


def test_other_kinds():
    assert levels(found(lambda: DmCounterEnv([3, 5]))) == {"seeds": "note"}
    assert levels(found(lambda: CounterEnvPool([3, 4]))) == {}


class Changed(Walk):
    """The walk with one call changed: `at_step` and `at_reset` change what is returned."""

    def __init__(self, at_step=None, at_reset=None):
        self.at_step, self.at_reset, self.steps, self.resets = at_step, at_reset, 0, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        returned = super().reset(seed=seed)
        return returned if self.at_reset is None else self.at_reset(self, *returned)

    def step(self, action):
        self.steps += 1
        returned = super().step(action)
        return returned if self.at_step is None else self.at_step(self, *returned)


class Unseeded(Walk):
    def reset(self, *, seed=None, options=None):
        returned = super().reset(seed=seed)
        self.np_random = np.random.default_rng()
        return returned


class Deterministic(Walk):
    """Begins each episode at 0, and gives the first observation of the next one at the end."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(2, np.float32)
        return self.at.copy(), {"count": 0}

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            observation, _ = self.reset()
        return observation, reward, terminated, truncated, info


def fails(now):
    if now:
        raise OSError("x")


def once(at, change):
    """Changes what the `at`-th step returns."""
    return lambda env, *returned: change(*returned) if env.steps == at else returned


FAULTS = [
    ("observation", "error", "got .*3", {"at_step": lambda e, o, *r: (np.zeros(3, np.float32), *r)}),
    ("observation", "error", "first reset: .*2, 1", {"at_reset": lambda e, o, i: (np.zeros((2, 1), int), i)}),
    ("dtype", "warning", "float64.*float32.*cast", {"at_step": lambda e, o, *r: (o.astype(float), *r)}),
    ("nan", "error", "1 NaN", {"at_step": once(20, lambda o, *r: (np.array([0, np.nan], np.float32), *r))}),
    ("bounds", "warning", "has 9.0, outside", {"at_step": once(9, lambda o, *r: (np.full(2, 9, np.float32), *r))}),
    ("reward", "error", "the reward is nan", {"at_step": once(9, lambda o, _, *r: (o, float("nan"), *r))}),
    ("reward", "error", "the reward is inf", {"at_step": once(9, lambda o, _, *r: (o, np.inf, *r))}),
    ("outcome", "error", "reward: ", {"at_step": lambda e, o, r, *rest: (o, np.zeros(1), *rest)}),
    ("outcome", "error", "terminated: ", {"at_step": lambda e, o, r, t, *rest: (o, r, 0.5, *rest)}),
    ("aliasing", "warning", "has changed: the environment writes", {"at_step": lambda e, o, *r: (e.at, *r)}),
    ("info", "error", "expected a dict, got list", {"at_step": lambda e, *r: (*r[:4], [])}),
    ("info keys", "warning", "some infos lack count", {"at_step": lambda e, *r: (*r[:4], {})}),
    ("reset", "error", "the pair", {"at_reset": lambda e, o, i: o}),
    ("reset", "error", "reset after a reset: OSError: x", {"at_reset": lambda e, *r: fails(e.resets > 1) or r}),
    ("step", "error", "the interface of gym before 0.26", {"at_step": lambda e, o, r, t, u, i: (o, r, t, i)}),
    ("step", "error", r"OSError: x, raised in fails \(test_doc", {"at_step": lambda e, *r: fails(e.steps > 50) or r}),
]  # fmt: skip


@pytest.mark.parametrize(("check", "level", "text", "changes"), FAULTS)
def test_faults(check, level, text, changes):
    finding = found(lambda: Changed(**changes))[check]
    assert finding.level == level
    assert_text(finding, text)


def test_advice_is_about_what_happened():
    # An exception of the environment is no question of what `step` returns.
    finding = found(lambda: Changed(at_step=lambda e, *r: fails(True)))["step"]
    assert "return observation" not in finding.fix
    assert "worker is started again" in finding.fix
    assert "__init__" in found(gymnasium.Env)["spaces"].fix


class SeedlessReset(Walk):
    """An environment whose `reset` takes no seed, as gym had it."""

    def reset(self):
        return super().reset()


@pytest.mark.parametrize("wrap", [lambda env: env, gymnasium.wrappers.OrderEnforcing])
def test_a_reset_that_takes_no_seed(wrap):
    # No line of Headrace or gymnasium is to be corrected: the signature is.
    finding = found(lambda: wrap(SeedlessReset()))["reset"]
    assert_text(finding, "unexpected keyword argument 'seed'; this is the interface of gym before 0.26")
    assert "raised in" not in finding.text
    assert "def reset(self, *, seed=None, options=None)" in finding.fix


@pytest.mark.parametrize(
    ("kind", "give"), [(spaces.Dict, dict), (spaces.Tuple, lambda **leaves: tuple(leaves.values()))]
)
def test_the_advice_about_an_observation_is_about_its_space(kind, give):
    class Tree(Changed):
        observation_space = kind(
            {"at": Walk.observation_space} if kind is spaces.Dict else [Walk.observation_space]
        )

    def build(wrong):
        return lambda: Tree(
            at_step=lambda e, o, *r: (give(at=o[:wrong]), *r), at_reset=lambda e, o, i: (give(at=o), i)
        )

    assert found(build(2))["observation"].level == "ok"
    finding = found(build(1))["observation"]
    assert_text(finding, "expected float32.2., got float32.1.")
    assert f"gymnasium.spaces.{kind.__name__}(" in finding.fix


def assert_text(finding, text):
    assert re.search(text, finding.text), finding.text
    assert finding.fix


def test_seeds_that_do_not_reproduce():
    finding = found(Unseeded)["seeds"]
    assert finding.level == "warning"
    assert_text(finding, r"the same environment other numbers: observation differs after step 1")


def test_seeds_that_depend_on_the_environment():
    class Numbered(Walk):
        built = 0

        def __init__(self):
            Numbered.built += 1
            self.number = Numbered.built

        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return observation / self.number, info

    assert_text(found(Numbered)["seeds"], r"another one other numbers: observation differs at the reset")


def test_a_time_limit_that_terminates():
    finding = found(lambda: CounterEnv(7))["ends"]
    assert finding.level == "warning"
    assert_text(finding, "after exactly 7 steps with terminated=True; a limit on time is a truncation")
    assert found(lambda: CounterEnv(7, ending="truncated"))["ends"].level == "ok"


def test_an_environment_that_resets_itself():
    finding = found(Deterministic)["last observation"]
    assert finding.level == "error"
    assert_text(finding, "equals the first one of the next: the environment seems to reset itself")


def test_an_environment_without_ends():
    finding = found(lambda: CounterEnv(10**6), steps=20)["ends"]
    assert (finding.level, finding.text) == ("note", "no episode ended in 20 steps")


def test_spaces_that_no_array_holds():
    class Texts(Walk):
        observation_space = spaces.Text(5)

    findings = found(Texts)
    assert_text(findings["spaces"], "Text")
    assert findings["rest"].level == "note"


def test_a_factory_that_cannot_be_sent():
    lock = threading.Lock()

    def build():
        assert lock
        return Walk()

    assert_text(found(build)["pickling"], "cannot send the factory to a worker: TypeError")


def test_a_factory_that_builds_only_once():
    env = Walk()
    finding = found(lambda: env)["copies"]
    assert finding.level == "error"
    assert_text(finding, "the same environment at each call")
    envs = [Walk()]
    assert_text(
        found(envs.pop)["copies"],
        "the second call of the factory raises IndexError: pop from empty",
    )


def test_closing():
    class Once(Walk):
        is_closed = False

        def close(self):
            if self.is_closed:
                raise OSError("closed already")
            self.is_closed = True

    assert_text(found(Once)["close"], "OSError: closed already")


# ---- vector environments ---------------------------------------------------------------------------------------------


def vector(mode, declared):
    env = counter_vector_env([3, 4], mode)
    env.metadata = {"autoreset_mode": declared}
    return env


@pytest.mark.parametrize(
    ("mode", "declared", "text"),
    [
        ("same_step", None, "expected metadata"),
        ("same_step", "next_step", "declared next_step: .*but what same_step says"),
        ("same_step", "disabled", "declared disabled: .*but what same_step says"),
        ("next_step", "same_step", "declared same_step: expected info.*but what disabled or next_step"),
    ],
)
def test_modes_of_autoreset(mode, declared, text):
    finding = found(lambda: vector(mode, declared), steps=30)["autoreset"]
    assert finding.level == "error"
    assert_text(finding, text)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
def test_a_pool_of_which_some_are_ready():
    def make():
        return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, batch_size=2)

    findings = found(make, steps=100)
    assert {finding.level for finding in findings.values()} <= {"ok", "note"}
    assert re.search("2 of 4: .*by env_id", findings["batch_size"].text)
    assert re.search("declared next_step, and does it", findings["autoreset"].text)


def test_a_pool_of_which_some_are_ready_and_that_does_not_reset():
    class StepsOn(CounterEnvPool):
        def _send(self, action):
            self._is_over = [False] * len(self.counters)
            for counter in self.counters:
                counter._over = False
            super()._send(action)

    findings = found(lambda: StepsOn([3, 4, 5], batch_size=2), steps=30)
    assert findings["autoreset"].level == "error"


def test_an_undeclared_reset_in_the_step_after():
    """NEXT_STEP is declared, and the environment steps on: rewards come in what should be the reset step."""

    class StepsOn(CounterEnvPool):
        def _send(self, action):
            self._is_over = [False] * len(self.counters)
            for counter in self.counters:
                counter._over = False
            super()._send(action)

    assert found(lambda: StepsOn([3, 4]), steps=30)["autoreset"].level == "error"


def test_a_vector_environment_without_last_observations():
    class Forgets(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            *rest, info = self.env.step(actions)
            if "final_obs" in info:
                info["final_obs"] = np.array([None, None])
            return *rest, info

    finding = found(lambda: Forgets(counter_vector_env([3, 4], "same_step")), steps=30)["last observation"]
    assert finding.level == "error"
    assert_text(finding, "final_obs: expected the last observation")


def test_a_vector_environment_that_reuses_its_arrays():
    def build():
        env = counter_vector_env([3, 4], "next_step")
        env.copy = False
        return env

    assert found(build, steps=30)["aliasing"].level == "warning"


# ---- several agents --------------------------------------------------------------------------------------------------


class Agents(CounterAgents):
    """Counters that begin anew with each seed, and whose step may be changed."""

    def __init__(self, change=None):
        super().__init__([3, 5])
        self.change = change

    def reset(self, seed=None, options=None):
        for counter in self.counters.values():
            counter.episode = counter.episode if seed is None else -1
        return super().reset(seed=seed)

    def step(self, actions):
        returned = super().step(actions)
        return returned if self.change is None else self.change(*returned)


def test_sound_agents():
    findings = found(Agents)
    assert levels(findings) == {}
    assert findings["agents"].text == "2 agents, all with the same spaces"
    assert findings["step"].text == "200 steps, 80 ends of agents"  # It begins episodes anew.


def nan_for(name):
    return lambda observations, rewards, *rest: (observations, {**rewards, name: float("nan")}, *rest)


@pytest.mark.parametrize(
    ("check", "level", "text", "build"),
    [
        ("reward", "error", "step 1, agent 'agent1': the reward is nan", lambda: Agents(nan_for("agent1"))),
        ("step", "error", "agent 'agent0': expected an observation", lambda: Agents(lambda o, *r: ({}, *r))),
        ("seeds", "warning", "gives? other numbers at the reset", lambda: CounterAgents([3, 5])),
        ("info keys", "warning", "some infos lack count", lambda: Agents(lambda *r: (*r[:4], {}))),
    ],
)
def test_faults_of_agents(check, level, text, build):
    finding = found(build)[check]
    assert finding.level == level
    assert_text(finding, text)


def test_agents_with_different_spaces():
    env = Agents()
    env.counters["agent1"].action_space = spaces.Discrete(9)
    finding = found(lambda: env)["agents"]
    assert_text(finding, "agent 'agent1': action_space: expected")


# ---- the command -----------------------------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(main, ["doctor", *arguments])


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "doctored.py").write_text(
        "import gymnasium\n"
        "def sound():\n    return gymnasium.make('CartPole-v1')\n"
        "def nothing():\n    pass\n"
        "def broken():\n    raise OSError('no display')\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)


def test_the_command(modules):
    done = invoke("doctored:sound", "--steps", "60")
    assert done.exit_code == 0
    assert done.output.startswith("doctored:sound: 0 errors, 0 warnings; step: ")
    assert "always the same" in done.output


@pytest.mark.parametrize(
    ("env_id", "text"), [("doctored:nothing", "got NoneType"), ("doctored:broken", "OSError: no display")]
)
def test_an_error_is_1(modules, env_id, text):
    done = invoke(env_id)
    assert done.exit_code == 1
    assert text in done.output
    assert "build: what to do" in done.output
    assert f"{env_id}: 1 error, 0 warnings" in done.output


@pytest.mark.parametrize(
    ("env_id", "text"),
    [
        ("doctored:number", "number of doctored: expected a callable that returns an environment, got int"),
        ("doctored:absent", "the module doctored has no callable absent and registers no environment"),
    ],
)
def test_what_a_module_does_not_have(modules, env_id, text):
    done = invoke(env_id)
    assert done.exit_code == 2
    assert text in " ".join(done.output.split())


def test_json(modules):
    done = invoke("CartPole-v1", "--steps", "60", "--json")
    result = json.loads(done.output)
    assert (result["environment"], result["errors"], result["warnings"]) == ("CartPole-v1", 0, 0)
    assert result["microseconds"]["step"] > 0
    assert {finding["level"] for finding in result["findings"]} == {"ok"}
    assert json.loads(invoke("doctored:broken", "--json").output)["errors"] == 1


@pytest.mark.parametrize(
    "arguments", [["NoSuch-v0"], ["no_such_module:make"], ["CartPole-v1", "--steps", "0"]]
)
def test_wrong_use_is_2(arguments):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert "Usage" in done.output


class TensorCounter(CounterEnv):
    """A counter of torch tensors, whose actions must be tensors if it is given a device."""

    def __init__(self, device=None):
        super().__init__([3, 5, 4, 7])
        self.device = device

    def reset(self, **options):
        import torch

        return map_leaves(torch.as_tensor, super().reset(**options))

    def step(self, action):
        import torch

        assert isinstance(action, torch.Tensor) == (self.device is not None)
        return map_leaves(torch.as_tensor, super().step(int(action)))


class TensorCounters(gymnasium.vector.SyncVectorEnv):
    """Several of them, which are given an array of actions or a tensor."""

    def __init__(self, device=None):
        super().__init__([lambda: CounterEnv([3, 5])] * 2)
        self.device = device

    def reset(self, **options):
        import torch

        return map_leaves(torch.as_tensor, super().reset(**options))

    def step(self, actions):
        import torch

        assert isinstance(actions, torch.Tensor) == (self.device is not None)
        return map_leaves(torch.as_tensor, super().step(np.asarray(actions)))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("build", [TensorCounter, TensorCounters])
def test_environments_of_tensors(build, device):
    # CD2: also where the environment is given tensors, on the device that the factory is given.
    pytest.importorskip("torch")
    report = Report()
    examine(build, report, steps=100, seed=0, device=device)
    findings = {finding.check: finding for finding in report.findings}
    assert levels(findings).keys() <= {"seeds"}  # A counter also counts its resets.
    actions = "NumPy arrays" if device is None else "tensors on cpu"
    assert f"torch tensors on cpu; actions are {actions}" in findings["tensors"].text
