"""The example in both worlds: a server with clients, and the simulator."""

import pytest
from offbeat_core.errors import OffbeatError
from safetensors.torch import load as load_tensors

from offbeat.config import experiment_file
from tests.examples.both_worlds import assert_both_worlds_agree, small_server_file
from tests.examples.lora.conftest import EXAMPLE


@pytest.fixture
def server(base, sentences, tmp_path, monkeypatch):
    """Return a function that writes the example's file for a small model and two clients, and loads both."""

    def write(**arguments):
        data, model = base | {"test_examples": 3}, base | arguments
        return small_server_file(EXAMPLE, tmp_path / "server.toml", monkeypatch, data, model)

    return write


@pytest.mark.parametrize("freeze_a", [False, True])
def test_both_worlds_come_to_the_same_adapters(server, freeze_a, tmp_path):
    served = assert_both_worlds_agree(*server(freeze_a=freeze_a), tmp_path, held_out=False)
    tensors = load_tensors(served.download)
    # Only these travel, and little besides their numbers.
    kinds = {"lora_B", "head"} if freeze_a else {"lora_A", "lora_B", "head"}
    assert {kind for name in tensors for kind in ("lora_A", "lora_B", "head") if kind in name} == kinds
    assert len(tensors) == (4 if freeze_a else 8) + 2
    assert 0 < len(served.download) - served.start.nbytes < 300 * len(tensors)


def test_a_client_with_other_weights_is_told(server):
    _, make = server(sha256="0" * 64)
    with pytest.raises(OffbeatError, match="is not the base model of this run"):
        make(0)


def test_the_experiment_file_is_right():
    experiment = experiment_file.load(EXAMPLE / "lora.toml")
    assert experiment.plan("fedbuff").optimizer == "adamw"
    assert experiment.population.clients <= experiment.data.arguments["users"]
