"""The recorder of a profile: a step costs one entry, and its events are made with the trace."""

from headrace.collectors.profiling.config import ACTIVITIES, ProfileConfig
from headrace.collectors.profiling.recorder import TraceRecorder


def test_ch3_events_are_in_their_order_and_those_of_a_dropped_rollout_are_gone():
    traces = []
    config = ProfileConfig(
        workers=(0,),
        num_rollouts=2,
        warmup_rollouts=0,
        save_path=None,
        activities=ACTIVITIES,
        record_shapes=True,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        on_trace_ready=traces.append,
    )
    moments = iter([0.0, 0.0, 0.0, 90.0, 90.0, 200.0])
    recorder = TraceRecorder(config, 3, lambda: next(moments), {"action": [2]}, with_torch=False)
    recorder.begin_rollout()  # It fails: its events are dropped.
    recorder.span("weights", 1.0, 2.0)
    recorder.step(1.0, 3.0, 5.0, 6.0, 6.0)
    recorder.begin_rollout()
    recorder.step(10.0, 12.0, 15.0, 16.0, 19.0)
    recorder.span("weights", 21.0, 22.0)
    recorder.step(20.0, 23.0, 25.0, 26.0, 26.0)
    recorder.end_rollout()
    recorder.begin_rollout()
    recorder.step(100.0, 101.0, 102.0, 103.0, 103.0)
    recorder.end_rollout()
    events = [event for event in traces[0].events if event["ph"] == "X"]
    found = [
        (event["name"], event["ts"] / 1e6, event["dur"] / 1e6, event["args"]["rollout"]) for event in events
    ]
    assert found == [
        ("rollout", 0, 90, 0),
        ("policy", 10, 2, 0),
        ("env_step", 12, 3, 0),
        ("write", 15, 1, 0),
        ("env_reset", 16, 3, 0),
        ("policy", 20, 3, 0),
        ("weights", 21, 1, 0),
        ("env_step", 23, 2, 0),
        ("write", 25, 1, 0),
        ("rollout", 90, 110, 1),
        ("policy", 100, 1, 1),
        ("env_step", 101, 1, 1),
        ("write", 102, 1, 1),
    ]
    shapes = [event["name"] for event in events if "shapes" in event["args"]]
    assert shapes == ["policy", "env_step"] * 3
    assert all(event["args"]["worker_idx"] == 3 for event in events)
