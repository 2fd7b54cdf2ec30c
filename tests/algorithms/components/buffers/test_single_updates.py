import pytest
import torch

from offbeat.algorithms import Update
from offbeat.algorithms.components import Each, RunFacts, Weight


def started():
    buffer = Each()
    buffer.start(RunFacts(2, 9))
    return buffer


def test_every_update_is_kept_by_itself(upload):
    buffer = started()
    first, second = upload(3, 0, 1, 2, examples=7), upload(1, 1, -2, 4)
    buffer.add(first, 2.0)
    buffer.add(second, Weight(0.5))
    assert (buffer.count, buffer.linear) == (2, False)
    closed = buffer.release(4)
    assert (closed.version, closed.count, buffer.count) == (4, 2, 0)
    assert [(entry.update.client, entry.weight) for entry in closed.entries] == [(3, 2.0), (1, 0.5)]
    assert [entry.vector.tolist() for entry in closed.entries] == [[1, 2], [-2, 4]]
    assert closed.total().tolist() == [1, 6]
    assert buffer.release(5).entries == []


def test_no_autograd_graph_is_kept(vector):
    buffer = started()
    graph = vector(1, 2).requires_grad_()
    buffer.add(Update(0, 0, graph, 1, 1, 1.0, base=graph), 1.0)
    state = buffer.state_dict()
    assert not state["vectors"].requires_grad
    assert not state["bases"].requires_grad
    (entry,) = buffer.release(0).entries
    assert not entry.vector.requires_grad
    assert not entry.base.requires_grad


@pytest.mark.parametrize("base", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_a_base_of_the_wrong_shape_changes_nothing(base, upload, same_state):
    buffer = started()
    buffer.add(upload(0, 0, 1, 2), 1.0)
    before = buffer.state_dict()
    with pytest.raises(ValueError, match="must be float32 of shape"):
        buffer.add(upload(1, 0, 1, 2)._replace(base=base), 1.0)
    assert same_state(buffer.state_dict(), before)


@pytest.mark.parametrize("has_base", [True, False])
def test_updates_are_saved_with_their_vectors_bases_and_counts(has_base, vector, deferred, same_state):
    buffer, loaded = started(), started()
    base = vector(5, 6) if has_base else None
    buffer.add(Update(3, 1, vector(1, 2), 7, 4, 2.5, base), 0.5)
    buffer.add(Update(0, 2, deferred(vector(3, 4)), 9, 0, 0.0, base), 1.5)
    loaded.load_state_dict(buffer.state_dict())
    assert same_state(loaded.state_dict(), buffer.state_dict())
    assert loaded.count == 2
    for entry, weight in zip(loaded.release(2).entries, (0.5, 1.5), strict=True):
        update, first = entry.update, weight == 0.5
        assert (update.client, update.version, update.examples) == ((3, 1, 7) if first else (0, 2, 9))
        assert (update.steps, update.normaliser, entry.weight) == ((4, 2.5, 0.5) if first else (0, 0.0, 1.5))
        assert entry.vector.tolist() == ([1, 2] if first else [3, 4])
        assert (update.base is None) is not has_base
