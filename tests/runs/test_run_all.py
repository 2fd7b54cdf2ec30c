import json
from pathlib import Path

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from offbeat.config.experiment_file import load
from offbeat.data.catalogue import DATASETS
from offbeat.data.dataset import MissingDataError
from offbeat.report.metrics import measures_of
from offbeat.runs.directory import read
from offbeat.runs.run_all import check_runs, run_all
from offbeat.simulation.simulator import Simulation
from offbeat.training.models import softmax_regression
from offbeat.training.trainers.loop import LoopBackend
from tests.runs.conftest import ALL as LABELS
from tests.runs.conftest import NET, names


class TestRuns:
    def test_the_same_settings_give_the_same_files_whatever_ran_before(self, experiment, run, files, tmp_path):
        here = experiment("model.name=mlp", "model.hidden=[4]", "stop.virtual_seconds=20")
        one = run(here, "one")
        torch.rand(17)
        two = run(here, "two", LABELS[::-1])
        assert sorted(one.splitlines()) == sorted(two.splitlines())
        assert names(tmp_path / "one") == {f"{label}-seed1" for label in LABELS}
        assert files(tmp_path / "one") == files(tmp_path / "two")

    def test_the_resolved_configuration_gives_the_same_files_from_elsewhere(
        self, experiment, run, files, tmp_path, monkeypatch
    ):
        (tmp_path / "speeds.csv").write_text("step_seconds\n" + "".join(f"{i + 1}\n" for i in range(20)))
        (tmp_path / "net.py").write_text(NET)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        changes = (
            "model={ name = 'net.py:Net', loss = 'net.py:loss' }",
            "evaluate.metrics=['net.py:score']",
            "population.step_seconds={ distribution = 'file', path = 'speeds.csv' }",
            "stop.virtual_seconds=40",
            'algorithms.mine={ algorithm = "fedbuff", buffer_size = 3, concurrency = 5, local = { mu = 0.1 } }',
        )
        run(experiment(*changes), "one", ["mine"])
        (tmp_path / "far" / "away").mkdir(parents=True)
        config = tmp_path / "far" / "away" / "config.toml"
        config.write_bytes((tmp_path / "one" / "mine-seed1" / "config.toml").read_bytes())
        monkeypatch.chdir(tmp_path / "far")
        run(load(Path("away/config.toml")), "two", ["mine"])
        assert files(tmp_path / "one") == files(tmp_path / "two")
        assert read(tmp_path / "two" / "mine-seed1").history["score"][-1] > 0

    def test_the_resolved_configuration_of_a_flower_app_can_be_loaded(
        self, experiment, run, files, tmp_path, monkeypatch
    ):
        class AppBackend(LoopBackend):  # in the place of the one that needs Flower
            name = "flower"

        monkeypatch.setattr(
            "offbeat.worlds.simulation.build_flower_backend", lambda app, workload, *_: AppBackend(workload)
        )
        run(experiment("flower.app=a:app", "stop.virtual_seconds=20"), "one", ["fedavg"])
        config = tmp_path / "one" / "fedavg-seed1" / "config.toml"
        again = load(config)
        run(again, "two", ["fedavg"])
        assert files(tmp_path / "one") == files(tmp_path / "two")
        assert json.loads(config.with_name("versions.json").read_text())["trainer"] == "flower"

    def test_each_algorithm_with_each_seed(self, experiment, progress, tmp_path):
        here = experiment("seeds=[5, 2]", "stop.virtual_seconds=20", "model.name=mlp", "model.hidden=[4]")
        runs = run_all(here, ["fedbuff", "fedavg"], tmp_path / "out", progress(here))
        assert [(run.label, run.seed) for run in runs] == [
            ("fedbuff", 5), ("fedbuff", 2), ("fedavg", 5), ("fedavg", 2)
        ]  # fmt: skip
        assert [run.path.name for run in runs] == ["fedbuff-seed5", "fedbuff-seed2", "fedavg-seed5", "fedavg-seed2"]
        assert names(tmp_path / "out") == {run.path.name for run in runs}
        assert [run.config["seeds"] for run in runs] == [[5], [2], [5], [2]]
        one, other = runs[0].events["ended_seconds"], runs[1].events["ended_seconds"]
        assert one.tolist() != other.tolist()
        first = [run.history["loss"][0] for run in runs]
        assert first[0] == first[2] != first[1] == first[3]  # the initial model is the seed's
        assert all(run.real_seconds > 0 for run in runs)

    def test_history_and_events_agree(self, tiny_runs):
        for label in LABELS:
            finished = read(tiny_runs[0] / f"{label}-seed1")
            history, events = finished.history, finished.events
            assert history["seconds"].tolist() == [0.0, 20.0, 40.0, 60.0]
            for outcome in ("counted", "unused", "lost"):
                ended = events["ended_seconds"][events["outcome"] == outcome]
                assert history[outcome].tolist() == [np.sum(ended <= now) for now in history["seconds"]]
            assert history["lost"][-1] > 0
            assert history["bytes_up"][-1] == events["bytes_up"].sum()
            assert (np.diff(events["ended_seconds"]) >= 0).all()

    def test_the_model_is_the_last_evaluated_one(self, tiny_runs):
        folder = tiny_runs[0] / "fedbuff-seed1"
        model = load_file(folder / "model.safetensors")
        data = DATASETS["digits"]()
        inputs = data.test_inputs.reshape(len(data.test_inputs), -1)
        outputs = inputs @ model["1.weight"].numpy().T + model["1.bias"].numpy()
        accuracy = read(folder).history["accuracy"]
        assert accuracy[-1] == pytest.approx((outputs.argmax(axis=1) == data.test_labels).mean(), abs=1 / 364)
        assert accuracy[-1] > 2 * accuracy[0]

    def test_a_run_with_other_settings_is_replaced_only_if_it_is_fresh(self, experiment, run, tmp_path):
        run(experiment("stop.virtual_seconds=20"), "out", ["fedbuff"])
        with pytest.raises(OffbeatError, match=r"fedbuff-seed1 holds a run with other settings.*--fresh"):
            run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"])
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 20.0
        run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"], fresh=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 40.0

    def test_prints_a_line_for_each_run(self, tiny_runs):
        folder, output = tiny_runs
        for label, line in zip(LABELS, output.splitlines(), strict=True):
            history = read(folder / f"{label}-seed1").history
            assert line.startswith(f"{label}, seed 1: ")
            assert f" {100 * history['accuracy'][-1]:.1f} % after {history['counted'][-1]} updates" in line


