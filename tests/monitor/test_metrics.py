"""Metrics for Prometheus, read back by its own parser."""

import math
import re
from dataclasses import fields

import pytest

import headrace as hr
from headrace.monitor.recorder import Recorder
from headrace.monitor.sources import EachOne, WholeServer
from headrace.server.statistics import ServerStatistics

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from headrace.collectors import CollectorStatistics, WorkerStatistics  # noqa: E402
from headrace.monitor import metrics  # noqa: E402

SIGNATURE = hr.Signature.like({"x": 0})


class Collector:
    def statistics(self):
        worker = WorkerStatistics(0, 12, True, 70, 3, 1, 5, None, None)
        other = WorkerStatistics(1, 13, False, 30, 1, 0, 4, 2.5, "boom")
        values = dict.fromkeys((field.name for field in fields(CollectorStatistics)), 0)
        return CollectorStatistics(
            **{
                **values,
                "frames": 100,
                "lag_mean": 1.5,
                "episode_return_mean": math.nan,
                "workers": (worker, other),
            }
        )


def scrape(recorder):
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(metrics.Metrics(recorder))
    text = prometheus_client.generate_latest(registry).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }, text


def test_values_and_labels():
    with hr.Replay(SIGNATURE, [hr.Table.queue('q "1"\n', 5)], capacity=100) as replay:
        with replay.writer(items=[hr.ItemRule('q "1"\n', 1)]) as writer:
            for x in range(4):
                writer.append({"x": x})
        replay.sample('q "1"\n', 3)
        recorder = Recorder(EachOne({"main": replay}), Collector())
        recorder.take()
        found, _ = scrape(recorder)
    place = ("main", 'q "1"\n')
    assert found["headrace_replay_up", "main"] == 1
    assert found["headrace_table_items", *place] == 1
    assert found["headrace_table_inserts_total", *place] == 4
    assert found["headrace_table_samples_total", *place] == 3
    assert found["headrace_table_max_difference", *place] == 5
    assert found["headrace_store_capacity_rows", "main"] == 100
    assert found["headrace_collector_frames_total",] == 100
    assert found["headrace_collector_policy_lag_mean",] == 1.5
    assert math.isnan(found["headrace_collector_episode_return_mean",])
    assert found["headrace_worker_alive", "1"] == 0
    assert found["headrace_worker_last_step_age_seconds", "1"] == 2.5
    assert ("headrace_worker_last_step_age_seconds", "0") not in found


def test_names_follow_the_conventions_and_every_metric_has_a_help_text():
    with hr.Replay(SIGNATURE, [hr.Table.queue("q", 5)]) as replay:
        recorder = Recorder(EachOne({"main": replay}), Collector())
        recorder.take()
        _, text = scrape(recorder)
    check_names(text)


def check_names(text):
    for name, kind in re.findall(r"# TYPE (\S+) (\S+)", text):
        assert re.fullmatch(r"headrace_[a-z][a-z_]*", name)
        assert name.endswith("_total") == (kind == "counter"), name
        assert re.search(rf"# HELP {name} [A-Z1].+\.\n", text), name


def test_every_number_of_the_records_is_there_or_is_left_out_on_purpose():
    shown = {each.field for each in metrics._OF_TABLE}
    assert {field.name for field in fields(hr.statistics.TableStatistics)} - shown == {
        "name", "max_times_sampled", "samples_per_insert_so_far", "bytes", "total_weight", "is_distinct",
    }  # fmt: skip
    shown = {each.field for each in metrics._OF_COLLECTOR}
    assert {field.name for field in fields(CollectorStatistics)} - shown == {
        "running", "paused", "failure", "frames_per_second", "lag_histogram", "workers",
    }  # fmt: skip
    shown = {each.field for each in metrics._OF_WORKER}
    assert {field.name for field in fields(WorkerStatistics)} - shown == {
        "worker_idx",
        "pid",
        "rollouts",
        "last_error",
    }

    shown = {each.field for each in metrics._OF_QUEUE}
    assert set(hr.server.BatchQueueInfo.__struct_fields__) == shown
    shown = {each.field for each in metrics._OF_SERVER}
    assert {field.name for field in fields(ServerStatistics)} - shown == {"served", "version"}


def test_checkpoints_of_a_server(tmp_path):
    """Without a directory, and before the first save, there is no age to alarm on."""
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 5)]) as replay:
        for settings, names in (
            ({}, set()),
            ({"checkpoint": tmp_path}, {"checkpoints_total", "failed_checkpoints_total"}),
        ):
            with hr.Server({"r": replay}, **settings) as server:
                recorder = Recorder(WholeServer(server, server.served), Collector())
                recorder.take()
                found, _ = scrape(recorder)
                told = {name.removeprefix("headrace_server_") for name, *_ in found if "checkpoint" in name}
                assert told == names
                if settings:
                    server.checkpoint()
                    recorder.take()
                    found, text = scrape(recorder)
                    assert found["headrace_server_checkpoints_total",] == 1
                    assert found["headrace_server_checkpoint_age_seconds",] >= 0
                    check_names(text)


def test_a_server_with_a_queue():
    with (
        hr.Replay(SIGNATURE, [hr.Table.queue("t", 5)]) as replay,
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"r": replay, "q": queue}) as server,
    ):
        queue.send({"x": 1})
        recorder = Recorder(WholeServer(server, server.served), Collector())
        with hr.Client(server.address):
            recorder.take()
        found, text = scrape(recorder)
        server.stop()
        recorder.take()
        later, _ = scrape(recorder)
    assert found["headrace_replay_up", "r"] == 1
    assert found["headrace_queue_samples", "q"] == 1
    assert found["headrace_queue_samples_received_total", "q"] == 1
    assert found["headrace_server_connections",] == 1
    assert found["headrace_server_received_bytes_total",] > 0
    assert ("headrace_replay_up", "q") not in found | later
    assert later["headrace_replay_up", "r"] == 0
    check_names(text)


def test_a_replay_that_does_not_answer_is_down():
    with hr.Replay(SIGNATURE, [hr.Table.queue("q", 5)]) as replay:
        recorder = Recorder(EachOne({"main": replay}))
    recorder.take()
    found, _ = scrape(recorder)
    assert found == {("headrace_replay_up", "main"): 0}
