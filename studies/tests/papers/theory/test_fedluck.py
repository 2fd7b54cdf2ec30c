import math

import numpy as np
import pytest

from offbeat_studies.papers.theory.fedluck import run_fedluck, top_k


def test_fedluck_runs_as_algorithm_1(exact, rng):
    periods, models, starts = (1, 2, 3), [exact.start], [exact.start] * 3
    longest = 0.0
    for t in range(10):
        longest = max(longest, *(((exact.curvature * (models[-1] - c)) ** 2).sum() for c in exact.centres))
        arrived = [i for i in range(3) if (t + 1) % periods[i] == 0]
        updates = []
        for i in arrived:
            local = starts[i]
            for _ in range(2):
                gradient = exact.curvature * (local - exact.centres[i])
                longest = max(longest, (gradient**2).sum())
                local = local - 0.4 * gradient
            update = starts[i] - local
            update[np.abs(update).argmin()] = 0
            updates.append(update)
        models.append(models[-1] - 0.5 * np.mean(updates, axis=0))
        for i in arrived:
            starts[i] = models[-1]
    wanted = np.mean([((exact.curvature * (x - exact.centres.mean(0))) ** 2).sum() for x in models[:10]])
    run = run_fedluck(exact, rng, 1, periods, lr=0.4, steps=2, compression=0.5, rounds=10, server_lr=0.5)
    assert run.gradient_square == pytest.approx([wanted])
    assert run.gradient_bound == pytest.approx(math.sqrt(longest))


def test_top_k_keeps_the_largest_and_rounds_up():
    vectors = np.array([[3.0, -4.0, 1.0, 2.0]])
    assert top_k(vectors, 0.01).tolist() == [[0, -4, 0, 0]]
    assert top_k(vectors, 0.3).tolist() == [[3, -4, 0, 0]]
    assert top_k(vectors, 0.75).tolist() == [[3, -4, 0, 2]]
    assert top_k(vectors, 1.0).tolist() == vectors.tolist()
