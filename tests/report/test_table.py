import io
import math

import pytest
from offbeat_core.errors import OffbeatError
from rich.console import Console

from offbeat.report.caption import caption
from offbeat.report.export import write_csv
from offbeat.report.summary import summarise
from offbeat.report.table import lines, main_lines
from offbeat.report.terminal_table import TerminalTable
from tests.report.example_runs import a_run, client_run


def cells(rows):
    return {line.name: tuple(cell.text for cell in line.cells) for group in lines(rows) for line in group}


def printed(rows, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(TerminalTable(rows))
    return console.file.getvalue()


def test_all_lines_of_one_seed():
    visits = [(0, "counted"), (3, "counted"), (6, "counted"), (50, "unused"), (None, "lost")]
    totals = {"counted": 3, "unused": 1, "lost": 1, "bytes_down": 1_240_000, "bytes_up": 999, "displacement": 2}
    rows = summarise([a_run("fedbuff", 0, (0.1, 0.52, 0.4), visits, totals)])
    assert cells(rows) == {
        "Time to 50 %": ("1 min 40 s",),
        "Speed-up": ("×1.0",),
        "Final accuracy": ("40.0 %",),
        "Versions": ("2",),
        "Best accuracy": ("52.0 %",),
        "Final loss": ("1.00",),
        "Visits to 50 %": ("3",),
        "Sent to 50 %": ("2 B",),
        "Real time": ("2.0 s",),
        "Updates counted": ("3",),
        "Updates unused": ("1",),
        "Updates lost": ("1",),
        "Mean staleness": ("3.0",),
        "Max staleness": ("6",),
        "Model moved per update": ("0.667",),
        "Sent to clients": ("1.2 MB",),
        "Sent by clients": ("999 B",),
    }
    assert caption(rows) == "Time to 50 %: first evaluation at or above it. Speed-up: over fedbuff."


def test_the_time_that_clients_wait_and_those_that_never_counted(tmp_path):
    visits = [(0, 0, 0.0, 10.0, "counted"), (0, 1, 10.0, 20.0, "counted"), (1, None, 0.0, 9.0, "lost")]
    runs = [a_run("a", 0, visits=visits, path=tmp_path / "a"), a_run("b", 0)]
    (tmp_path / "a").mkdir()
    times = '{"clients": 5, "waiting_seconds": 30.0, "working_seconds": 10.0}'
    (tmp_path / "a" / "client_time.json").write_text(times, encoding="utf-8")
    found = cells(rows := summarise(runs))
    assert found["Time clients wait"] == ("75.0 %", "–")
    assert found["Clients that never counted"] == ("4", "–")
    write_csv(rows, runs, tmp_path)
    lines = (tmp_path / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "waiting_share" in line or "never_counted" in line] == [
        "a,waiting_share,0.75,,,,1",
        "a,clients_never_counted,4.0,,,,1",
    ]


@pytest.mark.parametrize("content", ["{}", '{"clients": 0, "waiting_seconds": 1.0, "working_seconds": 1.0}',
                                     '{"clients": 1, "waiting_seconds": 1.0, "working_seconds": NaN}'])  # fmt: skip
def test_broken_times_of_clients_are_an_error(content, tmp_path):
    (tmp_path / "client_time.json").write_text(content, encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"client_time\.json is broken"):
        summarise([a_run(path=tmp_path)])


def test_means_are_followed_by_half_the_confidence_interval():
    values = [(0.5, 0.6), (0.1, 0.8), (0.1, 0.7)]
    rows = summarise([a_run("a", seed, each, totals={"counted": 10 * seed}) for seed, each in enumerate(values)])
    # 0.6, 0.8 and 0.7: s = 0.1; t = 4.303 for 2 degrees of freedom; 4.303 · 0.1 / √3 = 0.248.
    assert cells(rows)["Final accuracy"] == ("70.0 ± 24.8 %",)
    # 0, 10 and 20: half is 24.8, more than half of the mean: 10 / exp(2.48) = 0.84, 10 · exp(2.48) = 119.7.
    assert cells(rows)["Updates counted"] == ("10 (1 to 120)",)
    assert cells(rows)["Real time"] == ("2.0 s",)
    assert caption(rows).endswith("Mean ± half the 95 % confidence interval (Student's t), or its ends, over 3 seeds.")
    assert "over 1 to 3 seeds" in caption([*rows, *summarise([a_run("b")])])


def test_a_narrow_terminal_folds_names_and_not_values():
    rows = summarise([client_run(label, seed) for label in ("fedavg", "b") for seed in (0, 1)])
    text = printed(rows, 40)
    for row in lines(rows):
        for line in row:
            for cell in line.cells:
                assert cell.text in text
    assert max(map(len, text.splitlines())) <= 40


def test_the_caption_says_how_many_seeds_an_interval_is_over():
    seeds = {"fedavg": (0, 1), "b": (0, 1, 2), "c": (1, 2), "d": (2,)}
    rows = summarise([a_run(label, seed) for label, own in seeds.items() for seed in own])
    assert caption(rows).endswith("Seeds: fedavg 2, c 2, d 1. Seeds in common with fedavg: b 2, c 1.")
    assert "Seeds" not in caption(summarise([a_run(label, seed) for label in ("fedavg", "b") for seed in (0, 1)]))


def test_another_measure_than_accuracy():
    evaluate = {"metrics": ["balanced_error", "accuracy"], "better": "lower", "target": 0.45}
    rows = summarise([a_run("a", 0, (0.9, 0.41234, 0.5), evaluate=evaluate)])
    found = cells(rows)
    assert list(found.items())[:3] == [
        ("Time to balanced error 0.45", ("1 min 40 s",)),
        ("Speed-up", ("×1.0",)),
        ("Final balanced error", ("0.500",)),
    ]
    assert found["Best balanced error"] == ("0.412",)
    assert found["Final accuracy"] == ("25.0 %",)
    assert "first evaluation at or below it" in caption(rows)


def test_the_loss_as_main_measure_appears_once():
    names = [name for name in cells(summarise([a_run("a", evaluate={"metrics": []})])) if "loss" in name]
    assert names == ["Final loss", "Best loss"]


def marked(rows):
    return {
        line.name: [row.label for row, cell in zip(rows, line.cells, strict=True) if cell.is_best]
        for line in main_lines(rows)
        if any(cell.is_best for cell in line.cells)
    }


def test_the_best_and_what_is_not_separated_from_it_are_marked():
    # Ends in percent and times in evaluations, by seed: b is separated from a in both; c ends as high, but is slower.
    ends = {"a": (80, 81, 82), "b": (60, 61, 62.5), "c": (79, 82, 82)}
    times = {"a": (1, 2, 4), "b": (9, 18, 35), "c": (8, 16, 33)}
    runs = [
        a_run(label, seed, (0.1, 0.4, 0.5, end / 100), seconds=(0, 99 * time, 100 * time, 4000))
        for label, own in ends.items()
        for seed, (end, time) in enumerate(zip(own, times[label], strict=True))
    ]
    rows = summarise(runs)
    assert marked(rows) == {"Time to 50 %": ["a"], "Final accuracy": ["a", "c"]}
    assert cells(rows)["Final accuracy"][1] == "61.2 ± 3.1 %"
    assert "• 81.0 ± 2.5 %" in printed(rows, 200)
    assert caption(rows).startswith("•: the best, and all that simultaneous 95 % intervals do not separate from it.")


def test_nothing_is_marked_where_nothing_is_known():
    worse = a_run("b", 0, (0.1, 0.3))
    assert marked(summarise([a_run("a"), worse])) == {}  # one seed
    assert "•" not in caption(summarise([a_run("a"), worse]))
    assert marked(summarise([a_run("a", seed) for seed in (0, 1)])) == {}  # one algorithm
    runs = [a_run("a", seed) for seed in (0, 1)] + [a_run("b", seed, (0.1, 0.2), finished=False) for seed in (0, 1)]
    assert marked(summarise(runs)) == {}
    missed = [a_run(label, seed, (0.1, 0.2 + seed / 100)) for label in ("a", "b") for seed in (0, 1)]
    assert list(marked(summarise(missed))) == ["Final accuracy"]


def test_a_metric_that_a_label_lacks_is_a_dash():
    evaluate = {"metrics": ["accuracy", "f1"], "better": "higher"}
    rows = summarise([a_run("a", evaluate={"metrics": ["accuracy"]}), a_run("b", evaluate=evaluate)])
    names = [name for name in cells(rows) if name.startswith(("Final", "Difference", "Best"))]
    assert names == ["Final accuracy", "Difference to a", "Best accuracy", "Final f1", "Final loss"]
    assert cells(rows)["Final f1"] == ("–", "0.250")


def test_the_mean_of_the_last_evaluations():
    values = [0.9] * 5 + [0.2] * 10
    rows = summarise([a_run("a", 0, values), a_run("b", 0, values), a_run("b", 1, values[:9])])
    assert cells(rows)["Mean of last 10"] == ("20.0 %", "–")
    assert caption(rows).startswith("Mean of last 10: over the last 10 evaluations.")


def test_a_target_that_not_every_seed_reaches():
    runs = [a_run("some", 0), a_run("some", 1, (0.1, 0.2)), a_run("none", 0, (0.1, 0.2)), a_run("now", 0, (0.5, 0.5))]
    rows = summarise(runs)
    assert cells(rows)["Time to 50 %"] == ("– (1 of 2 seeds)", "–", "0.0 s")
    assert cells(rows)["Speed-up"] == ("–", "–", "–")
    assert "No speed-up: some, the baseline, missed it in some seed." in caption(rows)


def test_a_seed_that_only_the_baseline_ran_may_miss_the_target():
    runs = [a_run("fedavg", seed, (0.1, 0.1, 0.5)) for seed in (1, 2)] + [a_run("fedavg", 3, (0.1, 0.1, 0.1))]
    rows = summarise([*runs, a_run("b", 1), a_run("b", 2)])
    assert cells(rows)["Speed-up"] == ("–", "×2.0 (2.0 to 2.0)")
    assert "Speed-up: over fedavg, seed by seed" in caption(rows)
    assert "No speed-up" not in caption(rows)


def test_an_unfinished_baseline_has_not_missed_the_target():
    rows = summarise([a_run("fedavg", 0, (0.1, 0.2), finished=False), a_run("b", 0)])
    assert "No speed-up: fedavg, the baseline, has not reached it yet." in caption(rows)
    assert cells(rows)["Difference to fedavg"] == ("–", "–")


def test_a_speed_up_has_the_interval_of_its_pairs():
    ends = {"fedavg": (200, 400, 1600), "b": (100, 100, 400)}
    runs = [
        a_run(label, seed, (0.1, 0.5), seconds=(0, end)) for label, own in ends.items() for seed, end in enumerate(own)
    ]
    rows = summarise(runs)
    assert cells(rows)["Speed-up"] == ("×1.0", "×3.2 (1.2 to 8.6)")
    assert "Speed-up: over fedavg, seed by seed, with its 95 % confidence interval." in caption(rows)


def test_a_median_time_says_how_many_seeds_reached_the_target():
    rows = summarise([a_run("a", 0), a_run("a", 1, (0.1, 0.1, 0.5)), a_run("a", 2, (0.1, 0.2))])
    assert cells(rows)["Time to 50 %"] == ("3 min 20 s, median (2 of 3 seeds)",)
    assert "Median: of all seeds; a seed that missed it counts as the slowest." in caption(rows)


def test_a_row_has_one_unit():
    times = [(0.1,) * 2 + (0.5,), (0.1,) * 4 + (0.5,), (0.5,)]
    runs = [a_run("a", seed, times[seed], totals={"bytes_up": 234_600}) for seed in (0, 1)]
    runs += [a_run("b", seed, times[2 - 2 * seed], totals={"bytes_up": 3_100_000}) for seed in (0, 1)]
    rows = summarise(runs)
    # 200 and 400 s; 0 and 200 s: s = 141.4 s, so 12.706 · s / √2 = 1270.6 s = 21.2 min in both.
    # 5 / exp(21.2 / 5) = 0.07, 5 · exp(21.2 / 5) = 345.4; exp(21.2 / 1.67) is over 100.
    assert cells(rows)["Time to 50 %"] == ("5.0 min (0.1 to 345.4 min)", "1.7 min (0 to ∞)")
    assert cells(rows)["Sent by clients"] == ("234.6 kB", "3,100.0 kB")
    assert cells([*rows, *summarise([a_run("c", totals={"bytes_up": 0})])])["Sent by clients"][2] == "0 B"


def test_worlds_that_differ_have_no_speed_up():
    other = a_run("b")
    other.config["data"] = {"name": "mnist"}
    rows = summarise([a_run("fedavg"), other])
    assert cells(rows)["Speed-up"] == ("×1.0", "–")
    assert cells(rows)["Difference to fedavg"] == ("–", "–")
    assert caption(rows).endswith("Speed-up: over fedavg. No speed-up across different worlds.")
    assert "worlds" not in caption(summarise([a_run("fedavg"), a_run("b")]))


def test_without_a_target_its_lines_are_left_out():
    rows = summarise([a_run("a", evaluate={"metrics": ["accuracy"]})])
    assert not any(name.startswith(("Time to", "Speed-up")) for name in cells(rows))
    assert caption(rows) == ""


def test_a_staleness_of_zero_is_a_number():
    rows = summarise([a_run("a", visits=[(0, "counted")]), a_run("b", visits=[(None, "lost")])])
    assert cells(rows)["Mean staleness"] == ("0.0", "–")
    assert cells(rows)["Max staleness"] == ("0", "–")


def test_the_caption_warns():
    runs = [
        a_run("idle", 1, (0.1,)),
        a_run("half", 1, (0.1,), totals={"counted": 3, "bytes_down": 9}),
        a_run("half", 2),
        a_run("fedbuff", 2, [0.1] * 13, finished=False),
    ]
    assert caption(summarise(runs)).splitlines()[1:] == [
        "idle did not make a version: its model is still the initial one. No client got an assignment: was "
        "any client available?",
        "half, seed 1, did not make a version: its model is still the initial one. 3 updates counted, which was not "
        "enough for a version.",
        "fedbuff, seed 2 is unfinished: read up to 20 min of virtual time.",
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_table_is_readable(width):
    runs = [a_run(label, seed, (0.1, 0.5 + seed / 10)) for label in ("fedavg", "[red]b") for seed in (0, 1)]
    text = printed(summarise(runs), width)
    assert "[red]b" in text  # not taken for markup
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    (line,) = [line for line in text.splitlines() if "Final accuracy" in line]
    assert line.split("  ")[-1].strip() == "• 55.0 % (0 to 100 %)"
    assert "Student's t" in text


def test_many_algorithms_are_written_in_blocks_that_fit():
    labels = [*"abcdef", "a label that is far longer than all of the numbers below it"]
    runs = [a_run(label, seed, (0.1, 0.5 + seed / 10)) for label in labels for seed in (0, 1)]
    rows = summarise(runs)
    wide, narrow = printed(rows, 200), printed(rows, 80)
    assert wide.count("Final accuracy") == 1
    assert narrow.count("Final accuracy") == narrow.count("Sent by clients") == 4
    assert narrow.count("55.0 % (0 to 100 %)") == 2 * len(labels)  # final and best
    assert narrow.count("Speed-up: over a, seed by seed") == 1
    for text, width in ((wide, 200), (narrow, 80)):
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
    heads = [
        line.split() for line in narrow.splitlines() if line.split() and set("".join(line.split())) <= set("abcdef")
    ]
    assert heads == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_one_column_is_written_however_narrow_the_terminal_is():
    text = printed(summarise([a_run("a"), a_run("b")]), 34)
    assert text.count("Final accuracy") == 2
    assert text.count("50.0 %") == 4


def test_private_runs_say_what_was_spent_in_their_worst_seed():
    spent = {"epsilon": [0.0, 1.234], "epsilon_replace_one": [0.0, 3.4]}
    more = {"epsilon": [0.0, 2.0], "epsilon_replace_one": [0.0, 5.678]}
    endless = {"epsilon": [0.0, math.inf], "epsilon_replace_one": [0.0, math.inf]}
    private = [a_run("private", seed, columns=columns) for seed, columns in enumerate((spent, more))]
    rows = summarise([*private, a_run("masked", columns=endless), a_run("plain")])
    found = cells(rows)
    assert found["ε, zero-out"] == ("2.00", "∞", "–")
    assert found["ε, replace one"] == ("5.68", "∞", "–")
    assert "ε, zero-out" not in cells(summarise([a_run("plain")]))
    assert "a simulation's is made of its seed and protects nobody." in caption(rows)
    assert "protects nobody" not in caption(summarise([a_run("masked", columns=endless), a_run("plain")]))


def test_clients_have_lines_where_some_have_measured():
    rows = summarise([client_run("a"), a_run("b")])
    found = {name: line for name, line in cells(rows).items() if name.startswith("Clients'")}
    assert found == {
        "Clients' accuracy, by examples": ("90.0 %", "–"),
        "Clients' accuracy, mean": ("60.0 %", "–"),
        "Clients' accuracy, 10th percentile": ("30.0 %", "–"),
        "Clients' accuracy, median": ("60.0 %", "–"),
        "Clients' accuracy, 90th percentile": ("70.0 %", "–"),
        "Clients' accuracy, worst tenth": ("15.0 %", "–"),
    }


def test_nobody_was_available_at_the_end():
    rows = summarise([client_run("a", client_accuracy_mean=[0.1, 0.2, math.nan])])
    assert cells(rows)["Clients' accuracy, mean"] == (cells(summarise([a_run("a", 0, (math.nan,))]))["Final accuracy"])


def test_each_text_has_its_number():
    spent = {"epsilon": [0.0, 1.0, 1.5], "epsilon_replace_one": [0.0, 2.0, 4.0]}
    runs = [client_run("fedavg", **spent), a_run("b", 0, (0.1, 0.4), [(None, "lost")])]
    found = {line.name: line.cells for group in lines(summarise(runs)) for line in group}
    for name, texts in {
        "Final accuracy": [("60.0 %", 0.6), ("40.0 %", 0.4)],
        "Difference to fedavg": [("–", 0.0), ("-20.0 points", pytest.approx(-0.2))],
        "Time to 50 %": [("10 min", 600), ("–", None)],
        "Speed-up": [("×1.0", 1.0), ("–", None)],
        "Sent by clients": [("2 B", 2), ("1 B", 1)],
        "Max staleness": [("–", None), ("–", None)],
        "Clients' accuracy, worst tenth": [("15.0 %", 0.15), ("–", None)],
        "ε, replace one": [("4.00", 4), ("–", None)],
    }.items():
        assert [(cell.text, cell.value) for cell in found[name]] == texts, name
    assert all((cell.value is None) is (cell.text == "–") for name, cells in found.items() for cell in cells[1:])
