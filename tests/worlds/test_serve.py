import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from offbeat.algorithms.components.buffers.share_cap import ShareCap
from offbeat.config.server_file import ServerFile, load
from offbeat.service.server.admin import export_model
from offbeat.training.flat_model import FlatModel
from offbeat.worlds.serve import build_coordinator, read_initial_model, run_server, with_metrics_of_data
from tests.error_line import error_line
from tests.service.conftest import running

LoadServer = Callable[..., ServerFile]

SERVER = """
local = { steps = 1, batch_size = 8, lr = 0.1 }
data.name = "digits"
model.name = "softmax"
[service]
folder = "run"
clients = 4
port = 0
"""


@pytest.fixture
def file(tmp_path: Path) -> LoadServer:
    """Return a function that loads a server's file, with more lines."""

    def make(*lines: str) -> ServerFile:
        path = tmp_path / "server.toml"
        path.write_text("\n".join([SERVER, *lines]), encoding="utf-8")
        return load(path)

    return make


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[algorithm]", "algorithm = 'sequential_sgd'"], "sequential_sgd needs all data in one place"),
        (["[server]", "aggregate = 'krum'", "[algorithm]", "algorithm = 'fednova'"], "aggregate = 'krum' does not go"),
        (["[server]", "update_clip_norm = 1", "[algorithm]", "algorithm = 'fedasync'"], "update_clip_norm does not go"),
    ],
)
def test_settings_that_a_server_cannot_run_are_one_line(
    lines: list[str], message: str, file: LoadServer, tmp_path: Path
) -> None:
    line = error_line(run_server, file(*lines), lambda _: pytest.fail("it listens"))
    assert line.startswith(f"algorithm: {message}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("algorithm", "local", "message"),
    [
        ("fednova", "local.optimizer=adamw", "FedNova's a_i are weights of SGD's gradients: leave optimizer out"),
        ("scaffold", "local.optimizer=adamw", "SCAFFOLD's c_i are means of plain gradients: leave .* optimizer out"),
        ("fedlaavg", "local.lr_decay.name=inverse_square_root", "fedlaavg averages .*: leave lr_decay out"),
    ],
)
def test_a_plan_that_the_algorithm_refuses_is_one_line(
    algorithm: str, local: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "server.toml"
    path.write_text(f"{SERVER}[algorithm]\nalgorithm = '{algorithm}'\ncohort = 4", encoding="utf-8")
    build_coordinator(load(path))
    assert re.fullmatch(f"algorithm: {message}", error_line(build_coordinator, load(path, [local])))


def test_the_norm_of_updates_is_limited_by_one_of_two_sections(file: LoadServer) -> None:
    algorithm = ["[algorithm]", "algorithm = 'fedbuff'"]
    assert file(*algorithm).settings().service.max_update_norm is None
    assert file("max_update_norm = 2.0", *algorithm).settings().service.max_update_norm == 2
    assert file("[server]", "max_update_norm = 1.0", *algorithm).settings().service.max_update_norm == 1
    line = error_line(file, "max_update_norm = 2.0", "[server]", "max_update_norm = 1.0", *algorithm)
    assert line.endswith("server.max_update_norm and service.max_update_norm are one limit: remove the latter")


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        (["[algorithm]", "algorithm = 'fedavg'", "cohort = 3"], 0.5),
        (["max_share = 0.75", "[algorithm]", "algorithm = 'fednova'", "cohort = 3"], 0.75),
        (["max_share = 1", "[algorithm]", "algorithm = 'fedavg'", "cohort = 3"], None),
        (["[server]", "aggregate = 'krum'", "[algorithm]", "algorithm = 'fedavg'", "cohort = 3"], None),
        (["[algorithm]", "algorithm = 'fedbuff'"], None),
    ],
)
def test_declared_examples_give_one_client_half_of_a_step_at_most(
    lines: list[str], share: float | None, file: LoadServer
) -> None:
    served = file(*lines)
    buffer = build_coordinator(served)[0].algorithm.buffer
    assert isinstance(buffer, ShareCap) is (share is not None)
    assert (
        share is None
        or buffer.max_share == share == served.settings().service.max_share == served.resolved()["service"]["max_share"]
    )


