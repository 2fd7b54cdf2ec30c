"""``offbeat benchmark`` in a tiny world."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from offbeat.runs import directory as run_directory
from offbeat_studies.benchmark import raw_data
from offbeat_studies.benchmark.world import world_names

WORLD = str(Path(__file__).parents[1] / "benchmark" / "tiny_world.toml")
MINE = '''
from offbeat.algorithms import FedBuff


class Mine(FedBuff):
    """FedBuff under another name."""

    name = "mine"
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder; it holds an algorithm."""
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*names, seeds=2, output="out"):
    return ("benchmark", *names, "--world", WORLD, "--seeds", str(seeds), "--output", output)


def test_a_world_without_the_algorithm_is_left_out(offbeat, folder):
    message = f"fedprox: not in {WORLD}: name another world\n"
    code, out, err = offbeat(*command("fedprox"))
    assert (code, out, err) == (2, "", f"offbeat: {message}")


def at_the_end(run):
    """Return the mean accuracy from 16 to 20 s, linear between evaluations."""
    seconds, accuracy = run.history["seconds"], run.history["accuracy"]
    fine = np.linspace(16.0, 20.0, 4001)
    return np.interp(fine, seconds, accuracy).mean()


def test_an_algorithm_of_ones_own_is_tuned_and_placed_beside_others(offbeat, folder, monkeypatch):
    code, out, err = offbeat(*command("fedavg", "rennala", "my.py:Mine"))
    assert (code, err) == (0, "")
    budget = next(line for line in out.splitlines() if line.startswith("tiny_world: "))
    assert re.fullmatch(
        r"tiny_world: 3 algorithms, 9 trials of half length on seed 0 and 6 runs on seeds 1 to 2; about \S+ \w+ of "
        r"processor time in all, by a short run of each",
        budget,
    )
    assert out.index(budget) < out.index("fedavg 0, seed 0")
    table = pq.read_table("out/tiny_world.parquet")
    assert table.schema == raw_data.SCHEMA
    assert set(table["algorithm"].to_pylist()) == {"fedavg", "rennala", "Mine"}
    assert set(table["seed"].to_pylist()) == {1, 2}
    facts = json.loads(Path("out/tiny_world.json").read_text(encoding="utf-8"))
    for label, fact in facts.items():
        run = run_directory.read(Path(f"out/tiny_world/{label}-seed1"))
        table = {**run.config["algorithms"][label], "local": run.config["local"]}
        for key, value in fact["settings"].items():
            outer, _, inner = key.partition(".")
            assert (table[outer][inner] if inner else table[outer]) == value
        assert run.config["stop"]["virtual_seconds"] == 40.0
        trials = [run_directory.read(Path(f"out/tiny_world/{label} {number}-seed0")) for number in range(3)]
        assert {one.config["stop"]["virtual_seconds"] for one in trials} == {20.0}
        accuracies = [at_the_end(one) for one in trials]
        assert [accuracy for accuracy, _ in fact["trials"]] == pytest.approx(accuracies, abs=1e-4)
        best = trials[accuracies.index(max(accuracies))]
        assert best.config["local"]["lr"] == run.config["local"]["lr"]
    assert run_directory.read(Path("out/tiny_world/rennala-seed1")).config["server"]["max_staleness"] == 0
    assert "Mine *" in out


def test_nothing_is_tried_where_nothing_is_to_be_chosen(offbeat, folder):
    world = folder / "taken_over.toml"
    text = Path(WORLD).read_text(encoding="utf-8").replace("without", 'settings_of = "longtail"\nwithout')
    world.write_text(text.replace("space =", "seeds = 2  #"), encoding="utf-8")
    arguments = ("benchmark", "fedbuff", "my.py:Mine", "--world", str(world), "--output", "out")
    code, out, err = offbeat(*arguments)
    assert (code, err) == (0, "")
    # Mine has no settings there, so it is tuned.
    assert re.search(r"^taken_over: 2 algorithms, 3 trials of half length on seed 0 and 4 runs", out, re.MULTILINE)
    code, out, err = offbeat(*arguments[:2], *arguments[3:-1], "alone")
    assert (code, err) == (0, "")
    assert re.search(r"^taken_over: 1 algorithm, 2 runs on seeds 1 to 2; about", out, re.MULTILINE)
    fact = json.loads((folder / "alone" / "taken_over.json").read_text(encoding="utf-8"))["fedbuff"]
    assert fact["settings"] == raw_data.published("longtail").facts["fedbuff"]["settings"]
    assert fact["trials"] == []
    assert sorted(path.name for path in (folder / "alone" / "taken_over").iterdir()) == [
        "fedbuff-seed1",
        "fedbuff-seed2",
    ]


