"""Program that measures a server's models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from offbeat.config.model_sections import MlpSection, SoftmaxSection
from offbeat.data.dataset import Dataset
from offbeat.training.workload import Workload
from offbeat.worlds.workload import as_examples, build_model, build_objective

SECTIONS = {"data": {"name": "digits"}, "metrics": ["accuracy"], "seed": 7}
LOSS = """
import torch

print("printed by user code")

def loss(outputs, labels):
    return (outputs - torch.nn.functional.one_hot(labels, 10)).square().mean()
"""


def test_each_line_is_answered_with_the_measures_of_the_model(tmp_path: Path, digits: Dataset) -> None:
    (tmp_path / "mse_of_classes.py").write_text(LOSS)
    section = MlpSection(name="mlp", hidden=(3,), loss=f"{tmp_path}/mse_of_classes.py:loss")
    sections = {**SECTIONS, "model": section.model_dump(mode="json")}
    models = [build_model(section, digits, seed) for seed in (1, 2)]
    for seed, model in enumerate(models):
        save_file({name: tensor.clone() for name, tensor in model.named(model.vector).items()}, tmp_path / f"{seed}")
    done = subprocess.run(
        [sys.executable, "-m", "offbeat.worlds.server_evaluation", json.dumps(sections)],
        input=f"{tmp_path}/0\n{tmp_path}/1\n", capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    objective = build_objective(section.loss, ["accuracy"])
    train, test = as_examples(digits)
    for line, model in zip(done.stdout.splitlines(), models, strict=True):
        workload = Workload(model, objective, train, (), 7, test=test)
        loss, metrics = workload.evaluator()(model.vector.clone())
        assert json.loads(line) == pytest.approx({"loss": loss, **metrics})
    assert "printed by user code" in done.stderr


def test_it_ends_silently_if_the_server_was_killed(tmp_path: Path, digits: Dataset) -> None:
    section = SoftmaxSection(name="softmax")
    model = build_model(section, digits, 1)
    save_file({name: tensor.clone() for name, tensor in model.named(model.vector).items()}, tmp_path / "0")
    sections = {**SECTIONS, "model": section.model_dump(mode="json")}
    command = [sys.executable, "-m", "offbeat.worlds.server_evaluation", json.dumps(sections)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdin
        assert program.stdout
        assert program.stderr
        program.stdout.close()
        program.stdin.write(f"{tmp_path}/0\n")
        program.stdin.close()
        assert program.stderr.read() == ""
    assert program.returncode == 0
