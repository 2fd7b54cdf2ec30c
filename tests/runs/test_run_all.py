from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from offbeat.config.experiment_file import load
from offbeat.data.catalogue import DATASETS
from offbeat.data.dataset import MissingDataError
from offbeat.errors import OffbeatError
from offbeat.runs.directory import read
from offbeat.runs.run_all import run_all
from tests.runs.conftest import NET

LABELS = ["fedavg", "fedasync", "fedbuff"]


def names(folder):
    return {path.name for path in folder.iterdir()}


class TestRuns:
    def test_the_same_command_gives_the_same_numbers(self, experiment, run, tmp_path):
        here = experiment("model.name=mlp", "model.hidden=[8]")
        assert run(here, "one") == run(here, "two")
        assert names(tmp_path / "one") == {f"{label}-seed1" for label in LABELS}
        for label in LABELS:
            one, two = (tmp_path / folder / f"{label}-seed1" for folder in ("one", "two"))
            for table in ("history.parquet", "events.parquet"):
                first = pq.read_table(one / table)
                assert first.equals(pq.read_table(two / table))
                assert first.num_rows > 3
            for file in ("model.safetensors", "config.toml", "versions.json"):
                assert (one / file).read_bytes() == (two / file).read_bytes()

    def test_the_resolved_configuration_gives_the_same_numbers(self, experiment, run, tmp_path):
        changes = ('algorithms.mine={ algorithm = "fedbuff", buffer_size = 3, concurrency = 5, local = { mu = 0.1 } }',)
        run(experiment(*changes), "one", ["mine"])
        run(load(tmp_path / "one" / "mine-seed1" / "config.toml"), "two", ["mine"])
        one, two = (tmp_path / folder / "mine-seed1" for folder in ("one", "two"))
        for table in ("history.parquet", "events.parquet"):
            assert pq.read_table(one / table).equals(pq.read_table(two / table))
        for file in ("model.safetensors", "config.toml"):
            assert (one / file).read_bytes() == (two / file).read_bytes()

    def test_also_from_elsewhere_where_the_file_named_others(self, experiment, run, tmp_path, files, monkeypatch):
        (tmp_path / "speeds.csv").write_text("step_seconds\n" + "".join(f"{i + 1}\n" for i in range(20)))
        (tmp_path / "net.py").write_text(NET)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        changes = (
            "model={ name = 'net.py:Net', loss = 'net.py:loss' }", "evaluate.metrics=['net.py:score']",
            "population.step_seconds={ distribution = 'file', path = 'speeds.csv' }", "stop.virtual_seconds=40",
        )  # fmt: skip
        run(experiment(*changes), "one", ["fedbuff"])
        (tmp_path / "far" / "away").mkdir(parents=True)
        config = tmp_path / "far" / "away" / "config.toml"
        config.write_bytes((tmp_path / "one" / "fedbuff-seed1" / "config.toml").read_bytes())
        monkeypatch.chdir(tmp_path / "far")
        run(load(Path("away/config.toml")), "two", ["fedbuff"])
        assert files(tmp_path / "one") == files(tmp_path / "two")
        assert read(tmp_path / "two" / "fedbuff-seed1").history["score"][-1] > 0

    def test_earlier_runs_have_no_influence(self, experiment, run, tmp_path):
        here = experiment("stop.virtual_seconds=20", "model.name=mlp", "model.hidden=[4]")
        run(here, "all")
        torch.rand(17)
        run(here, "alone", ["fedbuff"])
        one, two = (tmp_path / folder / "fedbuff-seed1" for folder in ("all", "alone"))
        assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
        assert pq.read_table(one / "history.parquet").equals(pq.read_table(two / "history.parquet"))

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

    def test_history_and_events_agree(self, experiment, run, tmp_path):
        run(experiment(), "out")
        for label in LABELS:
            finished = read(tmp_path / "out" / f"{label}-seed1")
            history, events = finished.history, finished.events
            assert history["seconds"].tolist() == [0.0, 20.0, 40.0, 60.0]
            for outcome in ("counted", "unused", "lost"):
                ended = events["ended_seconds"][events["outcome"] == outcome]
                assert history[outcome].tolist() == [np.sum(ended <= now) for now in history["seconds"]]
            assert history["lost"][-1] > 0
            assert history["bytes_up"][-1] == events["bytes_up"].sum()
            assert (np.diff(events["ended_seconds"]) >= 0).all()

    def test_the_model_is_the_last_evaluated_one(self, experiment, run, tmp_path):
        run(experiment(), "out", ["fedbuff"])
        folder = tmp_path / "out" / "fedbuff-seed1"
        model = load_file(folder / "model.safetensors")
        data = DATASETS["digits"]()
        inputs = data.test_inputs.reshape(len(data.test_inputs), -1)
        outputs = inputs @ model["1.weight"].numpy().T + model["1.bias"].numpy()
        accuracy = read(folder).history["accuracy"]
        assert accuracy[-1] == pytest.approx((outputs.argmax(axis=1) == data.test_labels).mean(), abs=1 / 364)
        assert accuracy[-1] > 2 * accuracy[0]

    def test_a_second_run_replaces_the_first(self, experiment, run, tmp_path):
        run(experiment("stop.virtual_seconds=20"), "out", ["fedbuff"])
        run(experiment("stop.virtual_seconds=20"), "out", ["fedbuff"])  # the same settings
        with pytest.raises(OffbeatError, match=r"fedbuff-seed1 holds a run with other settings.*--replace"):
            run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"])
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 20.0
        run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"], replace=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 40.0

    def test_the_proximal_term_may_be_anything(self, experiment, run):
        """lr · mu = 3 swings about the start, and FedNova's weight of such a visit is negative."""
        with suppress(OffbeatError):  # to refuse it would be fine too, but only like this
            run(experiment("local.mu=30.0", "local.steps=2"), "out", ["fedavg"])

    def test_prints_a_line_for_each_run(self, experiment, run, tmp_path):
        lines = run(experiment("stop.virtual_seconds=20"), "out").splitlines()
        for label, line in zip(LABELS, lines, strict=True):
            history = read(tmp_path / "out" / f"{label}-seed1").history
            assert line.startswith(f"{label}, seed 1: ")
            assert f" {100 * history['accuracy'][-1]:.1f} % after {history['counted'][-1]} updates" in line


