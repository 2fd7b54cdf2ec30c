"""All bounds together."""

import pytest

from offbeat_studies.papers.theory import check


def test_every_bound_holds_and_every_counter_example_fails(rows):
    assert [line for line in rows if not line.as_expected] == []


def test_every_theorem_is_measured(rows):
    assert {line.claim for line in rows if line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedLaAvg, Lemma 2",
        "FedLaAvg, Theorem 1",
        "FedLaAvg, Theorem 3",
        "FedLaAvg, appendix C",
        "AsyncCommSGD, Proposition 2.1",
        "AsyncCommSGD, Theorem 2.2",
        "AsyncCommSGD, Theorem 2.4",
        "FedLuck, mended",
    }
    assert {line.claim for line in rows if not line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedAvg, FedLaAvg's Theorem 1",
        "FedLaAvg, Theorem 1 as printed",
        "FedLuck, Q_l as printed",
    }
    for name in ("full(4)", "round_robin(2, 2)", "random(1/4)", "imbalanced"):
        assert sum(name in line.setting for line in rows) == 4


def test_a_number_of_seeds_below_1_is_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        check(seeds=0)
