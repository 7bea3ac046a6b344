"""The pages are right: their examples print what they say, their links lead somewhere, their names exist."""

import ast
import doctest
import inspect
import re
from pathlib import Path

import pytest

import headrace as hr
import headrace.replay

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("design/*.md")),
]
USER_PAGES = [page for page in PAGES if page.parent.name != "design"]
SESSIONS = [page for page in PAGES if ">>> " in page.read_text()]


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


@named(SESSIONS)
def test_examples_print_what_the_page_says(page):
    # A fence would be read as printed text.
    text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert test.examples
    report = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        test, out=report.append
    )
    assert not report, "".join(report)


@named(PAGES)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def missing_names(text):
    """The names `hr.something` in a text that the package does not have."""
    return {name for name in re.findall(r"\bhr\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text) if not exists(name)}


def exists(name):
    found = hr
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@named(PAGES)
def test_names_exist(page):
    assert missing_names(page.read_text()) == set()


@pytest.mark.parametrize("folder", ["src", "examples"])
def test_names_in_docstrings_and_messages_exist(folder):
    missing = {path.name: missing_names(path.read_text()) for path in ROOT.glob(f"{folder}/**/*.py")}
    assert {path: names for path, names in missing.items() if names} == {}


def code_of(page):
    """What stands in code on a page: its fenced blocks and its code words."""
    text = page.read_text()
    fenced = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    return "\n".join([*fenced.findall(text), *re.findall(r"`([^`\n]+)`", fenced.sub("", text))])


def collectors_with_an_end(page):
    """The pairs of `total_frames` and `frames_per_batch` in the calls of a page's Python blocks."""
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if ">>> " in block or "total_frames" not in block:  # The former run.
            continue
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            numbers = {each.arg: ast.literal_eval(each.value) for each in call.keywords if is_number(each)}
            if {"total_frames", "frames_per_batch"} <= numbers.keys():
                yield numbers["total_frames"], numbers["frames_per_batch"]


def is_number(keyword):
    return isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int)


def test_collectors_of_pages_have_whole_batches():
    # Collectors CR3: any other total is a ValueError.
    found = [pair for page in PAGES for pair in collectors_with_an_end(page)]
    assert len(found) >= 3
    assert [(total, size) for total, size in found if total % size] == []


def public_callables():
    for module in (hr, hr.replay, *(getattr(hr, name) for name in hr._LAZY_MODULES)):
        for name in getattr(module, "__all__", vars(module)):
            found = getattr(module, name)
            yield found
            if inspect.isclass(found):
                yield from (getattr(found, each, None) for each in dir(found) if not each.startswith("_"))


def parameters(function):
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # A module, a constant, a class without a signature.
        return set()


# Arguments of other libraries and commands, and keys of a dict that a page makes.
FOREIGN_ARGUMENTS = {
    "cleanrl.md": {"dim", "handle_timeout_termination"},
    "collectors.md": {"in_keys", "logits", "out_keys", "weights_only"},
    "deployment.md": {"cafile"},
    "durability.md": {"sparse"},
    "habits.md": {
        "alpha",
        "beta",
        "n_envs",
        "n_steps",
        "num_samples",
        "policy_spec",
        "slice_len",
        "storage",
        "storage_unit",
    },
    "integrations.md": {
        "act",
        "alpha",
        "beta",
        "break_when_any_done",
        "buffer_size",
        "importance_exponent",
        "n_steps",
        "obs",
        "obs_next",
        "reduction",
        "replay_buffer_class",
        "replay_buffer_kwargs",
        "rew",
        "storage",
        "transform",
    },
    "loaders.md": {"multiprocessing_context"},
    "memories.md": {"target", "weights_only"},
    "monitor.md": {"after"},
    "not_learning.md": {"axis"},
    "replay.md": {"make_arena", "p"},
    "returns.md": {"axis"},
    "rllib.md": {"config", "default_policy_class", "next_action", "num_envs_per_env_runner"},
    "sb3.md": {"handle_timeout_termination", "n_envs", "replay_buffer_class"},
    "sequences.md": {"axis"},
    "skrl.md": {"memory", "models", "states"},
    "tf_agents.md": {"max_steps", "num_steps", "observers", "sample_batch_size"},
    "tutorial.md": {"lr"},
    "views.md": {"ahead", "back", "episode_id", "later", "pair", "previous_action", "stack", "t"},
    "writers.md": {"partial_step"},
}


@named(USER_PAGES)
def test_arguments_exist(page):
    written = set(re.findall(r"(?<![\w.\"'])([a-z_]\w*)=(?!=)", code_of(page)))
    known = set().union(*map(parameters, public_callables()))
    assert written - known <= FOREIGN_ARGUMENTS.get(page.name, set())


# What the pages call their objects.
OBJECTS = {
    "accumulator": [hr.TrajectoryAccumulator],
    "batch": [headrace.replay.ReplaySample, hr.Batch, hr.SampleBatch],
    "collector": [hr.Collector, hr.AsyncCollector, hr.MultiCollector],
    "loader": [hr.loaders.Loader],
    "memory": [hr.memories.RandomMemory],
    "observer": [hr.AddTrajectoryObserver, hr.AddEpisodeObserver],
    "queue": [hr.BatchQueue],
    "replay": [hr.Replay],
    "writer": [headrace.replay.Writer, hr.StepWriter, hr.TransitionWriter, hr.rollouts.BatchWriter],
}


@named(USER_PAGES)
def test_methods_exist(page):
    code = code_of(page)
    for name, classes in OBJECTS.items():
        known = set().union(*(set(dir(each)) | set(getattr(each, "__annotations__", {})) for each in classes))
        assert set(re.findall(rf"(?<![\w.]){name}\.([a-z_]\w*)", code)) <= known


@pytest.mark.parametrize("folder", ["docs", "design"])
def test_the_index_names_every_page(folder):
    index = (ROOT / folder / "README.md").read_text()
    pages = {page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\((\w+\.md)\)", index))
