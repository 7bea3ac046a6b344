"""Profiles of rollouts: what a trace holds, when it is complete, and what turns it off."""

import json
import sys
import threading
from dataclasses import FrozenInstanceError
from functools import partial

import cloudpickle
import numpy as np
import pytest
import torch

import headrace as hr
from headrace.collectors.profiling.recorder import TraceRecorder
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NAMES = {"rollout", "policy", "env_step", "env_reset", "write", "weights", "wait"}
QUICK = {"with_stack": False}


def act(observation):
    return np.zeros(len(observation), int)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, observation):
        return self.layer(observation.float()).argmax(-1)


def build(kind, policy=act, **options):
    return kind(partial(CounterEnv, 3), policy, **{"frames_per_batch": 8, "num_envs": 2} | options)


def complete_events(path):
    """The complete events of a trace of ours, as a list of dicts."""
    return [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "headrace"]


def named(events, name):
    return [event for event in events if event["name"] == name]


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_the_trace_is_complete_before_the_last_recorded_rollout(kind, tmp_path):
    # CH2, CH3.
    path = tmp_path / "profile_{worker_idx}.json"
    with build(kind) as collector:
        assert collector.profile_config is None
        collector.enable_profile(save_path=path, num_rollouts=4, warmup_rollouts=2, **QUICK)
        assert collector.profile_config.num_rollouts == 4
        with pytest.raises(FrozenInstanceError):
            collector.profile_config.num_rollouts = 5
        for number in range(4):
            assert collector.profile_config is not None
            collector.next(timeout=40)
            if number == 0:
                with pytest.raises(RuntimeError, match="not begun"):
                    collector.enable_profile()
        events = complete_events(tmp_path / "profile_0.json")
        assert collector.profile_config is None
        written = (tmp_path / "profile_0.json").stat().st_mtime_ns
        for _ in range(3):
            collector.next(timeout=40)
        assert (tmp_path / "profile_0.json").stat().st_mtime_ns == written
    assert [each.name for each in tmp_path.iterdir()] == ["profile_0.json"]
    check_events(events, rollouts=[2, 3], steps=4)


def check_events(events, rollouts, steps):
    assert {event["name"] for event in events} <= NAMES
    assert {event["args"]["worker_idx"] for event in events} == {0}
    assert len({(event["pid"], event["tid"]) for event in events}) == 1
    assert [event["args"]["rollout"] for event in named(events, "rollout")] == rollouts
    for rollout in rollouts:
        own = [event for event in events if event["args"]["rollout"] == rollout]
        (whole,) = named(own, "rollout")
        assert len(named(own, "policy")) == len(named(own, "env_step")) == steps
        assert len(named(own, "write")) >= steps
        end = -1.0
        for event in sorted(own, key=lambda event: event["ts"]):
            assert event["ph"] == "X"
            assert event["dur"] >= 0
            if event["name"] not in ("wait", "rollout", "weights"):
                # One after the other, inside their rollout.
                assert event["ts"] >= max(end, whole["ts"]) - 1e-3
                end = event["ts"] + event["dur"]
                assert end <= whole["ts"] + whole["dur"] + 1e-3
            if event["name"] in ("policy", "env_step"):
                assert event["args"]["shapes"] == {"observation": [2, 3], "action": [2]}
    # Episodes of 3 steps, so two rollouts of 4 steps see resets; between two rollouts the collector waits.
    assert named(events, "env_reset")
    assert named(events, "wait")


def test_times_are_those_of_the_clock():
    # CH3: times are those of the injected clock, in microseconds.
    now, traces = [0.0], []
    config = hr.collectors.ProfileConfig(
        num_rollouts=2, on_trace_ready=traces.append, record_shapes=False, **QUICK
    )
    recorder = TraceRecorder(config, 7, lambda: now[0], {"action": [1]}, with_torch=False)
    for rollout in range(2):
        recorder.begin_rollout()
        assert recorder.is_recording == (rollout == 1)
        if recorder.is_recording:
            recorder.step(now[0] + 1, now[0] + 2, now[0] + 4, now[0] + 5, now[0] + 9)
        now[0] += 10
        recorder.end_rollout()
    assert recorder.is_complete
    assert not recorder.is_recording
    found = {event["name"]: (event["ts"], event["dur"]) for event in traces[0].events if event["ph"] == "X"}
    assert found.pop("rollout") == (0.0, 1e7)
    steps = {"policy": (1e6, 1e6), "env_step": (2e6, 2e6), "write": (4e6, 1e6), "env_reset": (5e6, 4e6)}
    assert found == steps
    assert traces[0].events[1]["args"] == {"worker_idx": 7, "rollout": 1}


