import multiprocessing
import os
import signal
import time

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.runs.directory import read
from offbeat.runs.interruption import InterruptedRunError, Interruption
from offbeat.runs.run import RunTask
from offbeat.runs.run_all import run_all
from offbeat.runs.worker_processes import Workers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

# Far more than a test waits for.
ENDLESS = ("stop={ versions = 100000000 }", "evaluate.every_seconds=1e6")

ROWS = """
import multiprocessing

import torch
from torch.utils.data import DataLoader, TensorDataset

def rows_of_processes():
    train, test = rows()
    with multiprocessing.Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
    labels = torch.cat([labels for _, labels in DataLoader(train, batch_size=50, num_workers=1)])
    return TensorDataset(train.tensors[0], labels), test

def rows():
    inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(1))
    labels = (inputs[:, 0] > 0).long()
    return TensorDataset(inputs[:150], labels[:150]), TensorDataset(inputs[150:], labels[150:])
"""


class Lines:
    """A line for each event of runs; a test replaces a method to act at one."""

    def __init__(self):
        self.lines = []

    def begin(self, label, seed):
        self.lines.append(f"begin {label} {seed}")

    def advance(self, label, seed, now):
        self.lines.append(f"{label} {seed} {now.seconds:g}")

    def end(self, label, seed):
        self.lines.append(f"end {label} {seed}")


@pytest.fixture
def parallel(tmp_path):
    """Return a function that runs an experiment in processes, and returns a line for each event."""

    def run(experiment, labels, jobs, interruption=None, **methods):
        tasks = [
            RunTask(experiment, label, seed, tmp_path / f"{label}-seed{seed}", 1e6, "")
            for label in labels
            for seed in experiment.seeds
        ]
        progress = Lines()
        vars(progress).update(methods)
        with Workers(jobs) as workers:
            workers.carry_out(tasks, progress, interruption or Interruption())
        return progress.lines

    return run


