"""The flat public names: each is there, is what its module has, and is known to type checkers."""

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
import headrace.replay

# What may be absent: the libraries of the extras. Nothing else may keep a module of ours from being imported.
OPTIONAL = {
    "ale_py", "dm_env", "envpool", "h5py", "hypothesis", "jax", "matplotlib", "minari", "mujoco", "pettingzoo", "PIL",
    "prometheus_client", "pyarrow", "pytest", "ray", "stable_baselines3", "starlette", "tensordict", "torch", "uvicorn",
}  # fmt: skip

LAZY = {**hr._LAZY_NAMES, **hr._LAZY_MODULES}


def exists(module):
    """Whether the module is there, without running more than its parents."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return (
        found is not None and found.origin is not None
    )  # A folder without __init__.py is no module of ours.


def type_checked_names():
    """Public name to module, as the TYPE_CHECKING block of `headrace/__init__.py` imports them."""
    tree = ast.parse(Path(hr.__file__).read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {
        (alias.asname, alias.name): statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("name", [name for name, module in LAZY.items() if exists(module)])
def test_a_public_name_is_what_its_module_has(name):
    module = importlib.import_module(LAZY[name])
    assert getattr(hr, name) is (module if name in hr._LAZY_MODULES else getattr(module, name))


def test_type_checkers_see_the_same_names():
    expected = {}
    for name, module in LAZY.items():
        if exists(module):
            parent = module.rpartition(".")[0] if name in hr._LAZY_MODULES else module
            expected[name, name] = parent
    assert type_checked_names() == expected


# Each attribute is named once rightly and once wrongly.
SNIPPET = """\
import headrace as hr
import headrace.replay

