import io
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from offbeat.config.experiment_file import Experiment, load
from offbeat.data.catalogue import DATASETS
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.errors import OffbeatError
from offbeat.runs import run_all as runner
from offbeat.runs.directory import read
from offbeat.runs.interruption import InterruptedRunError, Interruption
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import run_all
from offbeat.runs.writer import RunWriter

LABELS = ["fedavg", "fedasync", "fedbuff"]

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))

def loss(outputs, labels):
    return nn.functional.multi_margin_loss(outputs, labels)

def score(outputs, labels):
    return (outputs.argmax(1) == labels).float().mean()
"""

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
def run(progress: Callable[..., Progress], tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs an experiment's algorithms into a folder, and returns what it said."""

    def all_into(experiment: Experiment, folder: str, labels: list[str] = LABELS, **how: Any) -> str:
        screen = io.StringIO()
        run_all(experiment, labels, tmp_path / folder, progress(experiment, screen), **how)
        return screen.getvalue()

    return all_into


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestRuns:
    def test_the_same_command_gives_the_same_numbers(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
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

    def test_the_resolved_configuration_gives_the_same_numbers(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        changes = ('algorithms.mine={ algorithm = "fedbuff", buffer_size = 3, concurrency = 5, local = { mu = 0.1 } }',)
        run(experiment(*changes), "one", ["mine"])
        run(load(tmp_path / "one" / "mine-seed1" / "config.toml"), "two", ["mine"])
        one, two = (tmp_path / folder / "mine-seed1" for folder in ("one", "two"))
        for table in ("history.parquet", "events.parquet"):
            assert pq.read_table(one / table).equals(pq.read_table(two / table))
        for file in ("model.safetensors", "config.toml"):
            assert (one / file).read_bytes() == (two / file).read_bytes()

    def test_also_from_elsewhere_where_the_file_named_others(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path,
        files: Callable[[Path], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
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

    def test_what_was_run_before_does_not_matter(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        here = experiment("stop.virtual_seconds=20", "model.name=mlp", "model.hidden=[4]")
        run(here, "all")
        torch.rand(17)
        run(here, "alone", ["fedbuff"])
        one, two = (tmp_path / folder / "fedbuff-seed1" for folder in ("all", "alone"))
        assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
        assert pq.read_table(one / "history.parquet").equals(pq.read_table(two / "history.parquet"))

    def test_each_algorithm_with_each_seed(
        self, experiment: Callable[..., Experiment], progress: Callable[..., Progress], tmp_path: Path
    ) -> None:
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

    def test_history_and_events_agree(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
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

    def test_the_model_is_the_one_that_was_measured_last(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        run(experiment(), "out", ["fedbuff"])
        folder = tmp_path / "out" / "fedbuff-seed1"
        model = load_file(folder / "model.safetensors")
        data = DATASETS["digits"]()
        inputs = data.test_inputs.reshape(len(data.test_inputs), -1)
        outputs = inputs @ model["1.weight"].numpy().T + model["1.bias"].numpy()
        accuracy = read(folder).history["accuracy"]
        assert accuracy[-1] == pytest.approx((outputs.argmax(axis=1) == data.test_labels).mean(), abs=1 / 364)
        assert accuracy[-1] > 2 * accuracy[0]

    def test_a_second_run_replaces_the_first(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        run(experiment("stop.virtual_seconds=20"), "out", ["fedbuff"])
        run(experiment("stop.virtual_seconds=20"), "out", ["fedbuff"])  # the same settings
        with pytest.raises(OffbeatError, match=r"fedbuff-seed1 holds a run with other settings.*--replace"):
            run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"])
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 20.0
        run(experiment("stop.virtual_seconds=40"), "out", ["fedbuff"], replace=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}
        assert read(tmp_path / "out" / "fedbuff-seed1").history["seconds"][-1] == 40.0

    def test_the_proximal_term_may_be_anything(
        self, experiment: Callable[..., Experiment], run: Callable[..., str]
    ) -> None:
        """lr · mu = 3 swings about the start, and FedNova's weight of such a visit is negative."""
        with suppress(OffbeatError):  # to refuse it would be fine too, but only like this
            run(experiment("local.mu=30.0", "local.steps=2"), "out", ["fedavg"])

    def test_says_how_each_run_went(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        lines = run(experiment("stop.virtual_seconds=20"), "out").splitlines()
        for label, line in zip(LABELS, lines, strict=True):
            history = read(tmp_path / "out" / f"{label}-seed1").history
            assert line.startswith(f"{label}, seed 1: ")
            assert f" {100 * history['accuracy'][-1]:.1f} % after {history['counted'][-1]} updates" in line


class TestData:
    @pytest.fixture
    def missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> Dataset:
            raise MissingDataError("Fashion-MNIST is nowhere")

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)

    @pytest.mark.usefixtures("missing")
    def test_the_fallback_is_taken_with_a_word(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
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
    def test_without_a_fallback_it_is_an_error(
        self, experiment: Callable[..., Experiment], run: Callable[..., str]
    ) -> None:
        with pytest.raises(OffbeatError, match="Fashion-MNIST is nowhere"):
            run(experiment("data.name=fashion-mnist"), "out")

    def test_a_broken_file_is_not_replaced_by_other_data(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> Dataset:
            raise OffbeatError("the file is broken")

        monkeypatch.setitem(DATASETS, "fashion-mnist", fail)
        with pytest.raises(OffbeatError, match="the file is broken"):
            run(experiment("data.name=fashion-mnist", "data.fallback=digits"), "out")


class TestFailures:
    def test_divergence_names_client_and_version_and_keeps_finished_runs(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        here = experiment("model.name=mlp", "model.hidden=[4]", "algorithms.fedbuff.local.lr=1e30")
        with pytest.raises(OffbeatError, match=r"client \d+, from version \d+: .*local\.lr") as caught:
            run(here, "out", ["fedavg", "fedbuff", "fedasync"])
        assert "\n" not in str(caught.value)
        # What the diverged run had come to can be looked at.
        assert names(tmp_path / "out") == {"fedavg-seed1", "fedbuff-seed1.unfinished"}
        assert read(tmp_path / "out" / "fedavg-seed1").label == "fedavg"
        assert not read(tmp_path / "out" / "fedbuff-seed1.unfinished").finished

    def test_divergence_leaves_an_earlier_run_in_place(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        small = ("model.name=mlp", "model.hidden=[4]", "stop.virtual_seconds=20")
        run(experiment(*small), "out", ["fedbuff"])
        path = tmp_path / "out" / "fedbuff-seed1"
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with pytest.raises(OffbeatError, match="diverged"):
            run(experiment(*small, "local.lr=1e30"), "out", ["fedbuff"], replace=True)
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before
        # After a correction there is no more to do than to run again.
        run(experiment(*small), "out", ["fedbuff"], replace=True)
        assert names(tmp_path / "out") == {"fedbuff-seed1"}

    def test_a_cohort_larger_than_the_population(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        with pytest.raises(OffbeatError, match=r"algorithms\.fedavg: cohort .*20.*21"):
            run(experiment("algorithms.fedavg.cohort=21"), "out", ["fedavg"])
        assert names(tmp_path / "out") == set()

    def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        (tmp_path / "file").touch()
        monkeypatch.setitem(DATASETS, "digits", lambda: pytest.fail("data was loaded"))
        with pytest.raises(OffbeatError, match="cannot write into"):
            run(experiment(), "file/out")

    def test_what_does_not_fit_the_last_algorithm_shows_before_the_first_run(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        with pytest.raises(OffbeatError, match=r"algorithms\.fedavg: cohort"):
            run(experiment("algorithms.fedavg.cohort=21"), "out", ["fedbuff", "fedavg"])
        assert names(tmp_path / "out") == set()


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes runs stop, as by a signal, at their so many-th chance to."""

    def after(chances: int) -> None:
        left = [chances]

        def check(_: Interruption) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise InterruptedRunError(signal.SIGTERM)

        monkeypatch.setattr(Interruption, "check", check)

    return after


class TestResume:
    def test_goes_on_where_it_stopped(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path,
        files: Callable[[Path], dict[str, bytes]], stopping: Callable[[int], None],
    ) -> None:  # fmt: skip
        here = experiment("seeds=[1, 2]")
        run(here, "whole", ["fedavg", "fedbuff"])
        for chances in (50, 150, 120):
            stopping(chances)
            with pytest.raises(InterruptedRunError):
                run(here, "out", ["fedavg", "fedbuff"], resume=True)
        assert any(name.endswith(".unfinished") for name in names(tmp_path / "out"))
        stopping(-1)
        said = run(here, "out", ["fedavg", "fedbuff"], resume=True)
        assert files(tmp_path / "out") == files(tmp_path / "whole")
        assert "of 4 runs are finished" in said

    def test_finished_runs_stay_as_they_are(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        small = experiment("stop.virtual_seconds=20")
        run(small, "out")
        # What a kill in the last moment of a run leaves.
        (tmp_path / "out" / "fedavg-seed1.unfinished").mkdir()
        monkeypatch.setattr(runner, "carry_out", lambda *_, **__: pytest.fail("ran again"))
        said = run(small, "out", resume=True)
        assert said == "3 of 3 runs are finished\n"
        assert names(tmp_path / "out") == {f"{label}-seed1" for label in LABELS}

    def test_one_that_was_to_replace_another_goes_on(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], stopping: Callable[[int], None],
        files: Callable[[Path], dict[str, bytes]], tmp_path: Path,
    ) -> None:  # fmt: skip
        here = experiment("local.lr=0.2")
        run(here, "whole", ["fedavg"])
        run(experiment(), "out", ["fedavg"])
        stopping(60)
        with pytest.raises(InterruptedRunError):
            run(here, "out", ["fedavg"], replace=True)
        stopping(-1)
        run(here, "out", ["fedavg"], resume=True)
        assert files(tmp_path / "out") == files(tmp_path / "whole")

    def test_a_pattern_of_ones_own_is_known_by_its_files_content(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
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
            run(here, "out", ["mine"], resume=True)

    def test_a_finished_run_of_other_code_is_not_taken(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        (tmp_path / "net.py").write_text(NET)
        here = experiment("model.name=net.py:Net", "stop.virtual_seconds=20")
        run(here, "out", ["fedavg"])
        run(here, "out", ["fedavg"], resume=True)
        (tmp_path / "net.py").write_text(NET + "# other")
        with pytest.raises(OffbeatError, match=r"net\.py has changed since .*fedavg-seed1 was begun"):
            run(here, "out", ["fedavg", "fedbuff"], resume=True)

    def test_own_data_with_random_numbers_are_the_same_each_time(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        (tmp_path / "rows.py").write_text(ROWS)
        here = experiment("data.name=rows.py:rows", "stop.virtual_seconds=20", "seeds=[1, 2]")
        for folder, jobs in (("one", 1), ("two", 2)):
            run(here, folder, ["fedavg"], jobs=jobs)
        for seed in (1, 2):
            one, two = (read(tmp_path / folder / f"fedavg-seed{seed}") for folder in ("one", "two"))
            assert one.history["loss"].tolist() == two.history["loss"].tolist()

    def test_without_it_finished_runs_are_made_again(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], tmp_path: Path
    ) -> None:
        small = experiment("stop.virtual_seconds=20")
        run(small, "out", ["fedavg"])
        (tmp_path / "out" / "fedavg-seed1" / "events.parquet").write_bytes(b"")
        run(small, "out", ["fedavg"])
        assert len(read(tmp_path / "out" / "fedavg-seed1").events["client"])

    @pytest.mark.parametrize("how", [{}, {"resume": True}])
    def test_an_unfinished_run_with_other_settings_is_refused(
        self, how: dict[str, bool], experiment: Callable[..., Experiment], run: Callable[..., str],
        stopping: Callable[[int], None], tmp_path: Path,
    ) -> None:  # fmt: skip
        stopping(60)
        with pytest.raises(InterruptedRunError):
            run(experiment(), "out", ["fedavg"])
        stopping(-1)
        with pytest.raises(OffbeatError, match=r"fedavg-seed1\.unfinished holds a run with other settings.*--replace"):
            run(experiment("local.lr=0.2"), "out", ["fedavg"], **how)
        run(experiment("local.lr=0.2"), "out", ["fedavg"], replace=True)
        assert names(tmp_path / "out") == {"fedavg-seed1"}

    def test_without_it_an_unfinished_run_begins_anew(
        self, experiment: Callable[..., Experiment], run: Callable[..., str], stopping: Callable[[int], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        stopping(60)
        with pytest.raises(InterruptedRunError):
            run(experiment(), "out", ["fedavg"])
        stopping(-1)
        monkeypatch.setattr(RunWriter, "resume", lambda *_: pytest.fail("went on"))
        run(experiment(), "out", ["fedavg"])