def test_several_jobs_write_the_same_files_as_one_also_with_other_data(
    experiment, progress, tmp_path, files, monkeypatch
):
    here = experiment("seeds=[1, 2]", "stop.virtual_seconds=40", "model={ name = 'mlp', hidden = [4] }")
    (tmp_path / "rows_elsewhere.py").write_text(ROWS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    there = experiment("seeds=[1, 2]", "stop.virtual_seconds=40", "data.name='rows_elsewhere:rows'")
    with Workers(2) as workers:
        for name, one in (("here", here), ("there", there), ("again", here)):
            runs = run_all(one, ["fedavg"], tmp_path / name, progress(one), jobs=2, workers=workers)
        living = multiprocessing.active_children()
    assert len(living) == 2
    assert multiprocessing.active_children() == []
    assert [run.path.name for run in runs] == ["fedavg-seed1", "fedavg-seed2"]
    for name, one in (("here alone", here), ("there alone", there)):
        run_all(one, ["fedavg"], tmp_path / name, progress(one))
    assert files(tmp_path / "again") == files(tmp_path / "here") == files(tmp_path / "here alone")
    assert files(tmp_path / "there") == files(tmp_path / "there alone")


def test_users_code_may_start_processes(experiment, progress, tmp_path, files, monkeypatch):
    (tmp_path / "rows_elsewhere.py").write_text(ROWS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("rows", "rows_of_processes"):
        there = experiment("seeds=[1, 2]", "stop.virtual_seconds=20", f"data.name='rows_elsewhere:{name}'")
        run_all(there, ["fedavg"], tmp_path / name, progress(there), jobs=2)
    assert (tmp_path / "rows_of_processes" / "fedavg-seed2" / "model.safetensors").read_bytes() == (
        tmp_path / "rows" / "fedavg-seed2" / "model.safetensors"
    ).read_bytes()


def test_each_algorithm_begins_before_a_second_seed_and_events_come_in_order(experiment, parallel):
    lines = parallel(experiment("seeds=[1, 2]", "stop.virtual_seconds=40"), ["fedavg", "fedbuff"], jobs=2)
    for name in ("fedavg 1", "fedavg 2", "fedbuff 1", "fedbuff 2"):
        mine = [line for line in lines if name in line]
        assert mine == [f"begin {name}", *(f"{name} {t}" for t in (0, 20, 40)), f"end {name}"]
    begun = [line for line in lines if line.startswith("begin")]
    assert lines[:2] == begun[:2] == ["begin fedavg 1", "begin fedbuff 1"]
    # The third begins when one of the first two has ended.
    assert lines.index(begun[2]) > min(lines.index("end fedavg 1"), lines.index("end fedbuff 1"))


def test_each_algorithm_begins_once_and_then_the_slowest(experiment, parallel):
    begun = []

    def report(label, seed, _):
        if f"{label} {seed}" not in begun:
            begun.append(f"{label} {seed}")
        if label == "fedbuff":
            time.sleep(0.5)

    here = experiment("seeds=[1, 2]", "stop.virtual_seconds=40")
    parallel(here, ["fedavg", "fedasync", "fedbuff"], jobs=1, advance=report)
    assert begun[:3] == ["fedavg 1", "fedasync 1", "fedbuff 1"]
    # How long fedavg took has the start of its process in it.
    assert set(begun[3:5]) == {"fedavg 2", "fedbuff 2"}
    assert begun[5:] == ["fedasync 2"]


class TestStopping:
    def test_a_users_error_in_one_is_raised_and_the_others_can_be_resumed(self, experiment, parallel, tmp_path):
        here = experiment(
            "model={ name = 'mlp', hidden = [4] }", "stop={ virtual_seconds = 1e5 }", "algorithms.fedbuff.local.lr=1e30"
        )
        with pytest.raises(OffbeatError, match=r"client \d+, from version \d+: "):
            parallel(here, ["fedavg", "fedbuff"], jobs=2)
        assert multiprocessing.active_children() == []
        assert not (tmp_path / "fedavg-seed1").exists()
        assert not read(tmp_path / "fedbuff-seed1.unfinished").finished

    def test_a_killed_process_is_one_line(self, experiment, parallel, tmp_path):
        def kill(*_):
            child = multiprocessing.active_children()[0]
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

        with pytest.raises(OffbeatError) as caught:
            parallel(experiment(*ENDLESS), ["fedavg"], jobs=1, advance=kill)
        line = str(caught.value)
        assert "\n" not in line
        assert "the process of fedavg, seed 1, was killed (exit code -9)" in line
        assert "fewer --jobs" in line
        assert multiprocessing.active_children() == []

    def test_an_early_sigterm_is_an_interruption(self, experiment, parallel):
        def terminate(*_):
            for child in multiprocessing.active_children():
                child.terminate()

        with pytest.raises(InterruptedRunError, match="SIGTERM"):
            parallel(experiment(*ENDLESS), ["fedavg"], jobs=1, begin=terminate)
        assert multiprocessing.active_children() == []

    def test_an_interruption_lets_each_write_its_checkpoint(self, experiment, parallel, tmp_path):
        interruption = Interruption()
        gone_on = set()

        def ask(label, _, now):
            if now.seconds > 0:
                gone_on.add(label)
            if len(gone_on) == 2:
                interruption.signal = signal.SIGINT

        here = experiment(*ENDLESS, "evaluate.every_seconds=100")
        with pytest.raises(InterruptedRunError, match="SIGINT"):
            parallel(here, ["fedavg", "fedbuff"], jobs=2, advance=ask, interruption=interruption)
        assert multiprocessing.active_children() == []
        for label in ("fedavg", "fedbuff"):
            folder = tmp_path / f"{label}-seed1.unfinished"
            assert (folder / "checkpoint.safetensors").exists()
            assert len(read(folder).events["client"]) > 10