def test_a_rollout_that_failed_leaves_no_events(tmp_path):
    # CX1: it is not handed out, and the next one takes its number.
    path, calls = tmp_path / "trace.json", []

    def policy(observation):
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("once")
        return act(observation)

    with build(hr.Collector, policy) as collector:
        collector.enable_profile(num_rollouts=2, save_path=path, **QUICK)
        collector.next()
        with pytest.raises(RuntimeError, match="once"):
            collector.next()
        collector.next()
    events = complete_events(path)
    assert len(named(events, "policy")) == 4
    assert len(named(events, "rollout")) == 1


def test_steps_with_waiting_environments_are_events(tmp_path):
    # CR7, CH3: both environments end after three of four steps.
    with build(hr.Collector, reset_when_done=False, reset_at_each_iter=True) as collector:
        collector.enable_profile(num_rollouts=2, save_path=tmp_path / "t.json", **QUICK)
        collector.next()
        collector.next()
    events = complete_events(tmp_path / "t.json")
    assert [len(named(events, name)) for name in ("policy", "env_step", "rollout")] == [3, 3, 1]


@pytest.mark.parametrize("sync", [True, False])
def test_several_workers_have_a_trace_each(sync, tmp_path):
    # CH2
    with hr.MultiCollector(
        partial(CounterEnv, 3), act, num_workers=3, sync=sync, frames_per_batch=12, num_envs=2
    ) as collector:
        collector.enable_profile(
            workers=[0, 2], num_rollouts=3, save_path=tmp_path / "profile_{worker_idx}.json", **QUICK
        )
        while collector.profile_config is not None:
            collector.next(timeout=40)
        for worker_idx in (0, 2):
            events = complete_events(tmp_path / f"profile_{worker_idx}.json")
            assert {event["args"]["worker_idx"] for event in events} == {worker_idx}
            assert {event["pid"] for event in events} == {collector.statistics().workers[worker_idx].pid}
            assert [event["args"]["rollout"] for event in named(events, "rollout")] == [1, 2]
            assert len(named(events, "policy")) == 2 * (2 if sync else 6)
    assert len(list(tmp_path.iterdir())) == 2


def test_new_weights_are_events(tmp_path):
    policy = hr.FunctionalPolicy(lambda params, observation: act(observation), {"w": np.zeros(3)})
    for kind in (hr.Collector, hr.AsyncCollector):
        with build(kind, policy) as collector:
            collector.enable_profile(num_rollouts=8, save_path=tmp_path / "trace.json", **QUICK)
            for _ in range(8):
                collector.next(timeout=40)
                collector.update_policy_weights_(weights={"w": np.ones(3)})
        events = complete_events(tmp_path / "trace.json")
        assert named(events, "weights"), kind
        assert named(events, "weights")[0]["args"]["rollout"] in range(1, 8)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_the_callback_takes_the_trace_where_it_is_collected(kind, tmp_path):
    # CH4.
    def export(trace):
        trace.export(tmp_path / "from_callback.json")

    with build(kind) as collector:
        collector.enable_profile(num_rollouts=2, on_trace_ready=export, **QUICK)
        collector.next(timeout=40)
        collector.next(timeout=40)
        (pid,) = {event["pid"] for event in complete_events(tmp_path / "from_callback.json")}
        workers = collector.statistics().workers
        assert not workers or pid == workers[0].pid
    assert [each.name for each in tmp_path.iterdir()] == ["from_callback.json"]


