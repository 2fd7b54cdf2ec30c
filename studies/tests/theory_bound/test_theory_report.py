"""Reports on the theorems of a file."""

import pytest
from offbeat_core.errors import OffbeatError

from offbeat_studies.theory_bound.constants import Known
from offbeat_studies.theory_bound.theory_report import theory_reports
from studies.tests.theory_bound.conftest import KNOWN, one


def test_all_missing_constants_are_one_line(load):
    experiment = load({"fedbuff": {}, "fedlaavg": {"cohort": 6}, "fedavg": {}}, stop={"virtual_seconds": 9.0})
    with pytest.raises(OffbeatError) as caught:
        theory_reports(experiment, experiment.algorithms, Known(initial_error=0.0))
    assert str(caught.value) == (
        "constants are missing: "
        "give --rounds, --smoothness and --variance for fedbuff and fedlaavg; "
        "--max-staleness and --diversity for fedbuff; --gradient-bound for fedlaavg; "
        "or select algorithms with --algorithm"
    )
    with pytest.raises(OffbeatError, match="give --gradient-bound for fedlaavg; or"):
        theory_reports(experiment, ["fedlaavg"], Known(initial_error=0.0, smoothness=1.0, variance=0.0, rounds=5))
    experiment = load({"async_comm_sgd": {}}, stop={"updates": 9})
    with pytest.raises(OffbeatError, match="give --rounds for async_comm_sgd; or"):
        theory_reports(experiment, experiment.algorithms, KNOWN)


def test_an_algorithm_without_a_theorem_says_so(load, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from offbeat.algorithms import FedBuff\n\n\nclass Mine(FedBuff):\n    pass\n", encoding="utf-8"
    )
    experiment = load({"fedavg": {}, "mine": {"algorithm": "mine.py:Mine"}})
    line = "no theorem; there is one for fedbuff, fedlaavg, async_comm_sgd, fedluck"
    assert theory_reports(experiment, experiment.algorithms, Known()) == {"fedavg": line, "mine": line}


@pytest.mark.parametrize("local", [{"epochs": 2}, {"steps": "math:isqrt"}])
def test_there_is_no_theorem_for_clients_with_different_numbers_of_steps(local, load):
    experiment = load({"fedbuff": {"local": local}, "fedlaavg": {}})
    reports = theory_reports(experiment, ["fedbuff"], KNOWN)
    assert reports == {
        "fedbuff": "the theorem is for clients with the same number of steps: set local.steps to a number"
    }


def test_a_constant_out_of_range_names_the_algorithm(load):
    with pytest.raises(OffbeatError, match=r"^algorithms\.fedbuff: smoothness must be a finite number .*, got nan$"):
        one(load({"fedbuff": {}}), Known(**{**vars(KNOWN), "smoothness": float("nan")}))
