"""Pages for users of other libraries: every name of the other library has a row, and the code of each runs."""

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
current_size num_unique_samples rate_limiter_info num_episodes num_deleted_episodes table_worker_time replace
RateLimiter delta_encoded chunk_length emit_timesteps unpack_as_table_signature ReplayDataset clear_buffers
block_until_num_items retry_on_unavailable validate_items infer_signature create_reference_step unpack_pattern
step_is_open pattern_dataset_with_info dtypes shapes default_checkpointer group fallback_checkpoint_path
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
# RLlib 2.9 and its names of 2.40: collection, views, batches, buffers; and all of its page on sample collection.
RLLIB = """
RolloutWorker SingleAgentEnvRunner rollout_fragment_length batch_mode count_steps_by train_batch_size horizon
soft_horizon no_done_at_end sample_async SyncSampler AsyncSampler num_workers num_env_runners sync_weights
restart_failed_env_runners policy_mapping_fn callbacks DefaultCallbacks postprocess_trajectory add_init_obs
add_action_reward_next_obs get_inference_input_dict postprocess_episode build_multi_agent_batch ViewRequirement
batch_repeat_value used_for_compute_actions used_for_training view_requirements get_initial_state state_in_0 state_out_0
max_seq_len seq_lens SampleBatch OBS REWARDS EPS_ID unroll_id agent_index concat_samples split_by_episode timeslices
rows shuffle right_zero_pad MultiAgentBatch agent_steps env_steps compute_advantages ReplayBuffer
PrioritizedReplayBuffer MultiAgentReplayBuffer EpisodeReplayBuffer SingleAgentEpisode ReservoirReplayBuffer
SamplerInput truncate_episodes complete_episodes SampleCollector SimpleListCollector sample_collector learn_on_batch
_use_trajectory_view_api compute_actions_from_input_dict env_creator policy_spec policy_config policy_map data_col space
shift prev_actions prev_rewards next_obs next_actions dones on_postprocess_trajectory postprocessed_batch __all__
"""
# skrl 2.1: the public names of its memories, and what stands around them.
SKRL = """
RandomMemory Memory create_tensor add_samples sample batch_size mini_batches sequence_length sample_all sample_by_index
get_sampling_indexes get_tensor_by_name set_tensor_by_name get_tensor_names memory_index env_index filled reset save
load export share_memory SequentialTrainer record_transition compute_gae
"""
# TF-Agents 0.19: trajectories, observers, buffers. Acme 0.4: adders.
TF_AGENTS = """
Trajectory StepType ReverbAddTrajectoryObserver ReverbAddEpisodeObserver pad_end_of_episodes tile_end_of_episodes
bypass_partial_episodes ReverbReplayBuffer as_dataset clear num_frames TFUniformReplayBuffer PyUniformReplayBuffer
EpisodicReplayBuffer key probability table_size mutate_priorities PyDriver DynamicStepDriver to_transition
to_n_step_transition NStepTransitionAdder SequenceAdder EpisodeAdder EndBehavior WRITE CONTINUE ZERO_PAD TRUNCATE
add_first add PriorityFn make_reverb_prioritized_nstep_replay
"""
NAMES = {
    "reverb.md": REVERB,
    "echo.md": ECHO,
    "sb3.md": SB3,
    "rllib.md": RLLIB,
    "skrl.md": SKRL,
    "tf_agents.md": TF_AGENTS,
}


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


@pytest.mark.parametrize(("page", "names"), NAMES.items())
def test_every_name_has_a_row(page, names):
    text = (DOCS / page).read_text()
    cells = "\n".join(
        line.split(" | ")[0] + line.rsplit(" | ", 1)[-1] for line in text.splitlines() if "|" in line
    )
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", cells))))
    assert set(names.split()) - named == set()
    assert len(codes(page)) >= {"skrl.md": 18, "tf_agents.md": 20}.get(page, 25)


@pytest.fixture
def closing():
    """Closes what a row makes."""
    with ExitStack() as stack:
        yield stack