def with_trace(folder, *rows):
    """Return the changes for 20 clients that come at these (start, end), one after the other."""
    lines = [f"{client},{start},{end}" for client, (start, end) in enumerate(rows)]
    (folder / "trace.csv").write_text("\n".join(["client,start_seconds,end_seconds", *lines]), encoding="utf-8")
    return (
        f"population.availability={{ name = 'intervals', path = '{folder / 'trace.csv'}' }}",
        "server.lease_seconds=60",
    )


def test_a_trace_in_unix_time_is_refused_before_any_run(experiment, run, tmp_path):
    here = experiment(*with_trace(tmp_path, *20 * [(1.7e9, 1.8e9)]))
    with pytest.raises(
        OffbeatError, match=r"^population\.availability: no client is available within .*the first time"
    ):
        run(here, "out", ["fedbuff"])
    assert not list((tmp_path / "out").glob("*-seed*"))


def test_clients_that_never_come_are_a_warning_for_all_runs_together(experiment, run, tmp_path):
    here = experiment(*with_trace(tmp_path, *19 * [(0, 1e5)]), "stop.virtual_seconds=5")
    first, *others = run(here, "out", ["fedbuff", "fedasync"]).splitlines()
    assert first == "1 of 20 clients is never available within 5.0 s: 19."
    assert [line.split(",")[0] for line in others] == ["fedbuff", "fedasync"]


def test_more_clients_at_work_than_there_are_is_a_warning(experiment, run):
    here = experiment("algorithms.fedbuff.concurrency=21", "stop.virtual_seconds=5")
    first, second = run(here, "out", ["fedbuff"]).splitlines()
    assert first == "algorithms.fedbuff.concurrency = 21: only 20 clients can work at the same time"
    assert second.startswith("fedbuff, seed 1: ")
    assert "concurrency" not in run(experiment("algorithms.fedbuff.concurrency=20"), "fits", ["fedbuff"])


