"""Messages between a collector and its worker, beside those of the lease protocol (`headrace.leases.messages`).

They travel on one connection: one message for each rollout or page, none for a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.times import LoopSeconds
from headrace.leases.messages import LeaseMessage, Message
from headrace.leases.place import RowsPlace
from headrace.spec import Signature

if TYPE_CHECKING:
    from headrace.store.store import Store


class Start(Message):
    """Collector to worker: begin. The payload is cloudpickle of `loop.task.Task`.

    The descriptor of a `LastStep` comes along.

    Attributes:
        worker_idx: the worker's number.
        seed: of the collector; None leaves environments and generators unseeded.
        restarts: how often the worker was started before; each time the seeds are of another stream.
    """

    worker_idx: int
    seed: int | None
    restarts: int = 0


class Ready(Message):
    """Worker to collector: environments and policy are built.

    Attributes:
        signature: of one step, as JSON.
        observed: names of the columns that an observation has.
        num_envs, steps: n and T.
        models: cloudpickle of the models whose weights can be replaced, `{id: ModelWeights}`.
        autoreset: the mode of the environments.
        lanes_may_wait: whether a step may leave some of them out.
        reset_together: see `CollectingLoop`.
        views: cloudpickle of the views of collector and policy.
        acts_ahead: whether environments act for rows of the next rollout before it is begun.
        marks_late: whether rows of a rollout are marked when it is complete.
    """

    signature: dict[str, Any]
    observed: list[str]
    num_envs: int
    steps: int
    models: bytes
    autoreset: str
    lanes_may_wait: bool
    reset_together: int
    views: bytes
    acts_ahead: bool
    marks_late: bool


class MoreColumns(Message):
    """Worker to collector: the policy has acted for the first time, and adds columns.

    Attributes:
        signature: of one step with them, as JSON.
        is_loaded: the worker has loaded a state instead: its episodes go on from that, or begin anew.
    """

    signature: dict[str, Any]
    is_loaded: bool = False


class RowsAt(Message):
    """Collector to worker: rows are written into the arena whose descriptor comes along.

    Attributes:
        writer: the number of the worker as a writer of these rows.
        signature: of one step, as JSON.
        nbytes: of the arena.
        num_pages, page_rows: of the store.
        begins_pages: whether each rollout is the first one of a page: no replay's rows, but the collector's own.
    """

    writer: int
    signature: dict[str, Any]
    nbytes: int
    num_pages: int
    page_rows: int
    begins_pages: bool

    @classmethod
    def of(cls, store: Store, writer: int, *, begins_pages: bool) -> RowsAt:
        """Returns the message for a writer of a store."""
        place = RowsPlace.of(store)
        return cls(
            writer=writer,
            signature=place.signature.to_json(),
            nbytes=place.nbytes,
            num_pages=place.num_pages,
            page_rows=place.page_rows,
            begins_pages=begins_pages,
        )

    @property
    def place(self) -> RowsPlace:
        """The place of the rows in the arena."""
        return RowsPlace(
            signature=Signature.from_json(self.signature),
            nbytes=self.nbytes,
            num_pages=self.num_pages,
            page_rows=self.page_rows,
        )


class NotStored(Message):
    """Worker to collector: the policy adds columns that the replay lacks.

    Attributes:
        names: of these columns.
    """

    names: list[str]


class Failed(Message):
    """Worker to collector: an exception ends it. The payload is cloudpickle of the exception, or empty.

    Attributes:
        summary: its type and text.
        text: its traceback.
    """

    summary: str
    text: str


class Progress(Message):
    """Worker to collector: describes the steps of the last commit.

    Attributes:
        counts: of these steps.
        closes_rollout: T steps are complete.
        resets: number of messages `Seed` and `Reset` that were processed before.
        all_wait: every environment has ended and waits for a reset.
        seconds: spent since the last message of this kind.
        continued: environments whose first one of these steps continues an episode of a loaded state.
    """

    counts: StepCounts
    closes_rollout: bool
    resets: int
    all_wait: bool
    seconds: LoopSeconds
    continued: tuple[int, ...] = ()


class Stepped(Message):
    """Worker without shared memory to collector: a step was taken since the last message of this kind, or it ends.

    Attributes:
        taken: number of transitions since the worker was started.
    """

    taken: int


class RowsHeld(Message):
    """Worker without shared memory to collector: the rows of the next commit are fetched beside this connection.

    Attributes:
        number: by which the worker's process finds them.
    """

    number: int


class Proceed(Message):
    """Collector to worker: one more rollout may be begun.

    Attributes:
        continues: it is the rollout that was under way in the loaded state.
        at_random: whether its actions are random.
        is_needed: a batch needs it, even if every environment waits for a reset.
        updates_each_step: new weights are taken over at each of its steps; False: before its first step only.
    """

    at_random: bool
    is_needed: bool
    updates_each_step: bool
    continues: bool = False


class Preempt(Message):
    """Collector to worker: the next step of the rollout that was asked for last is its last one."""


class WeightsAt(Message):
    """Collector to worker: weights are published in the memory whose descriptor comes along.

    Attributes:
        layout: cloudpickle of the layout of one set.
        address, addresses: of this worker, and their number (`headrace.weights.board`).
    """

    layout: bytes
    address: int
    addresses: int


class WeightsSent(Message):
    """Collector to worker without shared memory: weights are on their way beside this connection.

    Attributes:
        sequence: counts such sets, from 1.
    """

    sequence: int


class Seed(Message):
    """Collector to worker: at the next step reset every environment with these seeds.

    Attributes:
        seeds: one for each environment.
        seed: of the process's global generators.
    """

    seeds: list[int]
    seed: int


class Question(Message):
    """Collector to worker: call a method of the worker's own collector, between two steps.

    The payload is cloudpickle of its path, the arguments and the keyword arguments.

    Attributes:
        number: of the question.
    """

    number: int


class Answer(Message):
    """Worker to collector: the outcome of a question. The payload is cloudpickle of the result.

    Attributes:
        number: of the question.
        failure: the exception of the call, which is the payload then; None: there was none.
    """

    number: int
    failure: Failed | None = None


class Reset(Message):
    """Collector to worker: at the next step reset these environments.

    Attributes:
        envs: their numbers in the worker, rising.
    """

    envs: list[int]


class SetHooks(Message):
    """Collector to worker: from the next rollout on use these hooks.

    The payload is cloudpickle of `pre_collect_hook` and `post_collect_hook`.
    """


class Pause(Message):
    """Collector to worker: stop before the next step, report, and answer `Paused` with the same number."""

    number: int


class Paused(Message):
    """Worker to collector: all steps were reported, and none is taken until `Resume`."""

    number: int


class Resume(Message):
    """Collector to worker: go on."""


class Stop(Message):
    """Collector to worker: send what is complete and end."""

    close_env: bool


AnyMessage: TypeAlias = (
    LeaseMessage
    | Start
    | Ready
    | MoreColumns
    | RowsAt
    | NotStored
    | Failed
    | Progress
    | Stepped
    | RowsHeld
    | Proceed
    | Preempt
    | WeightsAt
    | WeightsSent
    | Seed
    | Reset
    | SetHooks
    | Question
    | Answer
    | Pause
    | Paused
    | Resume
    | Stop
)
