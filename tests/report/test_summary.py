import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.summary import summarise
from tests.report.example_runs import a_run


def final(row, name):
    (found,) = [estimate for measure, estimate in row.final.items() if measure.name == name]
    return found


def test_only_metrics_of_all_seeds_have_a_final_value():
    both = {"metrics": ["accuracy", "f1"], "better": "higher"}
    first, second = a_run("a", 0, evaluate=both), a_run("a", 1)
    assert [measure.name for measure in summarise([first])[0].final] == ["accuracy", "f1", "loss"]
    assert final(summarise([first])[0], "f1").mean == 0.25
    assert [measure.name for measure in summarise([first, second])[0].final] == ["accuracy", "loss"]


def test_the_speed_up_is_over_fedavg():
    fedbuff, fedavg = ({"algorithms": {"x": {"algorithm": name}}} for name in ("fedbuff", "fedavg"))
    runs = [
        a_run("quick", 0, (0.1, 0.5), config=fedbuff),
        a_run("sync", 0, (0.1, 0.2, 0.3, 0.5), config=fedavg),
        a_run("fedavg", 0, (0.1, 0.2, 0.5)),
        a_run("slow", 0, (0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5), config=fedbuff),
    ]
    assert [row.label for row in summarise(runs)] == ["quick", "sync", "fedavg", "slow"]
    assert {row.baseline for row in summarise(runs)} == {"fedavg"}  # the label names the algorithm
    rows = summarise([*runs[:2], runs[3]])
    assert {row.baseline for row in rows} == {"sync"}
    assert [row.speed_up.mean for row in rows] == pytest.approx([3.0, 1.0, 0.5])
    assert {row.baseline for row in summarise([runs[3], runs[0]])} == {"slow"}  # no FedAvg: the first
    named = [a_run("x/fedbuff", config={"algorithms": {"fedbuff": {}}}), a_run("x/b", config=fedavg)]
    assert {row.baseline for row in summarise(named)} == {"x/b"}  # also where the label was changed


def test_an_unfinished_run_has_neither_an_end_nor_missed_the_target():
    half = a_run("b", 2, (0.1, 0.2), finished=False)
    fedavg, b = summarise([*(a_run("fedavg", seed) for seed in (1, 2)), a_run("b", 1), half, a_run("b", 3)])
    assert (fedavg.undecided, b.undecided) == ((), (2,))
    assert (b.difference, b.median_to_target, b.reached) == (None, None, 2)
    assert fedavg.difference is not None
    reached = a_run("b", 2, (0.1, 0.5), finished=False)
    _, b = summarise([a_run("fedavg", 2), reached])
    assert (b.undecided, b.difference, b.median_to_target) == ((), None, 100.0)


def test_seeds_without_a_version_and_unfinished_ones_are_named():
    runs = [
        a_run("a", 1, (0.1,), finished=False, real_seconds=0.0),
        a_run("a", 2, (0.1, 0.2), finished=False, real_seconds=7.0),
        a_run("a", 3, (0.1, 0.2, 0.3), real_seconds=5.0),
        a_run("b", 1, (0.1, 0.2), finished=False),
    ]
    a, b = summarise(runs)
    assert (a.without_version, a.unfinished) == ((1,), {1: 0.0, 2: 100.0})
    assert (a.real_seconds.mean, a.real_seconds.seeds) == (5.0, 1)  # only a finished run took its time
    assert b.real_seconds is None


def test_a_run_without_evaluation_is_one_line():
    with pytest.raises(OffbeatError, match="holds no evaluation; run it again"):
        summarise([a_run("a", values=())])
    with pytest.raises(OffbeatError, match="holds no evaluation; wait"):
        summarise([a_run("a", values=(), finished=False)])


@pytest.mark.parametrize(
    ("totals", "says"),
    [
        ({"bytes_down": 0}, "No client got an assignment: was any client available?"),
        ({"bytes_down": 9}, "No visit ended"),
        ({"bytes_down": 9, "lost": 2, "unused": 1}, "3 visits were lost or too late: compare server.lease_"),
        ({"bytes_down": 9, "lost": 1}, "1 visit was lost or too late: compare server.lease_"),
        ({"bytes_down": 9, "lost": 2, "counted": 1}, "1 update counted, which was not enough for a version."),
    ],
)
def test_the_reason_for_runs_without_a_version(totals, says):
    assert summarise([a_run("a", 0, (0.1,), totals=totals)])[0].why_no_version.startswith(says)
    assert summarise([a_run("a", 0, (0.1, 0.2), totals=totals)])[0].why_no_version == ""


def test_a_time_is_rounded_to_the_first_evaluation_of_a_new_model():
    run = a_run("fedavg", 0, (0.1, 0.2, 0.2, 0.2, 0.5), columns={"version": [0, 1, 1, 1, 2]})  # 0, 100 … 400 s
    (row,) = summarise([run])
    drawn = np.log(np.random.default_rng(0).uniform(100, 400, 200_000))
    assert row.log_seconds[0] == (math.log(400), math.log(400), pytest.approx(drawn.std(), rel=0.01))
    run.history["version"] = np.arange(5)
    (row,) = summarise([run])
    drawn = np.log(np.random.default_rng(0).uniform(300, 400, 200_000))
    assert row.log_seconds[0].rounding == pytest.approx(drawn.std(), rel=0.01)
    first = summarise([a_run("fedavg", 0, (0.1, 0.5))])[0]
    assert first.log_seconds[0].rounding == 1  # anything up to 100 s


@pytest.mark.parametrize(
    ("accuracies", "step"),
    [((36 / 360, 349 / 360, 350 / 360), 1 / 360), ((0.1, 0.5, 0.75), 1 / 20), ((0.1, math.pi / 4, 0.5), 0.0)],
)
def test_the_step_of_an_accuracy_is_that_of_one_example(accuracies, step):
    assert summarise([a_run("a", 0, accuracies)])[0].step == pytest.approx(step)
