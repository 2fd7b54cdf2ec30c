import torch

from offbeat.algorithms.components import ClientMeans, RunFacts


def started():
    buffer = ClientMeans()
    buffer.start(RunFacts(1, 2))
    return buffer


def test_a_release_is_due_only_for_a_full_table_and_awaited_clients(upload):
    buffer, counts = started(), []
    for client in (0, 0, 1, 1, 0, 1, 0):
        buffer.add(upload(client, 0, 1.0), 0.5)
        counts.append(buffer.count)
        if buffer.count:
            buffer.release(0)
    assert counts == [0, 0, 3, 0, 2, 0, 2]


def test_a_sum_that_is_read_late_lacks_later_updates(upload, deferred):
    buffer = started()
    for client, value in ((0, 2.0), (1, 4.0)):
        buffer.add(upload(client, 0, value)._replace(vector=deferred(torch.tensor([value]))), 0.5)
    first = buffer.release(0)
    buffer.add(upload(1, 1, 100.0), 0.5)  # in the next round
    buffer.add(upload(0, 0, 8.0), 0.5)
    second = buffer.release(1)
    assert first.total().tolist() == [3]
    assert second.total().tolist() == [4.5]  # (5 + 4)/2
