"""Only the conversion between tensors and arrays; tests/offbeat_client/test_client_run.py has the rest."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from offbeat_client.local_update import check_fitted
from offbeat_client.visit import Visit
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan
from safetensors.torch import load

from offbeat.client import Fitted, run_client
from offbeat.client.torch_client import with_arrays
from tests.offbeat_client.helper_facts import PRIVACY, TERMS, Helper, private_folder
from tests.service.hosting.conftest import hosting

VISIT = Visit(0, 0, 0, None, "delta", 3, 0, LocalPlan(1, 1, 0.1))


@pytest.fixture
def arrays():
    return {"a": np.arange(3, dtype=np.float32)}


def test_a_client_trains_tensors(server, quick, tmp_path, model):
    server.serve(12, model)
    server.offer(0, 12)

    def fit(model, visit):
        with torch.no_grad():
            for tensor in model.values():
                tensor.mul_(0.5)
        return model, 7

    assert run_client(server.url, lambda client: fit, tmp_path, enrolment_token="obe_1", backoff=quick) == 1
    assert load(server.bodies[0])["update"].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert server.announced[0]["examples"] == 7


def test_a_client_of_tensors_sends_shares(server, quick, tmp_path, model):
    helper, folder = Helper(), private_folder(tmp_path / "me")
    server.share = helper.facts
    server.serve(12, model)
    server.offer(0, 12, privacy=PRIVACY)
    key = (folder / "signing-key").rename(tmp_path / "key")

    def fit(model, visit):
        return {name: tensor - 2.0 for name, tensor in model.items()}, 7

    joined = {"enrolment_token": "obe_1", "backoff": quick, "terms": tmp_path / "terms.json", "privacy_key": key}
    assert run_client(server.url, lambda client: fit, folder, **joined) == 1
    _, quantised = helper.open(server.announced[0], server.bodies[0])
    assert [round(number * TERMS.step, 2) for number in quantised] == [2.0] * 6


def test_clients_of_several_runs_get_the_name_of_theirs(quick, tmp_path):
    made = []

    def make_client(client, run):
        made.append((client, run))
        return lambda model, visit: ({name: tensor + 1.0 for name, tensor in model.items()}, 7)

    with hosting(tmp_path / "host") as host:
        for name in ("a", "b"):
            host.create(name, algorithm="one at a time", versions=1)
        token = host.token("enrolment")
        assert run_client(host.url, make_client, tmp_path / "me", enrolment_token=token, backoff=quick) == 2
    assert sorted(made) == [(0, "a"), (0, "b")]


def test_models_and_offsets_are_not_copied(arrays):
    def fit(model, visit):
        model["a"].add_(1)
        visit.offset["a"].add_(1)
        visit.urgent.set()
        return model, 1

    visit = replace(VISIT, offset={"a": np.ones(3, np.float32)})
    trained, _ = with_arrays(fit).fit(arrays, visit)
    assert np.shares_memory(trained["a"], arrays["a"])
    assert arrays["a"].tolist() == [1, 2, 3]
    assert visit.offset["a"].tolist() == [2, 2, 2]
    assert visit.urgent.is_set()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_tensors_of_any_type_become_float32(arrays, dtype):
    def fit(model, visit):
        return {"a": model["a"].to(dtype).requires_grad_(), "buffer": torch.tensor(3)}, 1

    trained, examples = with_arrays(fit).fit(arrays, VISIT)
    assert list(trained) == ["a"]
    assert trained["a"].dtype == np.float32
    assert trained["a"].tolist() == [0, 1, 2]
    assert examples == 1


def test_an_imaginary_part_is_not_dropped(arrays):
    trained, _ = with_arrays(lambda model, visit: ({"a": model["a"] + 1j}, 1)).fit(arrays, VISIT)
    with pytest.raises(OffbeatError, match="not an array of numbers: its values are complex64"):
        check_fitted((trained, 1), arrays, VISIT)


def test_the_numbers_of_a_result_are_kept(arrays):
    result = with_arrays(lambda model, visit: Fitted(model, 5, 1, 0.5, 0.25)).fit(arrays, VISIT)
    assert (result.examples, result.steps, result.normaliser, result.loss) == (5, 1, 0.5, 0.25)
    assert isinstance(result.model["a"], np.ndarray)


@pytest.mark.parametrize("result", [None, 3, [{}, 1], (1, 2), ({},), Fitted(None, 1)])
def test_other_results_are_left_to_the_check(arrays, result):
    assert with_arrays(lambda model, visit: result).fit(arrays, VISIT) == result


def test_the_attributes_are_those_of_the_users_client():
    class Mine:
        examples = 60
        corrects_gradients = True

        def fit(self, model, visit):
            return model, 60

    client, function = with_arrays(Mine()), with_arrays(lambda model, visit: (model, 1))
    assert (client.examples, client.corrects_gradients) == (60, True)
    assert (function.examples, function.corrects_gradients) == (None, False)


def test_evaluate_gets_tensors(arrays):
    class Measuring:
        def fit(self, model, visit):
            return model, 1

        def evaluate(self, model):
            assert isinstance(model["a"], torch.Tensor)
            return {"sum": float(model["a"].sum())}, 2

    assert with_arrays(Measuring()).evaluate(arrays) == ({"sum": 3.0}, 2)
    assert with_arrays(lambda model, visit: (model, 1)).evaluate is None