def test_a_callback_that_raises_is_an_error_of_the_collection():
    def broken(trace):
        raise ZeroDivisionError("no trace today")

    with build(hr.Collector) as collector:
        collector.enable_profile(num_rollouts=2, on_trace_ready=broken, **QUICK)
        collector.next()
        with pytest.raises(ZeroDivisionError):
            collector.next()
        assert collector.profile_config is None
        collector.next()


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_disable_discards(kind, tmp_path):
    # CH4: before collection, in the middle, when off, and after the end.
    with build(kind) as collector:
        collector.disable_profile()
        collector.enable_profile(save_path=tmp_path / "one.json", **QUICK)
        collector.disable_profile()
        assert collector.profile_config is None
        collector.enable_profile(save_path=tmp_path / "two.json", num_rollouts=50)
        for _ in range(3):
            collector.next(timeout=40)
        collector.disable_profile()
        assert collector.profile_config is None
        for _ in range(50):
            collector.next(timeout=40)
    collector.disable_profile()
    assert not list(tmp_path.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-stacks"]


def test_stacks_and_memory_without_torch(tmp_path):
    # CH3.
    def policy(observation):
        marked = np.zeros(1 << 20, np.uint8)
        deadline = threading.Event()
        for _ in range(3):
            deadline.wait(0.004)
        return act(observation) + marked[0]

    with build(hr.Collector, policy) as collector:
        collector.enable_profile(num_rollouts=2, save_path=tmp_path / "t.json", profile_memory=True)
        collector.next()
        collector.next()
    trace = json.loads((tmp_path / "t.json").read_text())
    (rollout,) = named(complete_events(tmp_path / "t.json"), "rollout")
    assert rollout["args"]["peak_bytes"] >= 1 << 20
    samples = [event for event in trace["traceEvents"] if event["ph"] == "P"]
    frames = trace["stackFrames"]
    stacks = []
    for sample in samples:
        frame, stack = frames[sample["sf"]], []
        while frame is not None:
            stack.append(frame["name"])
            frame = frames.get(frame.get("parent"))
        stacks.append(stack)
    assert any("policy" in name for stack in stacks for name in stack)
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-stacks"]


def test_operations_are_only_torch_s():
    with build(hr.Collector) as collector:
        with pytest.warns(UserWarning, match="with_flops"):
            collector.enable_profile(with_flops=True, on_trace_ready=print)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_events_of_torch_are_merged(kind, tmp_path):
    # CH3: on the same time line, inside the policy's events.
    with build(kind, Net()) as collector:
        collector.enable_profile(num_rollouts=2, save_path=tmp_path / "t.json", activities=["cpu"])
        for _ in range(2):
            collector.next(timeout=60)
    trace = json.loads((tmp_path / "t.json").read_text())
    ours = complete_events(tmp_path / "t.json")
    check_steps = named(ours, "policy")
    assert len(check_steps) == 4
    linear = [event for event in trace["traceEvents"] if event["name"] == "aten::linear"]
    assert len(linear) == 4
    for event, step in zip(linear, check_steps, strict=True):
        assert (event["pid"], event["tid"]) == (step["pid"], step["tid"])
        # Clocks of two libraries: equal to a millisecond.
        assert step["ts"] - 1000 <= event["ts"] <= step["ts"] + step["dur"] + 1000
        assert event["args"]["Input Dims"]
    assert "shapes" not in check_steps[0]["args"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_rollouts": 1}, ValueError, "warmup_rollouts=1"),
        ({"num_rollouts": 0, "warmup_rollouts": 0}, ValueError, "num_rollouts"),
        ({"warmup_rollouts": -1}, ValueError, "warmup_rollouts"),
        ({"num_rollouts": 2.0}, ValueError, "num_rollouts"),
        ({"activities": ["gpu"]}, ValueError, "'gpu'"),
        ({"with_stack": 1}, TypeError, "with_stack"),
        ({"activities": "cpu"}, TypeError, "activities: expected a list, got 'cpu'"),
        ({"activities": 3}, TypeError, "activities: expected a list, got 3"),
        ({"save_path": 3}, TypeError, "save_path: expected a path, got 3"),
        ({"on_trace_ready": 3}, TypeError, "on_trace_ready"),
        ({"save_path": "/there/is/no/such/folder.json"}, FileNotFoundError, "no folder"),
    ],
)
def test_wrong_settings(options, error, text):
    with build(hr.Collector) as collector:
        with pytest.raises(error, match=text):
            collector.enable_profile(**options)
        assert collector.profile_config is None


def test_workers():
    # CH2: ignored inline; else they must exist.
    with build(hr.Collector) as collector:
        collector.enable_profile(workers=[5], **QUICK)
        assert collector.profile_config.workers == (0,)
    with build(hr.AsyncCollector) as collector:
        for workers in ([1], [-1], [], ["0"]):
            with pytest.raises(ValueError, match="workers"):
                collector.enable_profile(workers=workers)
        with pytest.raises(TypeError, match="workers: expected a list of numbers of workers, got 0"):
            collector.enable_profile(workers=0)
    with pytest.raises(ValueError, match="save_path"):
        hr.collectors.ProfileConfig(workers=[0, 1], save_path="one.json")


def test_a_trace_that_cannot_be_written_costs_no_rollout(tmp_path, caplog):
    with build(hr.Collector) as collector:
        (tmp_path / "t.json").mkdir()
        collector.enable_profile(num_rollouts=2, save_path=tmp_path / "t.json", **QUICK)
        collector.next()
        assert collector.next() is not None
    assert "could not be written" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["t.json"]
