"""V-trace with bounded lag on the machines of a Ray cluster: `impala_vtrace.py`, whose workers are actors.

Each actor sends its rollouts to the learner as raw bytes, and fetches new weights from Ray's object store while it
steps. No row is further behind the learner than MAX_STALENESS updates. An actor that dies is started again wherever
there are resources.

    pip install "headrace[torch,ray]"
    python examples/impala_ray.py --batches 1200

Without `--address` it uses the cluster of this machine, or starts one that ends with it.
"""

from __future__ import annotations

import argparse

import cloudpickle
import impala_vtrace
import torch

import headrace as hr


def main(
    batches: int = 1200, workers: int = impala_vtrace.WORKERS, seed: int = 0, address: str | None = None
) -> hr.collectors.CollectorStatistics:
    """Learns from each batch once; returns the collector's counters."""
    # The actors' machines need not have this folder: its classes travel with the policy.
    cloudpickle.register_pickle_by_value(impala_vtrace)
    options = {"num_cpus": 1, "scheduling": "spread", "address": address}
    return impala_vtrace.main(batches, workers, seed, backend="ray", backend_options=options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1200, help="rollouts of 320 frames (default: 1200)")
    parser.add_argument("--workers", type=int, default=impala_vtrace.WORKERS, help="actors (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--address", help="of the cluster (default: the one of this machine)")
    torch.set_num_threads(1)  # The networks are small, and the workers need the cores.
    print(f"the last 100 episodes returned {main(**vars(parser.parse_args())).episode_return_mean:.0f}")
