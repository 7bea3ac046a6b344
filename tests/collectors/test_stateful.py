"""An inline collector against a plain model: batches, questions, resets, updates and saved states in any order."""

import pickle

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import headrace as hr
from headrace.testing import CounterEnv

COPIES = 3


class Policy:
    """Acts on the step that it sees and on its weight."""

    def __init__(self):
        self.weight = np.zeros((), np.int64)

    def __call__(self, observation):
        return (observation[:, 2] + observation[:, 0] + self.weight) % 4

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = np.array(state["weight"])


class Copy:
    """A plain environment: the number of its episode and of its next step, and the id of its trajectory."""

    def __init__(self, number, length):
        self.number, self.length = number, length
        self.episode, self.step, self.id = -1, 0, None

    def reset(self):
        self.episode, self.step, self.id = self.episode + 1, 0, None

    def take(self, weight):
        action = (self.step + self.number + weight) % 4
        row = {
            "observation": [self.number, self.episode, self.step],
            "action": action,
            "reward": 4 * self.step + action,
            "terminated": self.step + 1 == self.length,
            "truncated": False,
            "next_observation": [self.number, self.episode, self.step + 1],
            "episode_id": self.id,
            "t": self.step,
            "mask": True,
        }
        self.step += 1
        if row["terminated"]:
            self.reset()
        return row


class CollectorMachine(RuleBasedStateMachine):
    """Rules: collectors CB3 to CB5, CQ1 to CQ5, CW1, CV2."""

    @initialize(lengths=st.tuples(*[st.integers(1, 5)] * COPIES), steps=st.integers(1, 7))
    def begin(self, lengths, steps):
        self.lengths, self.steps = lengths, steps
        self.copies = [Copy(number, length) for number, length in enumerate(lengths)]
        self.next_id = self.version = self.weight = self.batches = 0
        self.due, self.begun = np.ones(COPIES, bool), False
        self.saved = None
        self.collector = self.make()

    def make(self):
        made = iter([CounterEnv(length, copy=copy) for copy, length in enumerate(self.lengths)])
        return hr.Collector(
            lambda: next(made), Policy(), frames_per_batch=self.steps * COPIES, num_envs=COPIES
        )

    def teardown(self):
        if hasattr(self, "collector"):
            self.collector.shutdown()

    def reset_due(self):
        for copy, due in zip(self.copies, self.due, strict=True):
            if due:
                copy.reset()
        self.due, self.begun = np.zeros(COPIES, bool), True

    @rule()
    def next_batch(self):
        self.reset_due()
        rows = []
        for _ in range(self.steps):
            for copy in self.copies:
                if copy.id is None:
                    copy.id, self.next_id = self.next_id, self.next_id + 1
            rows.append([copy.take(self.weight) for copy in self.copies])
        batch = self.collector.next()
        self.batches += 1
        for name in rows[0][0]:
            expected = np.array([[rows[t][i][name] for t in range(self.steps)] for i in range(COPIES)])
            np.testing.assert_array_equal(batch[name], expected, err_msg=name)
        assert (batch["policy_version"] == self.version).all()

    @rule()
    def ask(self):
        statistics = self.collector.statistics()
        assert (statistics.batches, statistics.frames) == (self.batches, self.batches * self.steps * COPIES)
        assert self.collector.map_fn("getattr_policy", [("weight",)]) == [self.weight]
        if self.begun:
            first = self.copies[0]
            assert self.collector.get_distant_attr("env.episode") == [first.episode]
            assert self.collector.getattr_env("step_count") == first.step

    @rule(chosen=st.lists(st.booleans(), min_size=COPIES, max_size=COPIES) | st.none())
    def reset(self, chosen):
        self.collector.reset(chosen)
        self.due |= True if chosen is None else np.array(chosen)

    @rule(weight=st.integers(0, 3))
    def update(self, weight):
        self.collector.update_policy_weights_(weights={"weight": np.array(weight)})
        self.weight, self.version = weight, self.version + 1

    @rule()
    def save(self):
        state = self.collector.state_dict()
        if not self.begun:  # The first reset takes place now.
            self.reset_due()
        model = (self.copies, self.next_id, self.version, self.weight, self.batches, self.due)
        self.saved = pickle.dumps((state, model))

    @precondition(lambda self: getattr(self, "saved", None))
    @rule(anew=st.booleans())
    def load(self, anew):
        if anew:
            self.collector.shutdown()
            self.collector = self.make()
        state, model = pickle.loads(self.saved)
        self.collector.load_state_dict(state)
        self.copies, self.next_id, self.version, self.weight, self.batches, self.due = model
        self.begun = True


CollectorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestCollector = CollectorMachine.TestCase
