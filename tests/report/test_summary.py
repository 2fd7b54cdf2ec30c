import math

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.summary import summarise
from offbeat.statistics.estimates import Paired, estimate
from tests.report.example_runs import a_run


def final(row, name):
    (found,) = [estimate for measure, estimate in row.final.items() if measure.name == name]
    return found


def test_one_seed():
    visits = [(0, "counted"), (3, "counted"), (6, "counted"), (50, "unused"), (None, "lost")]
    (row,) = summarise([a_run("fedbuff", 0, (0.1, 0.52, 0.4), visits)])
    assert (row.label, row.seeds, row.reached, row.baseline) == ("fedbuff", 1, 1, "fedbuff")
    assert (row.measure.name, row.target) == ("accuracy", 0.5)
    assert (final(row, "accuracy").mean, row.best.mean, final(row, "loss").mean) == (0.4, 0.52, 1.0)
    assert final(row, "accuracy") == estimate([0.4])
    assert row.seconds_to_target.mean == 100.0
    assert row.speed_up == Paired(1.0, None, None, 1)
    assert (row.updates_to_target.mean, row.bytes_to_target.mean) == (3.0, 2.0)
    assert (row.mean_staleness.mean, row.max_staleness) == (3.0, 6)
    assert row.tail is None  # fewer than ten evaluations
    assert (row.without_version, row.unfinished) == ((), {})


def test_seeds_are_averaged_with_a_confidence_interval():
    runs = [
        a_run("a", 0, (0.5, 0.6), [(2, "counted")], {"counted": 10}),
        a_run("a", 1, (0.1, 0.8), [(4, "counted"), (6, "counted")], {"counted": 20}),
    ]
    (row,) = summarise(runs)
    assert final(row, "accuracy") == estimate([0.6, 0.8])
    assert row.counted == estimate([10, 20])
    assert row.seconds_to_target.mean == 50.0  # 0 s and 100 s
    assert row.mean_staleness.mean == 3.5  # of 2 and 5: each seed weighs the same
    assert row.max_staleness == 6


def test_the_last_evaluations_are_averaged():
    values = [0.9] * 5 + [0.1] * 5 + [0.3] * 5
    assert summarise([a_run("a", 0, values)])[0].tail.mean == pytest.approx(0.2)
    assert summarise([a_run("a", 0, values), a_run("a", 1, values[:9])])[0].tail is None


def test_the_loss_is_better_the_lower_it_is():
    evaluate = {"metrics": [], "better": "lower", "target": 0.5}
    (row,) = summarise([a_run("a", 0, (2.0, 0.6, 0.5, 0.3, 0.9), evaluate=evaluate)])
    assert row.best.mean == 0.3
    assert row.seconds_to_target.mean == 200.0
    assert [measure.name for measure in row.final] == ["loss"]


def test_only_metrics_of_all_seeds_have_a_final_value():
    both = {"metrics": ["accuracy", "f1"], "better": "higher"}
    first, second = a_run("a", 0, evaluate=both), a_run("a", 1)
    assert [measure.name for measure in summarise([first])[0].final] == ["accuracy", "f1", "loss"]
    assert final(summarise([first])[0], "f1").mean == 0.25
    assert [measure.name for measure in summarise([first, second])[0].final] == ["accuracy", "loss"]


def test_the_target_can_be_changed():
    runs = [a_run("a", 0, (0.1, 0.5, 0.7))]
    assert summarise(runs, 0.6)[0].seconds_to_target.mean == 200.0
    assert summarise(runs)[0].seconds_to_target.mean == 100.0
    (row,) = summarise([a_run("a", evaluate={"metrics": ["accuracy"]})])
    assert (row.target, row.reached, row.seconds_to_target) == (None, 0, None)


def test_no_speed_up_over_another_world():
    elsewhere = {"stop": {"updates": 7}}
    here, there = a_run("fedavg", 0, (0.1, 0.5)), a_run("fedbuff", 0, (0.1, 0.5), config=elsewhere)
    rows = summarise([here, there])
    assert [row.other_world for row in rows] == [False, True]
    assert [row.speed_up and row.speed_up.mean for row in rows] == [1.0, None]
    assert rows[1].difference is None


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