class TestData:
    @pytest.fixture
    def missing(self, monkeypatch):
        def fail():
            raise MissingDataError("Fashion-MNIST is nowhere")

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)

    @pytest.mark.usefixtures("missing")
    def test_the_fallback_is_taken_with_a_word(self, experiment, run, tmp_path):
        changes = ("data.name=fashion-mnist", "data.fallback=digits", "stop.virtual_seconds=20")
        said = run(experiment(*changes), "fallback", ["fedbuff"])
        first = said.splitlines()[0]
        assert "Fashion-MNIST is nowhere" in first
        assert "digits" in first
        run(experiment("stop.virtual_seconds=20"), "digits", ["fedbuff"])
        one, two = (tmp_path / folder / "fedbuff-seed1" for folder in ("fallback", "digits"))
        assert (one / "config.toml").read_text() == (two / "config.toml").read_text()
        assert pq.read_table(one / "history.parquet").equals(pq.read_table(two / "history.parquet"))

    @pytest.mark.usefixtures("missing")
    def test_without_a_fallback_it_is_an_error(self, experiment, run):
        with pytest.raises(OffbeatError, match="Fashion-MNIST is nowhere"):
            run(experiment("data.name=fashion-mnist"), "out")

    def test_a_broken_file_is_not_replaced_by_other_data(self, experiment, run, monkeypatch):
        def fail():
            raise OffbeatError("the file is broken")

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)
        with pytest.raises(OffbeatError, match="the file is broken"):
            run(experiment("data.name=fashion-mnist", "data.fallback=digits"), "out")


class TestFailures:
    def test_divergence_names_client_and_version_and_keeps_finished_runs(self, experiment, run, tmp_path):
        here = experiment("model.name=mlp", "model.hidden=[4]", "algorithms.fedbuff.local.lr=1e30")
        with pytest.raises(OffbeatError, match=r"client \d+, from version \d+: .*local\.lr") as caught:
            run(here, "out", ["fedavg", "fedbuff", "fedasync"])
        assert "\n" not in str(caught.value)
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
            run(experiment(*small, "local.lr=1e30"), "out", ["fedbuff"], replace=True)
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before
        # After a correction it is enough to run again.
        run(experiment(*small), "out", ["fedbuff"], replace=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}

    def test_a_cohort_larger_than_the_population(self, experiment, run, tmp_path):
        with pytest.raises(OffbeatError, match=r"algorithms\.fedavg: cohort .*20.*21"):
            run(experiment("algorithms.fedavg.cohort=21"), "out", ["fedavg"])
        assert names(tmp_path / "out") == set()

    def test_a_folder_that_cannot_be_written_is_refused_before_any_work(self, experiment, run, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setitem(DATASETS, "digits", lambda: pytest.fail("data was loaded"))
        with pytest.raises(OffbeatError, match="cannot write into"):
            run(experiment(), "file/out")

    def test_an_error_of_the_last_algorithm_shows_before_the_first_run(self, experiment, run, tmp_path):
        with pytest.raises(OffbeatError, match=r"algorithms\.fedavg: cohort"):
            run(experiment("algorithms.fedavg.cohort=21"), "out", ["fedbuff", "fedavg"])
        assert names(tmp_path / "out") == set()
