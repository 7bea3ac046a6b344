"""Networks for vectors and for frames."""

import torch

from headrace.cli.dqn.network import NetworkShape, build


def test_frames_are_scaled_bytes():
    torch.manual_seed(0)
    network = build(NetworkShape((4, 84, 84), num_actions=6, hidden_units=16))
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    values = network(frames)
    assert values.shape == (2, 6)
    # The same numbers as floats give the same values: nothing wraps round at 255.
    torch.testing.assert_close(network(frames.float()), values)
    assert values.abs().max() < 10


def test_the_smallest_frames():
    assert build(NetworkShape((1, 36, 36), num_actions=2, hidden_units=8))(
        torch.zeros(3, 1, 36, 36)
    ).shape == (3, 2)
