"""The parts of a rate limiter that shards hold, and the weights that they tell."""

import math

import pytest

import headrace as hr
from headrace.tables.description.rate_limiters import (
    CustomRateLimiter,
    MinSize,
    Queue,
    RateLimiter,
    SampleToInsertRatio,
    Stack,
)


@pytest.mark.parametrize(
    ("limiter", "parts", "share"),
    [
        (MinSize(10), 4, MinSize(3)),
        (Queue(10), 4, Queue(3)),
        (Stack(1), 2, Stack(1)),
        (SampleToInsertRatio(2, 100, 40), 4, SampleToInsertRatio(2, 25, 10)),
        (SampleToInsertRatio(0.5, 3, (-4.0, 40.0)), 2, SampleToInsertRatio(0.5, 2, (-2.0, 20.0))),
        (RateLimiter(1.0, 8, -math.inf, 6.0), 2, RateLimiter(1.0, 4, -math.inf, 3.0)),
    ],
)
def test_shards_hold_their_part_of_the_numbers(limiter, parts, share):
    # CY4: at 1/num_shards of the counts; counts are rounded up.
    assert limiter.share(parts) == share
    assert type(limiter.share(parts)) is type(share)


def test_a_limiter_that_cannot_be_divided_says_so():
    class Mine(CustomRateLimiter):
        def allows_insert(self, inserts, samples, deletes, n):
            return True

        def allows_sample(self, inserts, samples, deletes, n):
            return True

    with pytest.raises(ValueError, match="error_buffer"):
        SampleToInsertRatio(2, 100, 4).share(4)
    with pytest.raises(ValueError, match="share"):
        Mine().share(2)
    assert Mine().share(1) == Mine()


@pytest.mark.parametrize(
    ("sampler", "weight"),
    [
        (hr.selectors.Uniform(), 3.0),
        (hr.selectors.Prioritized(0.5), 6.0),
        (hr.selectors.Fifo(), None),
        (hr.selectors.MaxHeap(), None),
    ],
)
def test_a_table_tells_the_sum_of_its_weights(sampler, weight):
    table = hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        assert replay.table("t").statistics().total_weight == (None if weight is None else 0.0)
        with replay.writer() as writer:
            writer.append({"x": 0})
            for priority in (1.0, 4.0, 9.0):
                writer.create_item("t", 1, priority)
        assert replay.table("t").statistics().total_weight == weight
