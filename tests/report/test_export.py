import csv
import math
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.export import write_csv, write_file, write_markdown
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run, client_run


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_summary_is_tidy(tmp_path):
    runs = [a_run("a", 0, (0.5, 0.6)), a_run("a", 1, (0.1, 0.8)), a_run("b, c", 0)]
    summary, _ = write_csv(summarise(runs), runs, tmp_path / "new" / "folder")
    assert summary == tmp_path / "new" / "folder" / "summary.csv"
    lines = {(line["label"], line["measure"]): line for line in read(summary)}
    final = lines["a", "final_accuracy"]
    # s = 0.2 / √2; t = 12.7062 for one degree of freedom; 12.7062 · s / √2 = 1.27062.
    assert float(final["mean"]) == pytest.approx(0.7)
    assert float(final["sd"]) == pytest.approx(0.2 / math.sqrt(2))
    assert (final["ci_low"], final["ci_high"]) == ("0.0", "1.0")  # 0.7 ± 1.27062, but a share is within 0 and 1
    assert float(lines["a", "final_loss"]["ci_low"]) == 1.0
    assert final["seeds"] == "2"
    assert lines["b, c", "seconds_to_target"] == {
        "label": "b, c",
        "measure": "seconds_to_target",
        "mean": "100.0",
        "sd": "",
        "ci_low": "",
        "ci_high": "",
        "seeds": "1",
    }
    assert ("b, c", "speed_up") not in lines  # a took no time in the seed that both have
    assert float(lines["b, c", "difference_of_final_accuracy"]["mean"]) == pytest.approx(-0.1)
    assert lines["b, c", "difference_of_final_accuracy"]["seeds"] == "1"
    assert lines["b, c", "bytes_up"]["mean"] == "1.0"
    assert ("a", "mean_staleness") not in lines


def test_the_summary_says_how_many_seeds_reached_the_target(tmp_path):
    times = {"a": (100.0, 300.0, None), "b": (100.0, None, None), "c": (100.0, 200.0, 600.0)}
    runs = [
        a_run(label, seed, (0.1, 0.4 if time is None else 0.5), seconds=(0, time or 900))
        for label, own in times.items()
        for seed, time in enumerate(own)
    ]
    lines = {(line["label"], line["measure"]): line for line in read(write_csv(summarise(runs), runs, tmp_path)[0])}
    assert [lines[label, "reached_target"]["mean"] for label in "abc"] == ["2", "1", "3"]
    assert lines["a", "median_seconds_to_target"]["mean"] == "300.0"
    assert ("b", "median_seconds_to_target") not in lines
    assert lines["c", "median_seconds_to_target"]["mean"] == "200.0"
    assert [("seconds_to_target" in line) for line in ({m for each, m in lines if each == x} for x in "abc")] == [
        False,
        False,
        True,
    ]
    untargeted = [a_run("a", evaluate={"metrics": ["accuracy"], "better": "higher"})]
    assert "reached_target" not in write_csv(summarise(untargeted), untargeted, tmp_path)[0].read_text(encoding="utf-8")


def test_the_summary_has_the_statistics_over_clients(tmp_path):
    runs = [client_run("a", 0), client_run("a", 1, client_accuracy_worst=[0.0, 0.0, 0.25]), a_run("b")]
    summary, history = write_csv(summarise(runs), runs, tmp_path)
    final = {line["measure"]: float(line["mean"]) for line in read(summary) if line["label"] == "a"}
    assert (final["final_client_accuracy"], final["final_client_accuracy_p90"]) == (0.9, 0.7)
    assert final["final_client_accuracy_worst"] == pytest.approx(0.2)
    assert not [line for line in read(summary) if line["label"] == "b" and "client" in line["measure"]]
    assert [line["client_accuracy_p10"] for line in read(history)][:3] == ["0.1", "0.2", "0.3"]


def test_the_summary_has_the_largest_staleness_of_all_seeds(tmp_path):
    runs = [a_run("a", seed, visits=[(1, "counted"), (3 + 4 * seed, "counted")]) for seed in (0, 1)]
    summary, _ = write_csv(summarise(runs), runs, tmp_path)
    (line,) = [line for line in read(summary) if line["measure"] == "max_staleness"]
    assert (float(line["mean"]), line["sd"], line["ci_low"], line["seeds"]) == (7.0, "", "", "2")


def test_the_history_has_all_columns_of_all_runs(tmp_path):
    runs = [a_run("a", 3, columns={"loss": [0.1 * 3] * 2}), a_run("b", 4, columns={"f1": [0.25, math.nan]})]
    _, history = write_csv(summarise(runs), runs, tmp_path)
    lines = read(history)
    assert list(lines[0])[:4] == ["label", "seed", "seconds", "version"]
    assert list(lines[0])[-1] == "f1"
    assert [(line["label"], line["seed"], line["seconds"], line["f1"]) for line in lines] == [
        ("a", "3", "0.0", ""),
        ("a", "3", "100.0", ""),
        ("b", "4", "0.0", "0.25"),
        ("b", "4", "100.0", "nan"),
    ]
    assert float(lines[0]["loss"]) == 0.1 * 3  # no digit is lost


def test_markdown_is_the_table_of_the_terminal(tmp_path):
    runs = [a_run("fedavg"), a_run("a|b_c*", 0, (0.1,) * 12)]
    path = write_markdown(summarise(runs), tmp_path / "new" / "table.md")
    table, *texts = path.read_text(encoding="utf-8").strip().split("\n\n")
    lines = table.splitlines()
    assert lines[:3] == [r"|  | fedavg | a\|b\_c\* |", "|:--|--:|--:|", "| Time to 50 % | 1 min 40 s | – |"]
    assert "| Final accuracy | 50.0 % | 10.0 % |" in lines
    assert {line.replace(r"\|", "").count("|") for line in lines} == {4}
    assert texts == [
        "Mean of last 10: over the last 10 evaluations. Time to 50 %: first evaluation at or above it. "
        "Speed-up: over fedavg."
    ]
    assert r"| Difference to fedavg | – | -40.0 points |" in lines


def test_each_warning_is_a_paragraph(tmp_path):
    path = write_markdown(summarise([a_run("a", 0, (0.1,))]), tmp_path / "table.md")
    assert path.read_text(encoding="utf-8").endswith(
        ".\n\na did not make a version: its model is still the initial one. No client got an assignment: "
        "was any client available?\n"
    )


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    runs = [a_run("a")]
    for write in (
        lambda folder: write_csv(summarise(runs), runs, folder),
        lambda folder: write_markdown(summarise(runs), folder / "x.md"),
    ):
        with pytest.raises(OffbeatError, match=r"cannot write .*file.*; free some space or choose another folder"):
            write(tmp_path / "file")


def test_an_earlier_file_stays_complete_when_writing_fails(tmp_path, monkeypatch):
    path = write_file(tmp_path / "x", b"first")

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OffbeatError, match="No space left on device"):
        write_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
