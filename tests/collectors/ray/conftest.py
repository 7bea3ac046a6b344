"""One cluster for the tests of a session, of a head and of nodes for the workers."""

import sys

import cloudpickle
import pytest

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ray = pytest.importorskip("ray")

STORE = 100 * 2**20


@pytest.fixture(scope="session")
def cluster():
    """A head without room for workers, and one node for two of them, which says that it has a GPU."""
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": STORE, "include_dashboard": False}
    # A node that is gone is noticed in seconds; one of a busy machine may answer late.
    checks = {
        "health_check_period_ms": 1000,
        "health_check_timeout_ms": 2000,
        "health_check_failure_threshold": 5,
    }
    head = {"num_cpus": 0, "_system_config": checks, **options}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=2, num_gpus=1, resources={"place": 1}, **options)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()