class TestData:
    def test_the_fallback_is_taken_and_reported(self, experiment, run, files, tmp_path, monkeypatch):
        def fail():
            raise MissingDataError("Fashion-MNIST is nowhere")

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)
        changes = ("data.name=fashion-mnist", "data.fallback=digits", "stop.virtual_seconds=20")
        said = run(experiment(*changes), "fallback", ["fedbuff"])
        first = said.splitlines()[0]
        assert "Fashion-MNIST is nowhere" in first
        assert "digits" in first
        run(experiment("stop.virtual_seconds=20"), "digits", ["fedbuff"])
        assert files(tmp_path / "fallback") == files(tmp_path / "digits")

    @pytest.mark.parametrize(
        ("error", "fallback"),
        [(MissingDataError("it is nowhere"), ()), (OffbeatError("broken"), ("data.fallback=digits",))],
    )
    def test_without_a_fallback_or_with_a_broken_file_it_is_an_error(
        self, error, fallback, experiment, run, monkeypatch
    ):
        def fail():
            raise error

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)
        with pytest.raises(OffbeatError, match=str(error)):
            run(experiment("data.name=fashion-mnist", *fallback), "out")


class TestFailures:
    def test_divergence_names_client_and_version_and_keeps_finished_runs(self, experiment, run, tmp_path):
        here = experiment("model.name=mlp", "model.hidden=[4]", "algorithms.fedbuff.local.lr=1e30")
        with pytest.raises(OffbeatError, match=r"client \d+, from version \d+: .*local\.lr"):
            run(here, "out", ["fedavg", "fedbuff", "fedasync"])
        # What the diverged run had come to can be looked at.
        assert names(tmp_path / "out") == {"fedavg-seed1", "fedbuff-seed1.unfinished"}
        assert read(tmp_path / "out" / "fedavg-seed1").label == "fedavg"
        assert not read(tmp_path / "out" / "fedbuff-seed1.unfinished").finished

    def test_divergence_leaves_an_earlier_run_in_place(self, experiment, run, tmp_path):
        small = ("model.name=mlp", "model.hidden=[4]", "stop.virtual_seconds=20")
        run(experiment(*small), "out", ["fedbuff"])
        path = tmp_path / "out" / "fedbuff-seed1"
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with pytest.raises(OffbeatError, match="diverged"):
            run(experiment(*small, "local.lr=1e30"), "out", ["fedbuff"], fresh=True)
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before
        # After a correction it is enough to run again.
        run(experiment(*small), "out", ["fedbuff"], fresh=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}

    def test_a_folder_that_cannot_be_written_is_refused_before_any_work(self, experiment, run, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setitem(DATASETS, "digits", lambda: pytest.fail("data was loaded"))
        with pytest.raises(OffbeatError, match="cannot write into"):
            run(experiment(), "file/out")

    def test_an_error_of_the_last_algorithm_shows_before_the_first_run(self, experiment, run, tmp_path):
        with pytest.raises(OffbeatError, match=r"algorithms\.fedavg: cohort"):
            run(experiment("algorithms.fedavg.cohort=21"), "out", ["fedbuff", "fedavg"])
        assert names(tmp_path / "out") == set()


def test_the_simulations_of_the_check_are_closed(experiment, digits, monkeypatch):
    closed = []
    monkeypatch.setattr(Simulation, "close", lambda self: closed.append(self))
    check_runs(experiment(), ["fedavg", "fedbuff"], digits, pytest.fail)
    assert len(closed) == 2


def test_the_training_loss_is_that_of_the_model_on_the_training_set(experiment, progress, digits, tmp_path):
    here = experiment("evaluate.metrics=['training_loss', 'accuracy']", "stop.virtual_seconds=20")
    (run,) = run_all(here, ["fedavg"], tmp_path / "out", progress(here))
    main, accuracy, loss = measures_of(run)
    assert (main.name, main.higher_is_better, accuracy.name, loss.name) == ("training_loss", False, "accuracy", "loss")
    model = softmax_regression((1, 8, 8), 10)
    model.load_state_dict(load_file(run.path / "model.safetensors"))
    outputs = model(torch.from_numpy(digits.train_inputs))
    expected = cross_entropy(outputs, torch.from_numpy(digits.train_labels)).item()
    assert run.history["training_loss"][-1] == pytest.approx(expected, rel=1e-5)