def test_a_label_that_was_changed_still_names_its_algorithm():
    runs = [
        a_run("x/fedbuff", config={"algorithms": {"fedbuff": {}}}),
        a_run("x/b", config={"algorithms": {"fedavg": {}}}),
    ]
    assert {row.baseline for row in summarise(runs)} == {"x/b"}


def test_a_target_that_not_every_seed_reaches_has_no_time():
    runs = [a_run("some", 0, (0.1, 0.5)), a_run("some", 1, (0.1, 0.2)), a_run("none", 0, (0.1, 0.2))]
    some, none = summarise(runs)
    assert (some.reached, some.seconds_to_target, some.speed_up) == (1, None, None)
    assert (none.reached, none.seconds_to_target) == (0, None)
    slow, at_once = summarise([a_run("slow"), a_run("at once", 0, (0.5, 0.5))])
    assert (slow.speed_up.mean, at_once.speed_up) == (1.0, None)  # over no time at all


def test_the_median_time_counts_a_seed_that_missed_the_target_as_longest():
    late, missed = (0.1, 0.1, 0.5), (0.1, 0.1)
    runs = [a_run("most", 0), a_run("most", 1, late), a_run("most", 2, missed)]
    runs += [a_run("some", 0), a_run("some", 1, missed), a_run("some", 2, missed)]
    most, some = summarise(runs)
    assert (most.seconds_to_target, most.median_to_target) == (None, 200.0)  # of 100, 200 and more
    assert (some.reached, some.median_to_target) == (1, None)


def test_an_unfinished_run_has_neither_an_end_nor_missed_the_target():
    half = a_run("b", 2, (0.1, 0.2), finished=False)
    fedavg, b = summarise([*(a_run("fedavg", seed) for seed in (1, 2)), a_run("b", 1), half, a_run("b", 3)])
    assert (fedavg.undecided, b.undecided) == ((), (2,))
    assert (b.difference, b.median_to_target, b.reached) == (None, None, 2)
    assert fedavg.difference is not None
    reached = a_run("b", 2, (0.1, 0.5), finished=False)
    _, b = summarise([a_run("fedavg", 2), reached])
    assert (b.undecided, b.difference, b.median_to_target) == ((), None, 100.0)


def test_algorithms_are_compared_seed_by_seed():
    """Seeds differ by far more than algorithms do: Student's interval of three logarithms, by hand."""
    times = {"fedavg": (200, 400, 1600), "b": (100, 100, 400)}  # ratios 2, 4, 4
    runs = [
        a_run(label, seed, (0.1, 0.5, 0.1 * seed + 0.01 * place), seconds=(0, *ends))
        for place, (label, all_ends) in enumerate(times.items())
        for seed, ends in enumerate((end, end + 1) for end in all_ends)
    ]
    _, row = summarise(runs)
    assert row.speed_up.mean == pytest.approx(2 ** (5 / 3))
    half = 4.30265 * math.log(2) / 3  # t of two degrees of freedom · s / √3, s = log 2 / √3
    assert math.log(row.speed_up.high) == pytest.approx(math.log(2) * 5 / 3 + half, abs=1e-5)
    assert (row.difference.mean, row.difference.low) == (pytest.approx(0.01), pytest.approx(0.01))
    assert row.difference.seeds == row.speed_up.seeds == 3


@pytest.mark.parametrize("visits", [(), [(None, "lost")], [(4, "unused")]])
def test_without_counted_updates_there_is_no_staleness(visits):
    (row,) = summarise([a_run("a", visits=visits)])
    assert row.mean_staleness is row.max_staleness is None


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


def test_runs_by_different_measures_cannot_be_compared():
    with pytest.raises(OffbeatError, match="cannot compare"):
        summarise([a_run("a"), a_run("b", evaluate={"metrics": ["f1"]})])


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
