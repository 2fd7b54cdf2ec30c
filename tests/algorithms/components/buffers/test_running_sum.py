import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components import RunFacts
from offbeat.algorithms.components.buffers.running_sum import RunningSum


def test_an_empty_sum_is_zero():
    total = RunningSum(RunFacts(3, 1)).total()
    assert total.tolist() == [0, 0, 0]
    assert total.dtype == torch.float32


def test_weighted_sum_by_hand(vector):
    running = RunningSum(RunFacts(2, 1))
    running.add(vector(1, 2), 1.0)
    running.add(vector(-2, 4), 0.5)
    running.add(vector(1, 0), 3.0)
    assert running.total().tolist() == [3, 4]


def test_vectors_are_left_alone_and_not_kept(vector):
    running, added = RunningSum(RunFacts(2, 1)), vector(1, 2)
    running.add(added, 2.0)
    running.total()
    assert added.tolist() == [1, 2]
    added.zero_()
    assert running.total().tolist() == [2, 4]


@pytest.mark.parametrize("promised_first", [False, True])
@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_a_wrong_shape_changes_nothing(wrong, promised_first, deferred, vector):
    running = RunningSum(RunFacts(2, 1))
    running.add(deferred(vector(1, 2)) if promised_first else vector(1, 2), 1.0)
    with pytest.raises(ValueError, match="shape"):
        running.add(wrong, 1.0)
    assert running.total().tolist() == [1, 2]


def test_a_promise_waits_until_the_sum_is_read_and_is_resolved_once(deferred, vector):
    running, promise = RunningSum(RunFacts(2, 1)), deferred(vector(1, 2))
    running.add(promise, 2.0)
    running.add(vector(1, 1), 1.0)
    assert promise.resolved == 0
    assert running.total().tolist() == [3, 5]
    assert running.total().tolist() == [3, 5]
    assert promise.resolved == 1


def test_a_failed_promise_is_resolved_again_and_earlier_vectors_count_once(vector):
    class Failing:
        broken = True

        def resolve(self):
            if self.broken:
                raise RuntimeError("no power")
            return torch.tensor([1.0, 1.0])

    running, failing = RunningSum(RunFacts(2, 1)), Failing()
    running.add(vector(1, 2), 1.0)
    running.add(failing, 10.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            running.total()
    failing.broken = False
    assert running.total().tolist() == [11, 12]


FLOATS = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.tuples(FLOATS, FLOATS, st.floats(0, 100), st.booleans()), max_size=12), st.integers(0, 12))
def test_promises_and_saves_change_no_bit(deferred, items, saved_after):
    plain, mixed = RunningSum(RunFacts(2, 1)), RunningSum(RunFacts(2, 1))
    reference = np.zeros(2)
    for number, (first, second, weight, promised) in enumerate(items):
        added = torch.tensor([first, second], dtype=torch.float32)
        plain.add(added, weight)
        mixed.add(deferred(added) if promised else added, weight)
        reference += weight * np.array([first, second])
        if number == saved_after:
            state, mixed = mixed.state_dict(), RunningSum(RunFacts(2, 1))
            mixed.load_state_dict(state)
    assert plain.total().numpy().tobytes() == mixed.total().numpy().tobytes()
    scale = 1 + sum(100 * max(abs(first), abs(second)) for first, second, _, _ in items)
    np.testing.assert_allclose(plain.total().numpy(), reference, atol=1e-6 * scale)


def test_loading_forgets_what_was_waiting(deferred, vector):
    running, promise = RunningSum(RunFacts(1, 1)), deferred(vector(7))
    running.add(promise, 1.0)
    running.load_state_dict({"sum": vector(2)})
    assert running.total().item() == 2
    assert promise.resolved == 0
