"""Every algorithm keeps its vectors on the model's device."""

import pytest
import torch

from offbeat.algorithms import Algorithm
from tests.algorithms.case import LENGTH, PLAN, Case
from tests.training.separate_devices import SeparateDevices


def let_work(algorithm: Algorithm, case: Case, since: int | None) -> None:
    for client in range(case.places):
        if algorithm.returns_in(client) not in (None, algorithm.round):
            continue
        version = algorithm.version
        algorithm.assign(client, PLAN)
        vector = torch.ones(LENGTH, device="meta")
        update = case.update(client, version, since=since)._replace(vector=vector, base=vector, loss=1.0)
        algorithm.receive(update)


def test_an_algorithm_stays_on_the_models_device(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    # A meta tensor has no entries: each number that is read from one is 1.
    read = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: 1.0 if tensor.is_meta else read(tensor))
    algorithm = case.make()
    with SeparateDevices():
        algorithm.start(torch.ones(LENGTH, device="meta"), case.clients)
        let_work(algorithm, case, None)
        if algorithm.period is not None:
            algorithm.tick()
        assert algorithm.version > 0
        state = algorithm.state_dict()
        result = algorithm.result
    floats = {key: value for key, value in state.items() if torch.is_tensor(value) and value.dtype == torch.float32}
    vectors = {key: value for key, value in floats.items() if value.shape[-1:] == (LENGTH,)}
    assert result.device.type == "meta"
    assert {key: value.device.type for key, value in vectors.items()} == dict.fromkeys(vectors, "meta")