def test_the_rows_are_those_of_the_runs(offbeat, folder):
    assert offbeat(*command("fedbuff"))[0] == 0
    table = pq.read_table("out/tiny_world.parquet").to_pydict()
    run = run_directory.read(Path("out/tiny_world/fedbuff-seed2"))
    rows = [place for place, seed in enumerate(table["seed"]) if seed == 2]
    for name in ("seconds", "accuracy", "loss", "version", "counted"):
        assert [table[name][row] for row in rows] == run.history[name].tolist()
    sent = run.history["bytes_down"] + run.history["bytes_up"]
    assert [table["bytes"][row] for row in rows] == sent.tolist()
    # The slots of FedBuff are never empty: so many clients work all the time.
    clients = run.config["algorithms"]["fedbuff"]["concurrency"]
    assert table["client_seconds"][rows[-1]] == pytest.approx(40.0 * clients, rel=0.05)


@pytest.mark.long
def test_another_algorithm_joins_the_data_that_are_there(offbeat, folder):
    assert offbeat(*command("fedavg"))[0] == 0
    before = {path: path.stat().st_mtime_ns for path in Path("out/tiny_world").glob("fedavg*/*")}
    assert offbeat(*command("my.py:Mine"))[0] == 0
    assert set(pq.read_table("out/tiny_world.parquet")["algorithm"].to_pylist()) == {"fedavg", "Mine"}
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.long
def test_published_data_stand_beside_own_ones(offbeat, folder, monkeypatch):
    assert offbeat(*command("fedavg", output="published"))[0] == 0
    monkeypatch.setattr(raw_data, "published", lambda world: raw_data.read(Path("published"), world))
    code, out, _ = offbeat(*command("my.py:Mine"))
    assert code == 0
    rows = out.partition("tiny_world: Six clients")[2]
    assert "Mine *" in rows
    assert re.search(r"^\s*fedavg  ", rows, re.MULTILINE)


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.long
def test_a_killed_benchmark_resumes_to_the_same_data(offbeat, folder):
    assert offbeat(*command("fedbuff", output="whole"))[0] == 0
    delays = random.Random(5)
    codes: list[int] = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "offbeat", *command("fedbuff")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        before = len(list(Path("out/tiny_world").glob("*-seed*")))
        while process.poll() is None and len(list(Path("out/tiny_world").glob("*-seed*"))) < before + 2:
            time.sleep(0.005)
        time.sleep(delays.uniform(0, 0.1))
        process.kill()
        codes.append(process.wait())
    assert codes[0] == -signal.SIGKILL
    assert not Path("out/tiny_world.parquet").exists()
    code, out, _ = offbeat(*command("fedbuff"))
    assert code == 0
    assert " are finished; about " in out
    assert Path("out/tiny_world.parquet").read_bytes() == Path("whole/tiny_world.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fedbuf"], "fedbuf: did you mean 'fedbuff'?"),
        (["--world", "lontail"], "--world lontail: did you mean 'longtail'?"),
        (["--world", "none.toml"], "no such file: none.toml"),
        (["my.py:Nothing"], "'{}/my.py:Nothing': there is no 'Nothing'"),
        (["none.py:Mine"], "'{}/none.py:Mine': "),
        (["--seeds", "1"], "Invalid value for '--seeds'"),
        (["my.py:Mine", "--over", "server_lr=3:1"], "--over server_lr=3:1: the range is empty"),
        (["fedavg", "--over", "server_lr=1:3"], "--over server_lr=1:3: is for an algorithm of your own"),
    ],
)
def test_a_mistake_is_one_line(arguments, line, offbeat, folder):
    code, out, err = offbeat("benchmark", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"offbeat: {line.format(folder)}")
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_without_a_name_a_world_whose_packages_are_missing_is_left_out(offbeat, folder, monkeypatch):
    monkeypatch.setattr("offbeat_studies.benchmark.world.world_names", lambda: ["sst2-longtail", WORLD])
    monkeypatch.setitem(sys.modules, "peft", None)
    code, out, err = offbeat("benchmark", "fedavg", "--seeds", "2", "--output", "out")
    assert (code, err) == (0, "")
    assert re.match(r"sst2-longtail is left out: MiniLM needs the package peft \(.*\): pip install gt-", out)
    assert [path.name for path in Path("out").glob("*.parquet")] == ["tiny_world.parquet"]
    code, out, err = offbeat("benchmark", "fedavg", "--world", "sst2-longtail", "--world", WORLD, "--output", "out")
    assert (code, out) == (2, "")
    assert err.startswith("offbeat: MiniLM needs the package peft")


@pytest.mark.long
def test_missing_data_are_one_line(offbeat, folder, monkeypatch):
    monkeypatch.setenv("OFFBEAT_DATA", str(folder))
    monkeypatch.setenv("OFFBEAT_OFFLINE", "1")
    code, _, err = offbeat("benchmark", "fedavg", "--world", "calm")
    assert code == 2
    assert err.count("\n") == 1
    assert "fashion-mnist" in err
    code, out, err = offbeat("benchmark", "fedavg")
    assert code == 2
    assert err.count("\n") == 1
    assert out.count(" is left out: ") == len(world_names()) - 1