def run(code, names, closing):
    """Runs the code of a row; a server, replay or writer that it makes is closed at the end."""
    *statements, last = code.split("; ")
    exec("\n".join(statements), names)
    if re.match(r"[\w., \[\]]+ = ", last):
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
    envs.action_space.seed(0)
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


class Right:
    """A policy of the rows of a page: each may change it."""

    def compute_actions(self, input_dict):
        count = len(input_dict["observation"])
        return np.ones(count, np.int64), [], {}


def cart_poles(config=None):
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize("code", codes("rllib.md"))
def test_the_code_for_users_of_rllib(code, closing):
    policy = Right()
    worker = closing.enter_context(hr.RolloutWorker(cart_poles, policy, rollout_fragment_length=5, seed=0))
    step = {"observation": np.zeros(4, np.float32), "action": np.int64(0), "reward": 0.0}
    flags = {"terminated": False, "truncated": False}
    replay = closing.enter_context(hr.Replay(hr.Signature.like(step | flags), [hr.Table.uniform(1000)]))
    with replay.writer(items=[hr.ItemRule("replay", 1)]) as writer:
        writer.append(step | flags)
    weights = hr.FunctionalPolicy(lambda params, obs: np.ones(len(obs), np.int64), {"unused": np.zeros(1)})
    collector = closing.enter_context(hr.Collector("CartPole-v1", weights, frames_per_batch=8))
    names = {
        "hr": hr, "np": np, "create": cart_poles, "policy": policy, "worker": worker, "batch": worker.sample(),
        "replay": replay, "collector": collector,
    }  # fmt: skip
    run(code, names, closing)


@pytest.mark.parametrize("code", codes("skrl.md"))
def test_the_code_for_users_of_skrl(code, closing, tmp_path):
    torch = pytest.importorskip("torch")
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    closing.callback(envs.close)
    replay = closing.enter_context(hr.Replay.for_env(envs, tables=[hr.Table.uniform(1000)]))
    writer = closing.enter_context(hr.TransitionWriter(replay, env=envs))
    obs, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(30):
        actions = envs.action_space.sample()
        step = next_obs, rewards, terminated, truncated, infos = envs.step(actions)
        writer.add(obs, actions, rewards, terminated, truncated, next_obs, infos)
        obs = next_obs
    memory = hr.memories.RandomMemory(memory_size=100, num_envs=4, export_directory=str(tmp_path))
    memory.create_tensor("states", size=3, dtype=torch.float32)
    memory.create_tensor("rewards", size=1, dtype=torch.float32)
    for _ in range(5):
        memory.add_samples(states=torch.ones(4, 3), rewards=torch.ones(4, 1))
    memory.sample(["states"], batch_size=2)
    names = {"hr": hr, "np": np, "torch": torch, "memory": memory, "folder": tmp_path, "replay": replay}
    names |= {"writer": writer, "obs": obs, "actions": envs.action_space.sample()}
    names |= dict(zip(("next_obs", "rewards", "terminated", "truncated", "infos"), step, strict=True))
    run(code, names, closing)


@pytest.mark.parametrize("code", codes("tf_agents.md"))
def test_the_code_for_users_of_tf_agents(code, closing):
    first, mid, last = hr.StepType
    kinds = [(first, mid), (mid, mid), (mid, last), (last, first)]
    frames = [hr.Trajectory(here, np.float32(0), 0, (), there, 1.0, 1.0) for here, there in kinds]
    signature = hr.Signature.like(frames[0])
    table = hr.Table("t", sampler=hr.selectors.Prioritized(1.0), remover=hr.selectors.Fifo(), max_size=100)
    replay = closing.enter_context(hr.Replay(signature, [table]))
    with hr.AddTrajectoryObserver(replay, "t", sequence_length=2, stride_length=1) as observer:
        for frame in frames:
            observer(frame)
    steps = closing.enter_context(
        hr.Replay.for_env("CartPole-v1", tables=[hr.Table.uniform(100, name="t")]),
    )
    run(code, {"hr": hr, "np": np, "replay": replay, "frame": frames[0], "steps": steps}, closing)
