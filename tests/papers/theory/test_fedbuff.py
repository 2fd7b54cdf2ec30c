import numpy as np
import pytest

from papers.theory.fedbuff import run_fedbuff


def test_fedbuff_with_unequal_arrivals_converges_to_a_wrong_point(rows):
    (biased,) = [line for line in rows if line.claim.startswith("FedBuff") and not line.should_hold]
    assert biased.measured == pytest.approx(0.64, abs=0.03)  # 0.9 − 0.1 = 0.8 instead of 0
    assert biased.bound == pytest.approx(16 / 100 + 640 * 2 / 10_000)


def test_fedbuff_follows_the_paper(exact, rng):
    chosen = rng.integers(3, size=(8, 1, 2))
    models = [exact.start]
    for t in range(8):
        stale = models[max(0, t - 2)]
        acc = np.zeros(2)
        for client in chosen[t, 0]:
            local = stale
            for _ in range(3):
                local = local - 0.1 * exact.curvature * (local - exact.centres[client])
            acc = acc + (stale - local)
        models.append(models[-1] - acc / 2)
    mean = exact.centres.mean(0)
    wanted = np.mean([((exact.curvature * (x - mean)) ** 2).sum() for x in models[:8]])
    measured = run_fedbuff(exact, rng, chosen, steps=3, lr=0.1, max_staleness=2)
    assert measured == pytest.approx([wanted])
