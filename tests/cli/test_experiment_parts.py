"""Commands on an experiment's parts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from offbeat.algorithms import ALGORITHMS
from offbeat.cli import terminal
from offbeat.config.algorithm_table import default_hyper_parameters
from offbeat.data.catalogue import DATASETS
from offbeat.data.dataset import MissingDataError

Command = Callable[..., tuple[int, str, str]]


class TestData:
    def test_list(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=200))
        monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
        monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
        code, out, err = offbeat("data", "list")
        assert (code, err) == (0, "")
        for name in DATASETS:
            assert f" {name} " in out
        assert "60,000" in out
        assert "comes with scikit-learn" in out

    def test_get(self, offbeat: Command) -> None:
        assert offbeat("data", "get", "digits") == (0, "comes with scikit-learn\n", "")


class TestAlgorithms:
    def test_a_wide_terminal_has_a_line_for_each_hyper_parameter(
        self, offbeat: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=160))
        code, out, err = offbeat("algorithms")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert max(map(cell_len, lines)) <= 160
        last_column = [line[lines[1].index("Hyper-parameters") :].rstrip() for line in lines]
        for key in (
            'pattern = { name = "round_robin", k = 2, every = 1 }', "step_sizes: none", "steps = [1, 50]",
            "compression = [0.01, 1.0]", 'staleness = { name = "polynomial", a = 0.5 }',
        ):  # fmt: skip
            assert key in last_column

    def test_a_narrow_terminal_does_not_cut_words(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=80))
        out = offbeat("algorithms")[1]
        assert max(map(cell_len, out.splitlines())) <= 80
        words = out.split()
        for name, kind in ALGORITHMS.items():
            described = (kind.__doc__ or "").partition("\n")[0]
            keys = default_hyper_parameters(kind)
            assert {name, *described.split()} <= set(words)
            assert all(key in words or f"{key}:" in words for key in keys)
        assert "…" not in out


class TestPopulation:
    def test_draws_and_prints_the_path(self, folder: Path, offbeat: Command) -> None:
        code, out, err = offbeat("population", "tiny.toml", "--set", "population.clients=17", "--output", "drawn")
        assert (code, err) == (0, "")
        assert "17" in out
        (drawing,) = (folder / "drawn").iterdir()
        assert f"Drawing: drawn/{drawing.name}" in out

    def test_goes_on_with_the_fallback(self, folder: Path, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise MissingDataError("it is nowhere")

        monkeypatch.setitem(DATASETS, "mnist", fail)
        changes = ("--set", "data.name=mnist", "--set", "data.fallback=digits")
        code, out, err = offbeat("population", "tiny.toml", *changes)
        assert (code, err) == (0, "")
        assert out.startswith("it is nowhere; going on with digits instead\n")
        assert list((folder / "runs" / "tiny").iterdir())


EXPERIMENT = """
[data]
name = "digits"
[model]
name = "mlp"
[local]
steps = 2
batch_size = 4
lr = 0.1
[population]
clients = 4
[stop]
versions = 1
[evaluate]
every_versions = 1
[algorithms.fedavg]
cohort = 2
[algorithms.fedasync]
"""


class TestDevices:
    @pytest.fixture
    def lines(self, offbeat: Command, tmp_path: Path) -> Callable[..., list[str]]:
        """Return a function that describes an experiment on the CPU, and returns the lines."""
        file = tmp_path / "some.toml"
        file.write_text(EXPERIMENT, encoding="utf-8")

        def describe(*options: str) -> list[str]:
            code, out, err = offbeat("devices", str(file), "--set", "device=cpu", *options)
            assert (code, err) == (0, "")
            return out.splitlines()

        return describe

    def test_of_the_machine(self, offbeat: Command) -> None:
        code, out, err = offbeat("devices")
        assert (code, err) == (0, "")
        assert out.startswith("cpu: ")
        automatic = "cuda: there is a CUDA GPU" if torch.cuda.is_available() else "cpu: there is no CUDA GPU"
        assert f'device = "auto" takes {automatic}' in out

    @pytest.mark.parametrize(
        ("change", "trainer"),
        [
            ("model.name=mlp", "vmap: small linear layers"),
            ("model.name=resnet18", "loop: on a CPU only"),
            ("trainer=loop", "loop: the experiment says so"),
        ],
    )
    def test_that_an_experiment_takes(self, lines: Callable[..., list[str]], change: str, trainer: str) -> None:
        for line, label in zip(lines("--set", change)[-2:], ("fedavg", "fedasync"), strict=True):
            assert line.startswith(f"{label}: device cpu, trainer {trainer}")

    def test_steps_that_follow_from_the_examples_count_as_in_a_run(self, lines: Callable[..., list[str]]) -> None:
        local = "local={ epochs = 1, batch_size = 4, lr = 0.1 }"
        shown = lines("--set", "model.name=mlp", "--set", "model.hidden=[1000]", "--set", local)
        # Of a single step, 75,010 parameters would be too many.
        assert all("trainer vmap" in line for line in shown[-2:])

    @pytest.mark.parametrize(
        ("measured", "shown"),
        [
            (
                [("loop", 10.0), ("vmap", 1234.56), ("unfold", "it has no convolutions")],
                ["loop: 10.0 visits per second in one process", "vmap: 1,234.6 visits per second in one process",
                 "unfold: it has no convolutions", 'trainer = "vmap"'],
            ),
            ([("loop", "it failed")], ["loop: it failed"]),
        ],
    )  # fmt: skip
    def test_tuning_prints_the_key_of_the_fastest_trainer(
        self, lines: Callable[..., list[str]], measured: Any, shown: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("offbeat.training.trainers.choice.measure_trainers", lambda *_: iter(measured))
        assert lines("--tune")[-len(shown) :] == shown

    @pytest.mark.parametrize(("label", "shards"), [("fedavg", 4), ("sequential_sgd", 1)])
    def test_tuning_measures_the_first_algorithms_clients(
        self, lines: Callable[..., list[str]], label: str, shards: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured: list[int] = []

        def measure(workload: Any, *_: Any) -> Iterator[Any]:
            measured.append(len(workload.shards))
            return iter(())

        monkeypatch.setattr("offbeat.training.trainers.choice.measure_trainers", measure)
        lines("--tune", "--set", f"algorithms={{ {label} = {{ cohort = 2 }} }}")
        assert measured == [shards]

    def test_a_flower_app_has_no_trainer_to_measure(self, offbeat: Command, tmp_path: Path) -> None:
        (tmp_path / "app.toml").write_text(EXPERIMENT + '[flower]\napp = "a:b"\n', encoding="utf-8")
        code, _, err = offbeat("devices", str(tmp_path / "app.toml"), "--tune")
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith("offbeat: --tune: the Flower app trains the clients")

    def test_tuning_needs_an_experiment(self, offbeat: Command) -> None:
        code, _, err = offbeat("devices", "--tune")
        assert (code, err) == (2, "offbeat: --tune measures an experiment: name its FILE\n")


class TestAdvise:
    def test_a_table_what_does_not_work_and_what_to_compare(
        self, offbeat: Command, tiny_toml: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(terminal, "console", lambda: Console(width=120))
        Path("tiny.toml").write_text(tiny_toml, encoding="utf-8")
        code, out, err = offbeat("advise", "tiny.toml", "--set", "algorithms.fedavg.cohort=30")
        assert (code, err) == (0, "")
        assert "fedbuff " in out
        assert "ringmaster * " in out
        assert "\n  fedavg: cohort " in out
        assert "To compare, where clients lose work:" in out
        assert "always FedBuff 6" in out
        assert out.splitlines()[-1].startswith("offbeat compare tiny.toml --set algorithms.fedavg.cohort=30 ")
        assert not Path("runs").exists()

    def test_a_wrong_file_is_one_line(self, offbeat: Command) -> None:
        code, out, err = offbeat("advise", "nowhere.toml")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
