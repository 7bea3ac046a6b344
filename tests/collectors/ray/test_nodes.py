"""Nodes of a cluster that are lost, and resources that it lacks."""

import sys
import time

import cloudpickle
import pytest

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.timeout(180)

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


class GpuEnv(CounterEnv):
    """An environment that knows the GPUs of its actor."""

    @property
    def gpus(self):
        import ray

        return [str(gpu) for gpu in ray.get_gpu_ids()]


def until(there, seconds):
    """Waits for something that the cluster does."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def is_gone(node):
    """Whether the cluster knows that a node is removed or lost: before, it would place the next actor there."""
    import ray

    return [each["Alive"] for each in ray.nodes() if each["NodeID"] == node.node_id] == [False]


def test_a_lost_node_costs_its_worker_alone_until_there_is_another_node(cluster):
    # CY3: noticed (within 10 s, but on a busy machine); collection goes on with the others; the worker waits for
    # resources, uncounted.
    lost = cluster.add_node(resources={"place": 1}, **NODE)
    options = {"num_cpus": 0, "resources": {"place": 1}}
    with hr.MultiCollector(
        [lambda: CounterEnv(4)] * 2,
        sync=False,
        frames_per_batch=8,
        max_restarts=1,
        start_timeout=40.0,
        backend="ray",
        backend_options=options,
    ) as collector:
        until(lambda: len({collector.next(timeout=40).worker_idx for _ in range(4)}) == 2, 40)
        cluster.remove_node(lost, allow_graceful=False)
        until(lambda: collector.statistics().restarts >= 1, 40)
        for _ in range(4):  # Complete rollouts of the lost one may be among the first.
            collector.next(timeout=40)
        assert len({collector.next(timeout=40).worker_idx for _ in range(5)}) == 1
        place = cluster.add_node(resources={"place": 1}, **NODE)
        until(lambda: 0 not in [worker.pid for worker in collector.statistics().workers], 60)
        until(lambda: len({collector.next(timeout=40).worker_idx for _ in range(4)}) == 2, 40)
    cluster.remove_node(place)
    until(lambda: is_gone(lost) and is_gone(place), 60)


def test_a_cluster_without_the_resources_is_named_by_the_constructor(cluster):
    # CX4, CY1
    with pytest.raises(hr.DeadlineExceeded, match="without a place"):
        hr.MultiCollector(
            lambda: CounterEnv(4),
            sync=True,
            frames_per_batch=8,
            start_timeout=1.0,
            backend="ray",
            backend_options={"resources": {"unknown": 1}},
        )


def test_shutdown_ends_the_actors_and_leaves_the_cluster(cluster):
    # CY5; CY1: each actor has the share of a GPU that was asked for.
    import ray

    @ray.remote(num_cpus=0)
    class Own:
        def alive(self):
            return True

    own = Own.remote()
    options = {"num_cpus": 1, "num_gpus": 0.5}
    with hr.MultiCollector(
        [lambda: GpuEnv(4)] * 2, sync=True, frames_per_batch=8, backend="ray", backend_options=options
    ) as collector:
        collector.next(timeout=40)
        pid = collector.statistics().workers[0].pid
        assert collector.get_distant_attr("env.unwrapped.gpus") == [["0"], ["0"]]
        until(lambda: not ray.available_resources().get("GPU", 0), 40)
    assert ray.is_initialized()
    assert ray.get(own.alive.remote())
    until(
        lambda: ray.available_resources().get("CPU", 0) >= 2 and ray.available_resources().get("GPU", 0) == 1,
        40,
    )
    assert pid
