"""The number of lanes of a writer."""

from __future__ import annotations

from headrace.checks import check_count
from headrace.spec import Signature
from headrace.system import machine_nbytes

# About what a lane takes beside its steps.
_LANE_NBYTES = 1 << 8


def checked_lanes(lanes: int, signature: Signature) -> int:
    """Returns a number of lanes that the machine can hold, each with one step.

    Raises:
        TypeError, ValueError: it is not one.
    """
    lanes = check_count("lanes", lanes, 1)
    machine = machine_nbytes()
    if lanes * (signature.nbytes + _LANE_NBYTES) > machine:
        raise ValueError(
            f"lanes: expected lanes that fit into the {machine} bytes of this machine, got {lanes} with steps of "
            f"{signature.nbytes} bytes"
        )
    return lanes
