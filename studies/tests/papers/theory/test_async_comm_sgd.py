import numpy as np
import pytest

from offbeat_studies.papers.theory.async_comm_sgd import largest_gap, patterns, run_async_comm_sgd


def test_the_four_patterns(rng):
    talks = patterns(rng, rounds=24, clients=6)
    talking = {name: [set(np.flatnonzero(now)) for now in pattern] for name, pattern in talks.items()}
    assert talking["full(4)"][:5] == [set(), set(), set(), {0, 1, 2, 3, 4, 5}, set()]
    assert talking["round_robin(2, 2)"][:8] == [set(), {0, 1}, set(), {2, 3}, set(), {4, 5}, set(), {0, 1}]
    assert talking["imbalanced"][:4] == [{0}, {0, 1}, {0, 2}, {0, 1, 3}]
    assert 0.1 < talks["random(1/4)"].mean() < 0.4
    assert [largest_gap(talks[name]) for name in ("full(4)", "round_robin(2, 2)", "imbalanced")] == [4, 6, 6]


@pytest.mark.parametrize(("rounds", "gap"), [((3,), 5), ((1, 2, 8), 6), ((8,), 8), ((), 8)])
def test_the_start_and_the_end_count_as_communications(rounds, gap):
    talks = np.zeros((8, 1), dtype=bool)
    talks[[r - 1 for r in rounds]] = True
    assert largest_gap(talks) == gap


def test_async_comm_sgd_runs_as_algorithm_1(exact, rng):
    talks = rng.random((12, 3)) < 0.4
    run = run_async_comm_sgd(exact, rng, 1, talks, lambda t: 1 / (t + 3))
    server = virtual = exact.start
    local = [exact.start] * 3
    received = [exact.start] * 3
    for t in range(12):
        assert run.models[t, 0] == pytest.approx(server)
        assert run.virtual[t, 0] == pytest.approx(virtual)
        apart = [((x - virtual) ** 2).sum() for x in (*local, server)]
        assert run.apart[t, :, 0] == pytest.approx(apart)
        gradients = [exact.curvature * (local[i] - exact.centres[i]) for i in range(3)]
        after = [local[i] - gradients[i] / (t + 3) for i in range(3)]
        virtual = virtual - sum(gradients) / 3 / (t + 3)
        server = server + sum((after[i] - received[i] for i in range(3) if talks[t, i]), np.zeros(2)) / 3
        for i in range(3):
            local[i] = server if talks[t, i] else after[i]
            received[i] = server if talks[t, i] else received[i]
