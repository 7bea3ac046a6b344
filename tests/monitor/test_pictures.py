"""PNG files and images among columns."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.monitor.pictures import as_picture, is_image
from headrace.monitor.png import encode_png

Image = pytest.importorskip("PIL.Image")


@given(
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    colour=st.booleans(),
    seed=st.integers(0, 100),
)
def test_a_png_is_read_back_as_the_same_image(height, width, colour, seed):
    shape = (height, width, 3) if colour else (height, width)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    read = Image.open(io.BytesIO(encode_png(image)))
    np.testing.assert_array_equal(np.asarray(read), image)


@pytest.mark.parametrize(
    "image",
    [np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2), np.uint8), np.zeros(4, np.uint8)],
)
def test_other_arrays_are_refused(image):
    with pytest.raises(ValueError, match=r"expected uint8\[H, W\]"):
        encode_png(image)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((84, 84), True), ((84, 84, 1), True), ((3, 84, 84), True), ((4, 84, 84), True), ((84, 84, 4), True),
     ((5, 84, 84), False), ((7, 84), False), ((84,), False), ((), False), ((2, 3, 84, 84), False)],
)  # fmt: skip
def test_shapes_of_images(shape, expected):
    assert is_image(shape, np.uint8) is expected
    assert not is_image(shape, np.float32)
    if expected:
        assert as_picture(np.zeros(shape, np.uint8)).shape in ((84, 84), (84, 84, 3))
