import io
import re

import pytest
from rich.console import Console

from offbeat.config.experiment_sections import StopSection
from offbeat.runs.progress import Progress
from offbeat.simulation.totals import Evaluation


def evaluation(seconds=0.0, version=0, counted=0, accuracy=0.0):
    return Evaluation(seconds, version, counted, 0, 0, 0, 0, 0.0, 1.25, {"accuracy": accuracy, "mae": 0.125})


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def make(screen):
    def progress(stop, *, terminal, metric="accuracy"):
        return Progress(Console(file=screen, force_terminal=terminal, width=100, no_color=True), stop, metric)

    return progress


def test_without_a_terminal_a_line_a_finished_run(make, screen):
    with make(StopSection(virtual_seconds=100.0), terminal=False) as progress:
        progress.begin("fedavg", 3)
        progress.advance("fedavg", 3, evaluation(50.0, 3, 900, 0.5))
        assert screen.getvalue() == ""
        progress.advance("fedavg", 3, evaluation(100.0, 5, 1234, 0.875))
        progress.end("fedavg", 3)
        progress.begin("fedbuff", 4)
        progress.advance("fedbuff", 4, evaluation(100.0, 5, 7, 0.25))
        progress.end("fedbuff", 4)
    # The colon after the label, the last accuracy, the last count.
    first, second = screen.getvalue().splitlines()
    assert first == "fedavg, seed 3: 87.5 % after 1,234 updates"
    assert second == "fedbuff, seed 4: 25.0 % after 7 updates"


@pytest.mark.parametrize(
    ("stop", "now", "share"),
    [
        (StopSection(virtual_seconds=200.0), evaluation(seconds=50.0, version=99, counted=99), "25%"),
        (StopSection(versions=10), evaluation(seconds=1e9, version=3, counted=99), "30%"),
        (StopSection(updates=8), evaluation(seconds=1e9, version=99, counted=6), "75%"),
        # The nearest end counts.
        (StopSection(virtual_seconds=100.0, versions=10, updates=10), evaluation(10.0, 6, 4), "60%"),
        # The last update may bring several at once.
        (StopSection(updates=8), evaluation(counted=9), "100%"),
        (StopSection(updates=8), evaluation(), "0%"),
    ],
)
def test_a_terminal_shows_how_far_a_run_is(stop, now, share, make, screen):
    with make(stop, terminal=True) as progress:
        progress.expect(1)
        progress.begin("fedavg", 3)
        progress.advance("fedavg", 3, now)
    assert "all runs" not in screen.getvalue()
    last = screen.getvalue().split("fedavg, seed 3")[-1]
    assert f" {share} " in last
    assert f"{now.counted:,} updates" in last


def test_runs_at_once_have_a_bar_each_and_one_together(make, screen):
    with make(StopSection(versions=10), terminal=True) as progress:
        progress.expect(3)
        progress.begin("fedavg", 3)
        progress.begin("fedbuff", 4)
        progress.advance("fedbuff", 4, evaluation(version=4, counted=44))
        progress.advance("fedavg", 3, evaluation(version=7, counted=77))
    last = screen.getvalue().split("all runs")[-1]
    assert "0 of 3 done" in last
    assert " 37% " in last.split("fedavg")[0]
    first, second = last.split("fedavg, seed 3")[1].split("fedbuff, seed 4")
    assert " 70% " in first
    assert "77 updates" in first
    assert " 40% " in second
    assert "44 updates" in second


def test_the_bar_of_all_runs_counts_those_that_are_over(make, screen):
    with make(StopSection(versions=10), terminal=True) as progress:
        progress.expect(3)
        for seed in (1, 2):
            progress.begin("fedavg", seed)
            progress.advance("fedavg", seed, evaluation(version=10))
            progress.end("fedavg", seed)
    last = screen.getvalue().split("all runs")[-1]
    assert "2 of 3 done" in last
    assert " 67% " in last
    # What is over has a line, and no bar any more.
    assert "fedavg" not in last


@pytest.mark.parametrize(
    ("metric", "text"), [("accuracy", "87.5 % after"), ("mae", "mae 0.125 after"), (None, "loss 1.25 after")]
)
def test_shows_the_first_metric_or_the_loss(metric, text, make, screen):
    with make(StopSection(versions=1), terminal=False, metric=metric) as progress:
        progress.begin("fedavg", 3)
        progress.advance("fedavg", 3, evaluation(accuracy=0.875))
        progress.end("fedavg", 3)
    assert text in screen.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_messages_are_printed_unchanged(terminal, make, screen):
    """No markup is read into it, and one line stays one line however long it is."""
    line = "see /data/[old]/x [/y] " + "and more " * 20 + "end"
    with make(StopSection(versions=1), terminal=terminal) as progress:
        progress.say(line)
    assert line in screen.getvalue()


def test_a_terminal_shows_the_time_that_has_passed_and_that_is_left(make, screen, monkeypatch):
    now = [1000.0]
    with make(StopSection(versions=100), terminal=True) as progress:
        monkeypatch.setattr(progress._bars, "get_time", lambda: now[0])
        progress.begin("fedavg", 3)
        assert "… left" in screen.getvalue()
        for done in (0, 10, 20, 25):
            progress.advance("fedavg", 3, evaluation(version=done))
            now[0] += 61.0
        progress._bars.refresh()
    # 244 s have passed. 15 versions took 122 s, so 75 take 610 s; a resumed run's first versions took no time, and so
    # do not count.
    assert "0:04:04, 0:10:10 left" in screen.getvalue().split("fedavg, seed 3")[-1]


def test_control_c_does_not_leave_a_copy_of_the_bars(make, screen):
    """A terminal shows ^C after the last line: if that is full, the next drawing begins a line too low."""
    with make(StopSection(versions=10), terminal=True) as progress:
        progress.expect(2)
        progress.begin("fedavg", 3)
        progress.advance("fedavg", 3, evaluation(version=4, counted=44))
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", screen.getvalue())
        assert max(map(len, re.split(r"[\r\n]", drawn))) == 96
        before = len(screen.getvalue())
    # At the end the bars are erased: the lines of the finished runs say all.
    assert "\x1b[2K" in screen.getvalue()[before:]


@pytest.mark.parametrize(("known", "shown"), [(0, "1 of 5 done"), (9, "1 of 9 done")])
def test_more_runs_are_added_unless_their_number_was_known(known, shown, screen):
    console = Console(file=screen, force_terminal=True, width=100, no_color=True)
    progress = Progress(console, StopSection(versions=10), "accuracy", known)
    for runs in (3, 2):
        with progress:
            progress.expect(runs)
            progress.begin("fedavg", runs)
            progress.advance("fedavg", runs, evaluation(version=10))
            if runs == 3:
                progress.end("fedavg", runs)
    last = screen.getvalue().split("all runs")[-1]
    assert shown in last
