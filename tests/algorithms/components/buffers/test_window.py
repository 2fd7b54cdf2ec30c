import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components import RunFacts, Weight, Window
from offbeat.algorithms.components.buffers.window import WindowSum


def test_an_empty_window_sums_to_zero():
    total = WindowSum(RunFacts(3, 1)).total()
    assert total.tolist() == [0, 0, 0]
    assert total.dtype == torch.float32


def test_a_window_by_hand(vector):
    window = WindowSum(RunFacts(2, 1))
    window.add(vector(1, 2), 1.0)
    window.add(vector(-2, 4), 0.5)
    assert (len(window), window.total().tolist()) == (2, [0, 4])
    window.remove()
    assert (len(window), window.total().tolist()) == (1, [-1, 2])
    window.add(vector(1, 0), 3.0)
    assert (len(window), window.total().tolist()) == (2, [2, 2])
    window.remove()
    assert (len(window), window.total().tolist()) == (1, [3, 0])
    window.remove()
    assert (len(window), window.total().tolist()) == (0, [0, 0])


def test_nothing_can_be_removed_from_an_empty_window(vector):
    window = WindowSum(RunFacts(1, 1))
    for _ in range(2):
        with pytest.raises(IndexError):
            window.remove()
    window.add(vector(1), 1.0)
    window.remove()
    with pytest.raises(IndexError):
        window.remove()


def test_a_total_is_a_copy(vector):
    window = WindowSum(RunFacts(1, 1))
    window.add(vector(1), 1.0)
    totals = [window.total()]
    window.add(vector(2), 1.0)
    totals.append(window.total())
    window.remove()
    totals.append(window.total())
    window.add(vector(4), 1.0)
    assert [total.item() for total in totals] == [1, 3, 2]
    for total in [*totals, window.total()]:
        total.zero_()
    assert window.total().item() == 6


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_a_wrong_shape_changes_nothing(wrong, deferred, vector):
    window = WindowSum(RunFacts(2, 1))
    window.add(vector(1, 2), 1.0)
    with pytest.raises(ValueError, match="shape"):
        window.add(deferred(wrong), 1.0)
    assert (len(window), window.total().tolist()) == (1, [1, 2])


def test_a_promise_is_resolved_once_and_without_its_graph(deferred, vector):
    window, promise = WindowSum(RunFacts(1, 1)), deferred(vector(2).requires_grad_())
    window.add(promise, 3.0)
    window.add(vector(1), 1.0)
    window.remove()
    window.add(promise.vector, 1.0)
    assert promise.resolved == 1
    assert window.total().item() == 3
    assert not window.total().requires_grad


def test_no_drift_after_many_arrivals_of_badly_scaled_values():
    size, arrivals = 7, 20_000
    rng = np.random.default_rng(3)
    values = (rng.standard_normal((arrivals, 3)) * 10 ** rng.uniform(-9, 9, (arrivals, 1))).astype(np.float32)
    window = WindowSum(RunFacts(3, 1))
    for number, value in enumerate(torch.from_numpy(values), start=1):
        if len(window) == size:
            window.remove()
        window.add(value, 1.0)
        if number % 997 == 0 or number == arrivals:
            kept = values[number - size : number].astype(np.float64)
            # What adding up these seven may cost, and nothing of those before: 2⁻²⁴ an addition.
            error = np.abs(window.total().numpy() - kept.sum(axis=0))
            assert (error <= size * 2**-24 * np.abs(kept).sum(axis=0)).all()


FLOATS = st.floats(-1e6, 1e6, width=32)


@given(
    st.lists(st.tuples(FLOATS, FLOATS, st.floats(0, 100), st.booleans(), st.integers(0, 2)), max_size=30),
    st.integers(0, 30),
)
def test_random_additions_and_removals_agree_with_numpy(deferred, items, saved_after):
    plain, saved, reference = WindowSum(RunFacts(2, 1)), WindowSum(RunFacts(2, 1)), []
    for number, (first, second, weight, promised, removals) in enumerate(items):
        added = torch.tensor([first, second], dtype=torch.float32)
        plain.add(deferred(added) if promised else added, weight)
        saved.add(added, weight)
        reference.append(weight * np.array([first, second]))
        for _ in range(min(removals, len(reference))):
            plain.remove()
            saved.remove()
            del reference[0]
        if number == saved_after:
            state, saved = saved.state_dict(), WindowSum(RunFacts(2, 1))
            saved.load_state_dict(state)
        assert len(plain) == len(saved) == len(reference)
        assert plain.total().numpy().tobytes() == saved.total().numpy().tobytes()
        scale = 1 + np.abs(reference).sum() if reference else 1
        np.testing.assert_allclose(plain.total().numpy(), sum(reference, np.zeros(2)), rtol=0, atol=2e-6 * scale)


def test_loading_forgets_what_was_there(vector):
    window, empty = WindowSum(RunFacts(1, 1)), WindowSum(RunFacts(1, 1)).state_dict()
    for value in (1, 2, 4):
        window.add(vector(value), 1.0)
    window.remove()
    window.add(vector(8), 1.0)
    window.load_state_dict(empty)
    assert (len(window), window.total().item()) == (0, 0)


def started(size, every=1, *tallies):
    buffer = Window(size, every, *tallies)
    buffer.start(RunFacts(1, 9))
    return buffer


def test_a_release_is_the_sum_of_the_latest_and_the_window_stays(upload):
    buffer, totals = started(3), []
    for number, entry in enumerate((1, 2, 4, 8, 16)):
        buffer.add(upload(number, 0, entry), 2.0)
        assert buffer.count == 1
        totals.append(buffer.release(number).total().item())
        assert buffer.count == 0
    assert totals == [2, 6, 14, 28, 56]
    assert buffer.release(5).total().item() == 56


def test_the_count_is_of_updates_since_the_last_release(upload):
    buffer = started(4, 2)
    for client in range(3):
        buffer.add(upload(client, 0, 1), 1.0)
    closed = buffer.release(7)
    assert (closed.version, closed.count, closed.total().item()) == (7, 3, 3)
    buffer.add(upload(3, 0, 1), 1.0)
    assert (buffer.release(8).count, buffer.release(9).count) == (1, 0)


def test_tallies_are_those_of_the_window(upload):
    buffer, tallies = started(2, 1, "a"), []
    for number, a in enumerate((1.0, 2.0, 4.0)):
        buffer.add(upload(number, 0, 1), Weight(1 / a, a=a))
        tallies.append(buffer.release(number).tallies)
    assert tallies == [{"a": 1.0}, {"a": 3.0}, {"a": 6.0}]


@pytest.mark.parametrize(("size", "every", "releases"), [(1, 1, 1), (5, 1, 5), (5, 2, 3), (4, 2, 2), (5, 5, 1)])
def test_a_vector_takes_part_in_as_many_releases_as_the_window_is_long(size, every, releases):
    buffer = started(size, every)
    assert (buffer.linear, buffer.releases) == (True, releases)
