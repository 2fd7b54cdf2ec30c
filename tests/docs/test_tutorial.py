"""The tutorial and the how-to pages work as written: their files, their commands in order, and what they say.

The commands are run as they stand there, but the long ones with one seed instead of three, a quarter of an hour instead
of one and one process, and the tracker is TensorBoard, whose start is the shortest. All run within this process but the
one that is interrupted. The how-to pages continue in the tutorial's folder.
"""

import csv
import io
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pandas
import pytest

from offbeat.cli.main import main
from offbeat.runs import directory as run_directory

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = ("opening-hours", "own-loss-and-metric", "stop-and-resume", "two-worlds", "own-algorithm", "own-selection")
PAGES = [(DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tutorial", *(f"how-to/{n}" for n in HOW_TO))]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", re.MULTILINE)
QUARTER = ["--set", "seeds=[1]", "--set", "stop.virtual_seconds=900.0"]
QUICK = {"run": [*QUARTER, "--jobs", "1"], "compare": [*QUARTER, "--jobs", "1"], "track": ["--to", "tensorboard"]}

pytestmark = pytest.mark.long  # make docs runs it


def run_here(words, patch):
    """Run one command in this process; return exit code and output."""
    patch.setattr(sys, "argv", words)
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        if words[0] == "python":
            runpy.run_path(words[1], run_name="__main__")
            return 0, output.getvalue()
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code or 0, output.getvalue()


def run_and_interrupt(words, folder):
    """Run one command in a process, and press Ctrl-C while a run is going on."""
    program = Path(sys.executable).parent / words[0]
    process = subprocess.Popen(
        [program, *words[1:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while process.poll() is None and not [*folder.glob("runs/again/*.unfinished")]:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Return the folder in which all pages were followed, and (shown, exit code, output) of each command."""
    folder = tmp_path_factory.mktemp("tutorial")
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for page in PAGES:
            for language, title, text in BLOCK.findall(page):
                if title:
                    Path(title).write_text(text, encoding="utf-8")
                for command, shown in COMMAND.findall(text) if language == "console" else ():
                    words = [*shlex.split(command), *QUICK.get(command.split()[1], [])]
                    if words[0] == "cd":
                        patch.chdir(words[1])
                        patch.syspath_prepend(Path.cwd())
                    else:
                        results[command] = shown, *run(words, shown, patch)
        folder = Path.cwd()
    for module in ("clipped", "data", "model", "caution", "oort"):
        sys.modules.pop(module, None)
    return folder, results


def run(words, shown, patch):
    """Run one command; return exit code and output."""
    if "^C" in shown:
        return run_and_interrupt(words, Path.cwd())
    return run_here(words, patch)


def output_of(results, beginning):
    """Return the output of the only command that begins so."""
    (output,) = (output for command, (_, _, output) in results.items() if command.startswith(beginning))
    return output


def test_every_command_ends_as_the_page_says(followed):
    _, results = followed
    assert len(results) == 15
    for shown, code, output in results.values():
        assert code == (128 + signal.SIGINT if "^C" in shown else 0), output
        assert "Traceback" not in output


def test_the_pages_show_what_the_commands_print(followed):
    """All but the numbers: the names of rows, of files, of runs that end and of the next command."""
    _, results = followed
    for command, (shown, _, output) in results.items():
        for line in shown.splitlines():
            row = re.match(r" ?([A-Z][\w-]*(?: [a-z]\w*)*)  ", line)
            if row:
                assert f" {row[1]} " in output, f"{command}: {row[1]}"
            elif re.search(r"^(Report|CSV|Drawing|Next): |^hospitals: ", line):
                assert line in output.splitlines()
            elif re.match(r"[\w-]+, seed 1: .* updates$", line) and "^C" not in shown:
                end = re.compile(rf"^{line.split(':')[0]}: (missed )?[\d.]+( %)? after [\d,]+ updates$", re.MULTILINE)
                assert end.search(output), f"{command}: {line}"
    assert "tensorboard: 32 evaluations sent" in output_of(results, "offbeat track")
    assert "mlflow: 366 evaluations sent" in PAGES[0]  # of three seeds and an hour


def test_the_population_is_drawn_before_anything_is_trained(followed):
    folder, results = followed
    for name in ("experiment", "hours"):
        assert (folder / f"runs/{name}/population.png").stat().st_size > 10_000
    share = re.search(r"Available clients +(.*)", output_of(results, "offbeat population hours.toml"))[1].split("%")
    assert float(share[2]) == pytest.approx(60, abs=3)  # the mean: six in ten


def test_the_report_shows_what_the_tutorial_reads_in_it(followed):
    folder, _ = followed
    runs = {label: run_directory.read(folder / f"runs/experiment/{label}-seed1") for label in ("fedavg", "fedbuff")}
    counted = {label: run.history["counted"][-1] for label, run in runs.items()}
    assert counted["fedbuff"] > 4 * counted["fedavg"]
    assert all(run.history["accuracy"][-1] > 0.9 for run in runs.values())
    assert all((run.events["outcome"] == "lost").any() for run in runs.values())
    staleness = {label: pandas.DataFrame(dict(run.events)).staleness.max() for label, run in runs.items()}
    assert staleness["fedavg"] == 0 < staleness["fedbuff"]
    assert (folder / "runs/experiment/report.html").exists()


def test_fedavg_never_learns_from_the_slow_hospital(followed):
    folder, _ = followed
    runs = {label: run_directory.read(folder / f"runs/hours/{label}-seed1") for label in ("fedavg", "fedbuff")}
    slow = {label: run.events["outcome"][run.events["client"] == 6] for label, run in runs.items()}
    assert "unused" in slow["fedavg"]
    assert "counted" not in slow["fedavg"]
    assert "counted" in slow["fedbuff"]
    staleness = pandas.DataFrame(dict(runs["fedbuff"].events)).groupby("client").staleness.max()
    assert staleness.idxmax() == 6


def test_the_own_metric_is_what_is_compared(followed):
    folder, results = followed
    table = output_of(results, "offbeat compare experiment.toml --jobs 2 --output runs/cautious")
    assert "Final missed" in table
    assert "Time to missed 0.02" in table
    run = run_directory.read(folder / "runs/cautious/fedbuff-seed1")
    tested = pandas.read_csv(folder / "cells.csv").sample(frac=1, random_state=0)[450:]
    missed = run.history["missed"] * (tested.target == 0).sum()
    assert missed == pytest.approx(missed.round())  # whole tumours
    assert run.history["missed"][-1] < 0.1


def test_a_resumed_run_is_as_if_nothing_had_happened(followed):
    folder, results = followed
    (stopped,) = (output for _, code, output in results.values() if code)
    assert "the same command resumes" in stopped
    for label in ("fedavg", "fedbuff"):
        for file in ("history.parquet", "events.parquet", "model.safetensors"):
            again, first = (folder / "runs" / name / f"{label}-seed1" / file for name in ("again", "experiment"))
            assert again.read_bytes() == first.read_bytes()


def test_the_report_covers_both_worlds(followed):
    folder, _ = followed
    with (folder / "runs/both/summary.csv").open(encoding="utf-8", newline="") as file:
        labels = {row["label"] for row in csv.DictReader(file)}
    assert labels == {f"{world}/{name}" for world in ("experiment", "phones") for name in ("fedavg", "fedbuff")}


def test_the_own_algorithm_joins_the_finished_runs(followed):
    folder, results = followed
    assert "2 of 3 runs are finished" in output_of(results, "offbeat compare experiment.toml --set algorithms.clipped")
    runs = [run_directory.read(folder / f"runs/experiment/{label}-seed1") for label in ("fedbuff", "clipped")]
    assert runs[0].history["counted"].tolist() == runs[1].history["counted"].tolist()
    assert runs[0].history["loss"].tolist() != runs[1].history["loss"].tolist()


def test_the_own_selection_prefers_fast_hospitals(followed):
    folder, results = followed
    assert "1 of 2 runs are finished" in output_of(results, "offbeat compare experiment.toml --set algorithms.oort")
    runs = [run_directory.read(folder / f"runs/experiment/{label}-seed1") for label in ("fedavg", "oort")]
    slow = [(run.events["client"] == 6).mean() for run in runs]  # the slowest one
    assert slow[1] < slow[0]


def test_what_a_run_wrote_can_be_read_as_the_page_on_python_says(followed, monkeypatch):
    folder, _ = followed
    *_, example = re.findall(r"```python\n(.*?)```", (DOCS / "concepts/python.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    names = {}
    exec(example, names)
    del sys.modules["model"]
    assert len(names["slow"]) == 8
    assert len(names["history"]) == 16
