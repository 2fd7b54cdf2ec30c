from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Command = Callable[..., tuple[int, str, str]]

FILE = """
[data]
name = "digits"
[model]
name = "{model}"
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


def test_the_devices_of_the_machine(offbeat: Command) -> None:
    code, out, err = offbeat("devices")
    assert (code, err) == (0, "")
    assert out.startswith("cpu: ")
    automatic = "cuda: there is a CUDA GPU" if torch.cuda.is_available() else "cpu: there is no CUDA GPU"
    assert f'device = "auto" takes {automatic}' in out


@pytest.mark.parametrize(
    ("model", "trainer"), [("mlp", "trainer vmap: small linear layers"), ("resnet18", "trainer loop: on a CPU only")]
)
def test_what_an_experiment_takes(offbeat: Command, tmp_path: Path, model: str, trainer: str) -> None:
    file = tmp_path / "some.toml"
    file.write_text(FILE.format(model=model))
    code, out, err = offbeat("devices", str(file), "--set", "device=cpu")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for line, label in zip(lines[-2:], ("fedavg", "fedasync"), strict=True):
        assert line.startswith(f"{label}: device cpu, {trainer}")


def test_a_trainer_that_the_experiment_names(offbeat: Command, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text(FILE.format(model="mlp"))
    _, out, _ = offbeat("devices", str(file), "--set", "trainer=loop", "--set", "device=cpu")
    assert out.count("trainer loop: the experiment says so") == 2


def test_tuning_prints_the_key_of_the_fastest_trainer(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.toml"
    file.write_text(FILE.format(model="mlp"))
    measured = [("loop", 10.0), ("vmap", 1234.56), ("unfold", "it has no convolutions")]
    monkeypatch.setattr("offbeat.training.trainers.choice.measure_trainers", lambda *_: iter(measured))
    code, out, _ = offbeat("devices", str(file), "--tune", "--set", "device=cpu")
    assert code == 0
    assert out.splitlines()[-4:] == [
        "loop: 10.0 visits per second",
        "vmap: 1,234.6 visits per second",
        "unfold: it has no convolutions",
        'trainer = "vmap"',
    ]


def test_tuning_without_a_trainer_that_works_says_why(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.toml"
    file.write_text(FILE.format(model="mlp"))
    monkeypatch.setattr(
        "offbeat.training.trainers.choice.measure_trainers",
        lambda *_: iter([("loop", "it failed")]),
    )
    code, out, err = offbeat("devices", str(file), "--tune", "--set", "device=cpu")
    assert (code, err, out.splitlines()[-1]) == (0, "", "loop: it failed")


def test_tuning_needs_an_experiment(offbeat: Command) -> None:
    code, _, err = offbeat("devices", "--tune")
    assert (code, err) == (2, "offbeat: --tune measures an experiment: name its FILE\n")
