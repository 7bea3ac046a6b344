"""docs/torchrl.md: its tables are complete, and the code of each row runs."""

import re
import sys
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest

import headrace as hr

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TEXT = (Path(__file__).parents[1] / "docs" / "torchrl.md").read_text()

# TorchRL 0.14.1: the arguments of AsyncCollector, those that it passes on to MultiCollector, and those of Collector.
ARGUMENTS = """
create_env_fn policy policy_factory frames_per_batch total_frames device storing_device env_device policy_device
create_env_kwargs max_frames_per_traj init_random_frames reset_at_each_iter postproc split_trajs exploration_type
reset_when_done update_at_each_batch preemptive_threshold num_threads num_sub_threads set_truncated
track_policy_version num_workers collector_class cat_results use_buffers replay_buffer extend_buffer trust_policy
compile_policy cudagraph_policy no_cuda_sync weight_updater weight_sync_schemes weight_recv_schemes worker_idx
trajs_per_batch trajs_per_write traj_format init_fn auto_register_policy_transforms pre_collect_hook
post_collect_hook compact_obs backend backend_options num_collectors sync track_traj_ids return_same_td interruptor
"""
# The public members of AsyncCollector there.
METHODS = """
async_shutdown cascade_execute disable_profile enable_profile fake_tensordict frames_per_batch_worker
get_cached_weights get_distant_attr get_model get_policy_version getattr_env getattr_policy getattr_rb
increment_version init_updater iterator load_state_dict map_fn next pause policy_version profile_config
receive_weights register_scheme_receiver reset set_post_collect_hook set_seed shutdown start state_dict stats
update_policy_weights_ worker_idx post_collect_hook pre_collect_hook trajs_per_batch trajs_per_write traj_format
weight_updater
"""


def part(title):
    """The text below a title, up to the next one."""
    return re.split(r"^## ", TEXT.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def rows(title):
    """The first code and the second cell of each row with three cells."""
    for line in part(title).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            yield pytest.param(cells[1].strip("`"), id=cells[0].strip("`"))


def act(params, observation):
    return np.zeros(len(observation), int) + int(params["w"].sum() < 0)


def new_policy():
    return hr.FunctionalPolicy(act, {"w": np.ones(2, np.float32)})


def test_every_argument_and_method_has_a_row():
    named = set(
        re.findall(r"`([a-z_]+)`", "\n".join(line.split("|")[1] for line in TEXT.splitlines() if "|" in line))
    )
    assert set(ARGUMENTS.split()) - named == set()
    assert set(METHODS.split()) - named == set()
    assert set(re.findall(r"`(\w+)`", part("Arguments"))) >= set(ARGUMENTS.split())


@pytest.fixture
def replay():
    signature = hr.collectors.signature("CartPole-v1")
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    with hr.Replay(signature, [table], capacity=10_000) as replay:
        yield replay


@pytest.mark.parametrize("code", [row for row in rows("Arguments") if row.values[0]])
def test_the_code_of_an_argument(code, replay):
    names = {"hr": hr, "np": np, "gymnasium": gymnasium, "policy": new_policy(), "replay": replay}
    if code.startswith("collector."):
        run_in_use(code, names)
        return
    if code.startswith("hr."):
        collector = eval(code, names)
    else:
        defaults = {"create_env_fn": "CartPole-v1", "frames_per_batch": 64}
        given = eval(f"dict({code})", names)
        collector = hr.Collector(**defaults | given)
    with collector:
        assert collector.next(timeout=30).frames > 0


@pytest.mark.parametrize("code", [row for row in rows("Methods") if row.values[0]])
def test_the_code_of_a_method(code, replay, tmp_path):
    names = {"hr": hr, "np": np, "folder": tmp_path}
    if not re.search(r"\bfree\b", code):
        run_in_use(code, names)
        return
    with hr.AsyncCollector("CartPole-v1", frames_per_batch=32, replay_buffer=replay) as free:
        if "start" not in code:
            free.start()
        exec(code, names | {"free": free})


def run_in_use(code, names):
    """Runs code on a collector that has just given a batch, if the code allows."""
    kind, name = (
        (hr.Collector, "inline") if re.search(r"\binline\b", code) else (hr.AsyncCollector, "collector")
    )
    options = {"track_policy_version": True} if kind is hr.Collector else {}
    with kind("CartPole-v1", new_policy(), frames_per_batch=32, total_frames=320, **options) as collector:
        batch = collector.next(timeout=30) if "enable_profile" not in code else None
        exec(code, names | {name: collector, "batch": batch})
