"""Sentences and rows of a report's tuning."""

import io

import pytest
from offbeat_core.errors import OffbeatError
from rich.console import Console

from offbeat.report.finding import finding
from offbeat.report.page.page import page
from offbeat.report.summary import summarise
from offbeat.report.tuning import ReportedTuning
from offbeat.runs.tuning_record import (
    TrialResult,
    TunedLabel,
    TunedSetting,
    TuningRecord,
    read_tuning,
    write_tuning,
)
from tests.report.example_runs import a_run


def tuned(best, *, trials=20, number=7, edge="", untuned=None):
    setting = TunedSetting(key="server_lr", searched="0.1:10:log", untuned=1.0, best=best, edge=edge)
    return TunedLabel(
        trials=trials,
        settings=[setting],
        untuned=untuned or TrialResult(number=0, value=0.4, seconds=None),
        best=TrialResult(number=number, value=0.6, seconds=90.0),
    )


def record(**labels):
    return TuningRecord(
        share=0.5, validation=0.2, seed=1_000_000, measure="accuracy", last=10, target=0.5, labels=labels
    )


@pytest.fixture
def reported(tmp_path):
    """Return a function that returns the finding, the tuning and the page of runs at given settings."""

    def report(record, **server_lr):
        write_tuning(tmp_path, record)
        runs = [
            a_run(
                label, seed, (0.1, 0.5), seconds=(0, 100 + seed), path=tmp_path / f"{label}-seed{seed}",
                config={"algorithms": {label: {"server_lr": lr}}}, totals={"displacement": 9 * lr}, finished=False,
            )
            for label, lr in server_lr.items() for seed in (1, 2)
        ]  # fmt: skip
        rows = summarise(runs)
        tuning = ReportedTuning.of(runs, rows[0].measure)
        return finding(rows, tuning), tuning, page(runs, rows, "a", "offbeat")

    return report


def test_a_tuned_report_says_so_and_what_was_found(reported):
    text, tuning, html = reported(record(a=tuned(5.0), b=tuned(0.12, edge="lower")), a=5.0, b=0.12)
    assert text.endswith(
        "Tuned by 20 trials each. Best at an edge of what was searched, so perhaps better beyond: b's server_lr."
    )
    assert "Not tuned" not in text
    assert tuning.rows() == [
        ("a", "server_lr", "0.1:10:log", "1.0", "5.0"),
        ("b", "server_lr", "0.1:10:log", "1.0", "0.12, at an edge"),
    ]
    gain = "a: 50 % after 1 min 30 s in the best of 20 trials, 40.0 % with the file's settings."
    assert next(tuning.gains()) == gain
    assert "ended at 50 % of the runs' end" in tuning.how()
    assert "20 % of the training examples, by the time to 50 %, or by the mean of the last 10" in tuning.how()
    screen = io.StringIO()
    Console(file=screen).print(tuning.table())
    assert "0.12, at an edge" in screen.getvalue()
    for words in ("Tuned by 20 trials each.", ">0.12, at an edge<", gain.replace("'", "&#39;")):
        assert words in html


def test_what_was_not_tuned_or_not_equally_is_named(reported):
    text, _, html = reported(record(a=tuned(5.0)), a=5.0, b=0.12)
    assert "Tuned unequally: a by 20 trials, b by no trials. Not tuned: a's updates move the model" in text
    assert 'id="tuning"' in html
    text, _, _ = reported(record(a=tuned(5.0), b=tuned(0.12, trials=4)), a=5.0, b=0.12)
    assert "Tuned unequally: a by 20 trials, b by 4 trials." in text
    text, tuning, html = reported(record(a=tuned(5.0)), a=4.0, b=0.12)
    assert "uned un" not in text
    assert "Not tuned: a's updates" in text
    assert not tuning.is_any
    assert 'id="tuning"' not in html
    # Before its end, a tuning has found nothing.
    asked = record(a=tuned(5.0, edge="lower")).asked()
    assert asked.labels["a"].settings[0] == TunedSetting(key="server_lr", searched="0.1:10:log", untuned=1.0)
    assert not reported(asked, a=5.0)[1].is_any


def test_the_files_settings_may_be_the_best_and_one_algorithm_is_tuned_alone(reported):
    own = replace_best(tuned(1.0, number=0, untuned=TrialResult(number=0, value=None, seconds=None)))
    text, tuning, _ = reported(record(a=own), a=1.0)
    assert text.endswith("Tuned by 20 trials.")
    assert list(tuning.gains()) == ["a: diverged in the best of 20 trials, the first, which has the file's settings."]


def replace_best(label):
    return label.model_copy(update={"best": label.untuned})


def test_a_broken_record_is_one_line(tmp_path):
    assert read_tuning(tmp_path) is None
    write_tuning(tmp_path, record(a=tuned(5.0)))
    assert read_tuning(tmp_path) == record(a=tuned(5.0))
    (tmp_path / "tuning" / "tuning.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"tuning\.json is broken: choose another folder with --output, or replace"):
        read_tuning(tmp_path)
