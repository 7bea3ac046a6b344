"""Pages for users of Reverb, Echo and SB3: every name of the other library has a row, and the code of each runs."""

import re
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import headrace as hr

DOCS = Path(__file__).parents[1] / "docs"
# Reverb 0.14: the public names and members of `reverb`, and the arguments that are not those of the same name here.
REVERB = """
Server port localhost_client in_process_client stop wait checkpointer Table signature extensions queue stack can_sample
can_insert info TableInfo Uniform Prioritized Fifo Lifo MinHeap MaxHeap MinSize SampleToInsertRatio Queue Stack
Client server_address insert writer trajectory_writer structured_writer sample mutate_priorities reset server_info
checkpoint TFClient DeadlineExceededError ReverbError Writer TrajectoryWriter append partial_step append_sequence
create_item history TrajectoryColumn episode_steps end_episode configure flush close max_in_flight_items structured
create_config Condition pattern_from_transform TrajectoryDataset TimestepDataset PatternDataset from_table_signature
max_in_flight_samples_per_worker num_workers_per_iterator max_samples_per_stream flexible_batch_size
rate_limiter_timeout_ms ReplaySample data SampleInfo key probability table_size priority times_sampled checkpointers
DefaultCheckpointer TempDirCheckpointer
"""
# Echo 0.2.1: the names in `echo.__all__`, their members and arguments.
ECHO = """
Server Sample batch info SampleInfo HistSnapshot TcpTransport TcpClient ConnectionClosedError TrajectoryAccumulator
transport num_buffers num_drainers producer_queue_size pin_host_memory num_threads port start sample dataset_iter
submit close reset_histograms data_sample max_inflight_msgs send wait add build reset store_size active_connections
queue_depth_sum queue_depth_max push_blocked_count samples_inserted_total notify_count cas_success_total
cas_failure_total reservation_retries_total drain_round memcpy queue_dwell
"""
# Stable-Baselines3 2.7: the classes of buffers and their methods and arguments, and what stands around them.
SB3 = """
ReplayBuffer buffer_size n_envs device optimize_memory_usage handle_timeout_termination add extend sample size full
reset ReplayBufferSamples NStepReplayBuffer DictReplayBuffer HerReplayBuffer RolloutBuffer compute_returns_and_advantage
save_replay_buffer load_replay_buffer make_vec_env DummyVecEnv SubprocVecEnv VecFrameStack VecNormalize train_freq
gradient_steps learning_starts callback
"""


def rows(page):
    """The first and the second cell of each row of three cells, without the heads."""
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 3 and not set(line) <= set("|- "):
            yield cells[0], cells[1].strip("`| ")


def codes(page):
    return [
        pytest.param(code, id=name.strip("`|")) for name, code in rows(page) if code and code != "Headrace"
    ]


@pytest.mark.parametrize(("page", "names"), [("reverb.md", REVERB), ("echo.md", ECHO), ("sb3.md", SB3)])
def test_every_name_has_a_row(page, names):
    text = (DOCS / page).read_text()
    cells = "\n".join(
        line.split(" | ")[0] + line.rsplit(" | ", 1)[-1] for line in text.splitlines() if "|" in line
    )
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", cells))))
    assert set(names.split()) - named == set()
    assert len(codes(page)) >= 25


@pytest.fixture
def closing():
    """Closes what a row makes."""
    with ExitStack() as stack:
        yield stack


def run(code, names, closing):
    """Runs the code of a row; a server, replay or writer that it makes is closed at the end."""
    *statements, last = code.split("; ")
    exec("\n".join(statements), names)
    if re.match(r"[\w., ]+ = ", last):
        exec(last, names)
        return
    made = eval(last, names)
    for end in ("stop", "close", "shutdown"):
        if hasattr(made, end):
            closing.callback(getattr(made, end))


def steps(writer, count):
    for n in range(count):
        writer.append({"x": float(n), "reward": 0.0})


@pytest.mark.parametrize("code", codes("reverb.md"))
def test_the_code_for_users_of_reverb(code, closing, tmp_path):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    replay = closing.enter_context(hr.Replay(hr.Signature.like({"x": 0.0, "reward": 0.0}), [table]))
    with replay.writer(items=[hr.ItemRule("t", 1)]) as first:
        steps(first, 5)
    server = closing.enter_context(hr.Server({"robot": replay}, checkpoint=tmp_path / "saved"))
    closing.enter_context(suppress(hr.Closed))  # A row may have stopped the server.
    client = closing.enter_context(hr.Client(server.address))
    writer = closing.enter_context(client.replay("robot").writer(history=8))
    names = {
        "hr": hr,
        "np": np,
        "replay": replay,
        "server": server,
        "client": client,
        "writer": writer,
        "folder": tmp_path,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* newest of their lanes")
        run(code, names, closing)


@pytest.mark.parametrize("code", codes("echo.md"))
def test_the_code_for_users_of_echo(code, closing, tmp_path):
    example = {"observation": np.zeros(4, np.float32), "reward": np.zeros(1, np.float32)}
    queue = closing.enter_context(hr.BatchQueue(example, batch_size=2))
    for _ in range(4):
        queue.send(example)
    server = closing.enter_context(hr.Server({"samples": queue}))
    client = closing.enter_context(hr.Client(server.address))
    accumulator = hr.TrajectoryAccumulator({"step": {"reward": np.zeros(5)}})
    names = {
        "hr": hr, "np": np, "queue": queue, "server": server, "client": client, "samples": client.queue("samples"),
        "example": example, "sample": example, "accumulator": accumulator, "folder": tmp_path,
    }  # fmt: skip
    run(code, names, closing)


@pytest.mark.parametrize("code", codes("sb3.md"))
def test_the_code_for_users_of_stable_baselines3(code, closing, tmp_path):
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    closing.callback(envs.close)
    replay = closing.enter_context(hr.Replay.for_env(envs, tables=[hr.Table.uniform(1000)]))
    writer = closing.enter_context(hr.TransitionWriter(replay, env=envs))
    obs, infos = envs.reset(seed=0)
    for _ in range(30):
        actions = envs.action_space.sample()
        next_obs, rewards, terminated, truncated, infos = envs.step(actions)
        writer.add(obs, actions, rewards, terminated, truncated, next_obs, infos)
        obs = next_obs
    other = closing.enter_context(hr.TransitionWriter(replay))
    next_obs, rewards, terminated, truncated, infos = envs.step(actions)
    names = {
        "hr": hr, "envs": envs, "replay": replay, "writer": writer, "other": other, "folder": tmp_path,
        "obs": obs, "actions": actions, "rewards": rewards, "terminated": terminated, "truncated": truncated,
        "next_obs": next_obs, "infos": infos, "batch": replay.sample(2, views=writer.views),
        "transitions": (obs, actions, rewards.astype(np.float32), terminated, truncated, next_obs),
    }  # fmt: skip
    names["collector"] = closing.enter_context(hr.Collector("CartPole-v1", frames_per_batch=8))
    run(code, names, closing)
