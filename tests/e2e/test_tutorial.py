"""The tutorial works as written: its files, its commands in their order, and what the page says of the results.

The commands are run as they stand there, but the long ones with one seed instead of three and one process, and all
within this process but the one that is interrupted, which is the ``offbeat`` of the environment.
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
PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
QUICK = {"run": ["--set", "seeds=[1]"], "compare": ["--set", "seeds=[1]", "--jobs", "1"]}


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
    """Return the folder in which the whole page was followed, and (exit code, output) of each command."""
    folder = tmp_path_factory.mktemp("tutorial")
    for title, content in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE):
        (folder / title).write_text(content, encoding="utf-8")
    assert len(COMMANDS) == 10
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for command, shown in COMMANDS:
            words = [*shlex.split(command), *QUICK.get(command.split()[1], [])]
            results[command] = run_and_interrupt(words, folder) if "^C" in shown else run_here(words, patch)
    return folder, results


def output_of(results, beginning):
    """Return the output of the only command that begins so."""
    (output,) = (output for command, (_, output) in results.items() if command.startswith(beginning))
    return output


def test_every_command_ends_as_the_page_says(followed):
    _, results = followed
    for command, shown in COMMANDS:
        code, output = results[command]
        assert code == (128 + signal.SIGINT if "^C" in shown else 0), output
        assert "Traceback" not in output


def test_the_page_shows_what_the_commands_print(followed):
    """All but the numbers: the names of rows and of files."""
    _, results = followed
    for command, shown in COMMANDS:
        _, output = results[command]
        for line in shown.splitlines():
            row = re.match(r" ?([A-Z][\w-]*(?: [a-z]\w*)*)  ", line)
            file = re.search(r"(Report|CSV|Drawing): \S+$", line)
            if row:
                assert f" {row[1]} " in output, f"{command}: {row[1]}"
            elif file:
                assert file[0] in output.splitlines()


def test_the_population_is_drawn_before_anything_is_trained(followed):
    folder, results = followed
    assert (folder / "runs/experiment/population.png").stat().st_size > 10_000
    share = re.search(r"Available clients +(.*)", output_of(results, "offbeat population"))[1].split("%")
    assert float(share[2]) == pytest.approx(60, abs=3)  # the mean: six in ten


def test_both_algorithms_are_compared(followed):
    folder, results = followed
    table = output_of(results, "offbeat compare experiment.toml --set algorithms.clipped")
    assert re.search(r"^ +fedavg +fedbuff +clipped *$", table, re.MULTILINE)
    runs = {label: run_directory.read(folder / f"runs/experiment/{label}-seed1") for label in ("fedavg", "fedbuff")}
    counted = {label: run.history["counted"][-1] for label, run in runs.items()}
    assert counted["fedbuff"] > 4 * counted["fedavg"]
    assert all(run.history["accuracy"][-1] > 0.9 for run in runs.values())
    slow = {label: run.events["outcome"][run.events["client"] == 6] for label, run in runs.items()}
    assert "unused" in slow["fedavg"]
    assert "counted" not in slow["fedavg"]
    assert "counted" in slow["fedbuff"]
    assert all((run.events["outcome"] == "lost").any() for run in runs.values())
    staleness = pandas.DataFrame(dict(runs["fedbuff"].events)).groupby("client").staleness.max()
    assert staleness.idxmax() == 6  # the slow one
    assert (folder / "runs/experiment/report.html").exists()


def test_the_own_metric_is_what_is_compared(followed):
    folder, results = followed
    table = output_of(results, "offbeat compare experiment.toml --jobs 2")
    assert "Final missed" in table
    assert "Time to missed 0.02" in table
    run = run_directory.read(folder / "runs/cautious/fedbuff-seed1")
    tested = pandas.read_csv(folder / "cells.csv").sample(frac=1, random_state=0)[450:]
    missed = run.history["missed"] * (tested.target == 0).sum()
    assert missed == pytest.approx(missed.round())  # whole tumours
    assert run.history["missed"][-1] < 0.1


def test_a_resumed_run_is_as_if_nothing_had_happened(followed):
    folder, results = followed
    (stopped,) = (output for command, (code, output) in results.items() if code)
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


def test_what_a_run_wrote_can_be_read_as_the_page_on_python_says(followed, monkeypatch):
    folder, _ = followed
    *_, example = re.findall(r"```python\n(.*?)```", (DOCS / "concepts/python.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    names = {}
    exec(f"from hospitals import Net\n{example}", names)
    del sys.modules["hospitals"]
    assert names["slow"].idxmax() == 6
    assert len(names["history"]) == 61