@pytest.mark.parametrize("examples_count", [False, True])
def test_an_algorithm_without_components_is_served_if_no_share_is_capped(
    examples_count: bool, file: LoadServer, tmp_path: Path
) -> None:
    own = f"class Own(FedPlain):\n    weighs_by_examples = {examples_count}\n"
    code = f"from tests.algorithms.test_whole_contract import FedPlain\n\n\n{own}"
    (tmp_path / "own.py").write_text(code, encoding="utf-8")
    algorithm = ["[algorithm]", "algorithm = 'own.py:Own'"]
    assert build_coordinator(file("max_share = 1", *algorithm))[0].algorithm.name == "fedplain"
    if examples_count:
        line = error_line(build_coordinator, file(*algorithm))
        assert line.endswith("max_share does not go with fedplain, which has no buffer: set max_share = 1")
    else:
        assert not hasattr(build_coordinator(file(*algorithm))[0].algorithm, "buffer")


@pytest.mark.parametrize("share", ["0.49", "1.01", "nan"])
def test_a_share_out_of_range_is_one_line(share: str, file: LoadServer) -> None:
    line = error_line(file, f"max_share = {share}", "[algorithm]", "algorithm = 'fedavg'")
    assert "service.max_share" in line


def test_a_run_begins_from_the_initial_model_and_needs_it_again(file: LoadServer, tmp_path: Path) -> None:
    plain = file("[algorithm]", "algorithm = 'fedbuff'")
    vector = torch.arange(650, dtype=torch.float32)
    coordinator, layout = build_coordinator(plain)
    with running(tmp_path / "old", model=vector, layout=layout):
        pass
    export_model(tmp_path / "old", tmp_path / "model.safetensors")
    again = load(tmp_path / "server.toml", ["service.initial_model=model.safetensors"])
    assert torch.equal(build_coordinator(again)[0].algorithm.model, vector)
    assert not torch.equal(coordinator.algorithm.model, vector)
    assert again.resolved()["service"].pop("initial_model") == str(tmp_path / "model.safetensors")
    assert "initial_model" not in plain.resolved()["service"]


def test_metrics_are_those_of_the_servers_data() -> None:
    path = Path(__file__).parents[2] / "examples" / "segmentation" / "server.toml"
    changes = ["data.arguments.train_examples=20", "data.arguments.test_examples=5"]
    served = with_metrics_of_data(load(path, changes))
    assert served.evaluate is not None
    assert served.evaluate.metrics == ("iou",)
    named = load(path, [*changes, "evaluate.metrics=[]"])
    assert with_metrics_of_data(named) is named


VECTOR = torch.arange(6, dtype=torch.float32)


@pytest.fixture
def model() -> FlatModel:
    return FlatModel(nn.Linear(2, 2))


def test_the_vector_is_that_of_the_exported_model(tmp_path: Path, model: FlatModel) -> None:
    with running(tmp_path / "server", model=VECTOR):
        pass
    export_model(tmp_path / "server", tmp_path / "exported")
    before = model.vector.clone()
    assert torch.equal(read_initial_model(tmp_path / "exported", model), VECTOR)
    assert torch.equal(model.vector, before)


@pytest.mark.parametrize("form", [FlatModel.named, FlatModel.saved], ids=["of a server", "of a run"])
def test_layers_may_share_a_parameter(tmp_path: Path, form: Callable[..., dict[str, torch.Tensor]]) -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    save_file(form(model, VECTOR[:4]), tmp_path / "file")
    assert torch.equal(read_initial_model(tmp_path / "file", model), VECTOR[:4])
    module.load_state_dict(load_file(tmp_path / "file"), strict=form is FlatModel.saved)
    assert torch.equal(module[1].weight.flatten(), VECTOR[:4])


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": torch.zeros(2, 2)},
        {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 2, dtype=torch.float64), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 2), "bias": torch.zeros(2), "more": torch.zeros(1)},
    ],
)
def test_another_models_file_is_one_line(tmp_path: Path, model: FlatModel, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "file")
    line = error_line(read_initial_model, tmp_path / "file", model)
    assert line == (
        f"service.initial_model = {tmp_path / 'file'} does not hold this model's parameters: take a file that "
        "offbeat server export wrote"
    )


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, model: FlatModel) -> None:
    path = tmp_path / "file"
    assert error_line(read_initial_model, path, model).startswith(
        f"cannot read service.initial_model = {path}: No such"
    )
    path.write_bytes(b"12345678")
    assert error_line(read_initial_model, path, model).startswith(f"cannot read service.initial_model = {path}: ")
