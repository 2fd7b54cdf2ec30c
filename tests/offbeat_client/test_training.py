import hashlib

import numpy as np
import pytest
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.local_update import put_update
from offbeat_client.training import gradient_offset, train
from offbeat_client.visit import Fitted
from offbeat_core.local_plan import LocalPlan
from safetensors.numpy import load_file

PLAN = LocalPlan(steps=3, batch_size=2, lr=0.25)


@pytest.fixture
def outbox(tmp_path):
    return Outbox(tmp_path / "box")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "box").mkdir()


def remember(outbox, visit, value):
    """Let an update of version 9 count, whose memory is ``value`` everywhere."""
    pending = outbox.put(
        visit(number=3, version=9),
        lambda path: path.write_bytes(b"body"),
        np.full(6, value, np.float32),
        lambda path: {},
    )
    outbox.acknowledge(pending, True, 1.5)


def minus(model, change):
    return {name: array - np.float32(change) for name, array in model.items()}


def body(outbox, pending):
    return load_file(outbox.body(pending.visit))["update"].tolist()


def test_training_gets_a_model_of_its_own_and_is_timed(visit, model_file, model, outbox, monkeypatch):
    times = iter([10.0, 12.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))

    def fit(given, visit):
        given["bias"] += 1
        return given

    result, seconds = train(visit(), model_file, fit, outbox)
    assert seconds == 2.5
    assert result["bias"].tolist() == (model["bias"] + 1).tolist()
    monkeypatch.undo()
    assert train(visit(), model_file, lambda given, _: given["bias"].tolist(), outbox)[0] == model["bias"].tolist()


def test_the_offset_is_the_vector_beside_the_model_minus_the_memory(visit, model_file, outbox):
    corrected = visit(corrects_gradients=True, since=9)
    assert gradient_offset(visit(since=9), model_file, outbox) is None
    assert gradient_offset(corrected, model_file, outbox).tolist() == [2.0] * 6
    remember(outbox, visit, 0.5)
    assert gradient_offset(corrected, model_file, outbox).tolist() == [1.5] * 6
    heard = []
    train(corrected, model_file, lambda _, here: heard.append(here.offset), outbox)
    assert {name: array.tolist() for name, array in heard[0].items()} == {
        "weight": [[1.5, 1.5], [1.5, 1.5]],
        "bias": [1.5, 1.5],
    }


def test_the_announcement(visit, model_file, model, outbox):
    remember(outbox, visit, 0.0)
    fitted = Fitted(minus(model, 2), 17, steps=2, normaliser=1.25, loss=0.5)
    pending = put_update(visit(PLAN, since=9, model_sha256="c8" * 32), model_file, fitted, 3.0, outbox)
    path = outbox.body(4)
    assert pending.announcement == {
        "version": 12,
        "model_sha256": "c8" * 32,
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "examples": 17,
        "steps": 2,
        "normaliser": 1.25,
        "since": 9,
        "step_seconds": 1.5,
        "upload_seconds": 1.5,
    }
    assert body(outbox, pending) == [2.0] * 6
    assert not pending.has_memory
    needed = put_update(visit(PLAN, needs_loss=True), model_file, fitted, 3.0, outbox)
    assert needed.announcement["loss"] == 0.5


@pytest.mark.parametrize(("has_memory", "since", "sent"), [(True, 9, 1.5), (False, None, 2.0)])
def test_a_difference_without_memory_has_no_since(visit, model_file, model, outbox, has_memory, since, sent):
    if has_memory:
        remember(outbox, visit, 0.5)
    pending = put_update(visit(payload="difference", since=9), model_file, (minus(model, 2), 1), 1.0, outbox)
    assert pending.announcement["since"] == since
    assert body(outbox, pending) == [sent] * 6


@pytest.mark.parametrize(("has_memory", "since", "offset"), [(True, 9, 1.5), (False, None, 2.0)])
def test_a_corrected_update_remembers_the_control_variate(visit, model_file, model, outbox, has_memory, since, offset):
    if has_memory:
        remember(outbox, visit, 0.5)
    here = visit(PLAN, corrects_gradients=True, since=9)
    pending = put_update(here, model_file, Fitted(minus(model, 3), 1, steps=2), 1.0, outbox)
    assert pending.announcement["since"] == since
    assert body(outbox, pending) == [3.0] * 6
    outbox.acknowledge(pending, True, None)
    assert outbox.memory(12, 6).tolist() == [3.0 / 0.5 - offset] * 6
