import pytest


def test_fedbuff_with_unequal_arrivals_converges_to_a_wrong_point(rows):
    (biased,) = [line for line in rows if line.claim.startswith("FedBuff") and not line.should_hold]
    assert biased.measured == pytest.approx(0.64, abs=0.03)  # 0.9 − 0.1 = 0.8 instead of 0
    assert biased.bound == pytest.approx(16 / 100 + 640 * 2 / 10_000)
