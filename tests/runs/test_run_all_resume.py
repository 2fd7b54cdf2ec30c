"""Runs that are stopped and continued."""

import signal

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import load
from offbeat.runs import run_all as runner
from offbeat.runs.directory import read
from offbeat.runs.interruption import InterruptedRunError, Interruption
from tests.runs.conftest import names

RULE = """
def rule(client, last, clients):
    return last + 1 + client % 3
"""

ROWS = """
import numpy as np
import torch
from torch.utils.data import TensorDataset

def rows():
    torch.rand(np.random.randint(1, 9))
    inputs = torch.randn(80, 64)
    labels = (inputs[:, 0] > 0).long()
    return TensorDataset(inputs[:60], labels[:60]), TensorDataset(inputs[60:], labels[60:])
"""


@pytest.fixture
def stopping(monkeypatch):
    """Return a function that makes runs stop, as by a signal, at their so many-th chance to."""

    def after(chances):
        left = [chances]

        def check(_):
            left[0] -= 1
            if left[0] == 0:
                raise InterruptedRunError(signal.SIGTERM)

        monkeypatch.setattr(Interruption, "check", check)

    return after


class TestResume:
    def test_resumes_where_it_stopped(self, experiment, run, tmp_path, files, stopping):
        here = experiment("seeds=[1, 2]")
        run(here, "whole", ["fedavg", "fedbuff"])
        for chances in (50, 150, 120):
            stopping(chances)
            with pytest.raises(InterruptedRunError):
                run(here, "out", ["fedavg", "fedbuff"])
        assert any(name.endswith(".unfinished") for name in names(tmp_path / "out"))
        stopping(-1)
        said = run(here, "out", ["fedavg", "fedbuff"])
        assert files(tmp_path / "out") == files(tmp_path / "whole")
        assert "of 4 runs are finished" in said

    def test_clients_evaluations_resume_too(self, experiment, run, tmp_path, files, stopping):
        on_clients = ("population.holdout=0.25", "evaluate={ every_versions = 1, on_clients = 6 }")
        here = experiment(*on_clients, "stop.patience=3", "stop.metric=client_accuracy")
        run(here, "whole", ["fedbuff"])
        assert read(tmp_path / "whole" / "fedbuff-seed1").history["seconds"][-1] < here.stop.virtual_seconds
        for chances in (20, 40):
            stopping(chances)
            with pytest.raises(InterruptedRunError):
                run(here, "out", ["fedbuff"])
        assert "clients-00000.parquet" in names(tmp_path / "out" / "fedbuff-seed1.unfinished")
        stopping(-1)
        run(here, "out", ["fedbuff"])
        assert files(tmp_path / "out") == files(tmp_path / "whole")
        run(load(tmp_path / "out" / "fedbuff-seed1" / "config.toml"), "again", ["fedbuff"])
        assert files(tmp_path / "again") == files(tmp_path / "whole")

    def test_finished_runs_stay_as_they_are(self, experiment, run, tmp_path, monkeypatch):
        small = experiment("stop.virtual_seconds=20")
        run(small, "out")
        # What a kill in the last moment of a run leaves.
        (tmp_path / "out" / "fedavg-seed1.unfinished").mkdir()
        monkeypatch.setattr(runner, "carry_out", lambda *_, **__: pytest.fail("ran again"))
        said = run(small, "out")
        assert said == "3 of 3 runs are finished\n"
        assert names(tmp_path / "out") == {f"{label}-seed1" for label in ("fedavg", "fedasync", "fedbuff")}

    def test_a_run_that_replaces_another_is_resumed(self, experiment, run, stopping, files, tmp_path):
        here = experiment("local.lr=0.2")
        run(here, "whole", ["fedavg"])
        run(experiment(), "out", ["fedavg"])
        stopping(60)
        with pytest.raises(InterruptedRunError):
            run(here, "out", ["fedavg"], fresh=True)
        stopping(-1)
        run(here, "out", ["fedavg"])
        assert files(tmp_path / "out") == files(tmp_path / "whole")

    def test_a_users_pattern_is_identified_by_its_file(self, experiment, run, tmp_path):
        (tmp_path / "rules.py").write_text(RULE)
        pattern = "{ name = 'rules.py:rule', longest_gap = 3 }"
        table = f"algorithms={{ mine = {{ algorithm = 'async_comm_sgd', pattern = {pattern} }} }}"
        here = experiment(table, "stop.virtual_seconds=20")
        run(here, "out", ["mine"])
        run(load(tmp_path / "out" / "mine-seed1" / "config.toml"), "again", ["mine"])
        one, again = (read(tmp_path / folder / "mine-seed1") for folder in ("out", "again"))
        assert one.history["loss"].tolist() == again.history["loss"].tolist()
        assert one.history["version"][-1] == 20
        (tmp_path / "rules.py").write_text(RULE + "# other")
        with pytest.raises(OffbeatError, match=r"rules\.py has changed since .*mine-seed1 was begun"):
            run(here, "out", ["mine"])

    def test_users_data_with_random_numbers_are_the_same_in_each_process(self, experiment, run, tmp_path):
        (tmp_path / "rows.py").write_text(ROWS)
        here = experiment("data.name=rows.py:rows", "stop.virtual_seconds=20", "seeds=[1, 2]")
        for folder, jobs in (("one", 1), ("two", 2)):
            run(here, folder, ["fedavg"], jobs=jobs)
        for seed in (1, 2):
            one, two = (read(tmp_path / folder / f"fedavg-seed{seed}") for folder in ("one", "two"))
            assert one.history["loss"].tolist() == two.history["loss"].tolist()

    def test_an_unfinished_run_is_resumed_or_begun_anew_but_not_with_other_settings(
        self, experiment, run, stopping, tmp_path
    ):
        other = experiment("local.lr=0.2")
        here = experiment()
        stopping(60)
        with pytest.raises(InterruptedRunError):
            run(here, "out", ["fedavg"])
        stopping(-1)
        with pytest.raises(OffbeatError, match=r"fedavg-seed1\.unfinished holds a run with other.*--fresh"):
            run(other, "out", ["fedavg"])
        assert "fedavg-seed1.unfinished" in names(tmp_path / "out")
        run(other, "out", ["fedavg"], fresh=True)
        assert names(tmp_path / "out") == {"fedavg-seed1"}
        assert read(tmp_path / "out" / "fedavg-seed1").config["local"]["lr"] == 0.2

    def test_fresh_runs_with_changed_code_are_resumed_after_a_stop(self, experiment, run, stopping, tmp_path):
        """Also those that had not begun: their earlier runs, with the other code, are gone."""
        here = experiment("data.name=rows.py:rows", "seeds=[1, 2]")
        (tmp_path / "rows.py").write_text(ROWS)
        run(here, "out", ["fedavg"])
        (tmp_path / "rows.py").write_text(ROWS + "# changed")
        with pytest.raises(OffbeatError, match=r"rows\.py has changed since .* run again with --fresh$"):
            run(here, "out", ["fedavg"])
        stopping(5)
        with pytest.raises(InterruptedRunError):
            run(here, "out", ["fedavg"], fresh=True)
        stopping(-1)
        said = run(here, "out", ["fedavg"])
        assert said.count("updates") == 2