hr.Table.queue("a", 3)
hr.Tabel("a")
hr.selectors.Uniform()
hr.datasets.episodes
hr.datasets.episode
hr.collectors.Collector
hr.collectors.Colector
hr.trajectories.StepWriter
hr.trajectories.StepWritr
hr.testing.SelectorContract
hr.testing.SelectorContrakt
"""
WRONG = ("Tabel", "episode", "Colector", "StepWritr", "SelectorContrakt")


@pytest.mark.timeout(120)  # mypy reads its description of the standard library.
def test_type_checkers_refuse_a_name_that_does_not_exist(tmp_path):
    pytest.importorskip("mypy")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    package = Path(hr.__file__).parent
    # Only the modules whose names are looked at are read; what they import is any.
    read = [package / "__init__.py"]
    read += [package / name / "__init__.py" for name in ("collectors", "datasets", "testing", "trajectories")]
    options = ["--strict", "--follow-imports=skip", "--no-error-summary", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, str(snippet), *map(str, read)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("snippet.py")]
    assert len(found) == len(WRONG), done.stdout + done.stderr
    for line, name in zip(found, WRONG, strict=True):
        assert f'has no attribute "{name}"' in line


def test_dir_lists_the_public_names_only():
    for module in (hr, hr.collectors, hr.datasets, hr.testing, hr.trajectories):
        assert dir(module) == sorted(module.__all__)


def test_every_name_is_listed_once():
    assert len(hr.__all__) == len(set(hr.__all__))
    assert set(hr.__all__) <= set(dir(hr))
    eager = {
        name
        for name, value in inspect.getmembers(hr, inspect.isclass)
        if value.__module__.startswith("headrace.")
    }
    assert eager <= set(hr.__all__)


def test_errors_and_signatures_are_there_at_once():
    for name in (
        "SpecError",
        "DeadlineExceeded",
        "Closed",
        "Disconnected",
        "AuthenticationError",
        "ItemNotFound",
    ):
        assert vars(hr)[name] is getattr(hr.errors, name)
    for name in ("CheckpointError", "DatasetError", "WorkerDied", "StoreFull", "HeadraceError"):
        assert vars(hr)[name] is getattr(hr.errors, name)
    assert hr.Signature is hr.spec.Signature
    assert hr.ArraySpec is hr.spec.ArraySpec


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'Reply'"):
        hr.Reply  # noqa: B018
    assert not hasattr(hr, "Reply")


def test_the_version_is_that_of_the_package():
    assert importlib.metadata.version("headrace") == hr.__version__


@pytest.mark.parametrize("module", [found.name for found in pkgutil.walk_packages(hr.__path__, "headrace.")])
def test_every_module_can_be_imported(module):
    try:
        importlib.import_module(module)
    except ImportError as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        missing = getattr(cause, "name", None) or ""
        assert missing.partition(".")[0] in OPTIONAL, f"{module} cannot be imported: {error}"
        assert "headrace[" in str(error), f"{module}: expected the error to name the extra, got {error}"


# What `help` shows of each class that users hold. Whatever else the parts of Headrace need
# of each other begins with an underscore, or belongs to another object: `core_of(replay)`.
STEP_WRITER = "add add_episode add_first close flush reset statistics"
COLLECTOR = "next policy policy_version replay_buffer set_seed shutdown statistics update_policy_weights_"
COLLECTOR += " get_cached_weights get_model get_policy_version increment_version init_updater receive_weights"
COLLECTOR += " register_scheme_receiver version_id"
COLLECTOR += " cascade_execute get_distant_attr getattr_env getattr_policy getattr_rb map_fn worker_idx"
COLLECTOR += " load_state_dict state_dict"
COLLECTOR += " disable_profile enable_profile profile_config"
COLLECTOR += " post_collect_hook postproc postprocs pre_collect_hook reset set_post_collect_hook"
ATTRIBUTES = {
    hr.AddEpisodeObserver: "close flush open reset statistics update_priority",
    hr.AddTrajectoryObserver: "close flush open reset statistics",
    hr.ArraySpec: "dtype nbytes shape",
    hr.AsyncCollector: f"{COLLECTOR} async_shutdown env pause start worker_pid",
    hr.Batch: "explain flatten frames get items jax keys minibatches numpy shape torch values with_columns",
    hr.BatchQueue: "batches close sample send statistics tail",
    hr.Client: "checkpoint close ping queue replay statistics",
    hr.Collector: f"{COLLECTOR} async_shutdown env pause start",
    hr.Episode: "fragment return_ terminated truncated",
    hr.EpisodeWriter: STEP_WRITER,
    hr.FunctionalPolicy: "load_state_dict state_dict",
    hr.MultiAgentBatch: "agent_steps concat copy count env_steps jax numpy timeslices torch",
    hr.Replay: (
        "can_insert can_sample check_open close delete final_columns for_env get is_closed items load reset "
        "row_writer sample save signature statistics table table_names update_priorities writer"
    ),
    hr.RolloutWorker: "close pruned sample",
    hr.SampleBatch: (
        "agent_steps chop clear concat copy count data env_steps get items jax keys mask numpy pop popitem "
        "right_zero_pad rows seq_lens setdefault shuffle split_by_episode timeslices torch update values "
        "without_padding ACTIONS AGENT_INDEX DONES ENV_ID EPS_ID NEXT_OBS OBS PREV_ACTIONS PREV_REWARDS REWARDS "
        "SEQ_LENS T TERMINATEDS TRUNCATEDS"
    ),
    hr.SampleCollector: "add_first add_step cut input_dict",
    hr.SequenceWriter: STEP_WRITER,
    hr.Server: "address addresses checkpoint served start statistics stop",
    hr.Signature: "columns flatten from_json is_flat like nbytes of_space to_json tree unflatten validate zeros",
    hr.StepWriter: STEP_WRITER,
    hr.Table: "prioritized queue stack uniform",
    hr.TrajectoryAccumulator: "add build capacity count is_full names reset",
    hr.TransitionWriter: f"{STEP_WRITER} extend views",
    hr.loaders.Loader: "close load_state_dict state_dict",
    headrace.replay.PackedBatch: "data info layout lengths mask offsets pad",
    headrace.replay.SampleInfo: "keys priorities probabilities table_size times_sampled",
    headrace.replay.ReplaySample: "data describe explain info layout mask pack",
    headrace.replay.TableView: "configure distribution name peek statistics",
    headrace.replay.Writer: "append close create_item end_episode flush lanes pending policy_version",
}


@pytest.mark.parametrize("owner", ATTRIBUTES, ids=lambda owner: owner.__name__)
def test_a_class_shows_what_users_call(owner):
    assert {name for name in dir(owner) if not name.startswith("_")} == set(ATTRIBUTES[owner].split())


def test_an_instance_shows_no_more_than_its_class():
    with (
        hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("t", 9)]) as replay,
        replay.writer() as writer,
    ):
        for each in (replay, writer, replay.table("t")):
            shown = {name for name in vars(each) if not name.startswith("_")}
            assert shown <= {name for name in dir(type(each)) if not name.startswith("_")}
            assert type(each).__doc__
