import hashlib
import json
import re
from dataclasses import replace

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.service.log.log import Row
from offbeat.service.store.call_records import DiscardedUpdate, UpdateFolder, call_of, entry_of
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate
from tests.service.conftest import LAYOUT, LENGTH, PLAN

BODY = b"the bytes of an update"
DIGEST = hashlib.sha256(BODY).hexdigest()
ARGUMENTS = {"now": 2.0, "client": 0, "visit": 0, "examples": 3}


@pytest.fixture
def models(tmp_path):
    return ModelFiles(tmp_path, LAYOUT)


@pytest.fixture
def coordinator():
    made = Coordinator(FedBuff(), torch.zeros(LENGTH), clients=1, local=PLAN, seed=1)
    made.present(0.0, 0)
    made.assign(1.0)
    return made


@pytest.fixture
def update(tmp_path):
    (tmp_path / "0-0-1").write_bytes(BODY)
    return StoredUpdate(tmp_path / "0-0-1", len(BODY), LENGTH, None, DIGEST)


def row_of(call, outcome=None):
    change, belongings = entry_of(call, outcome)
    return Row(7, 1, change.owner, change.name, json.dumps(change.arguments), **belongings)


def test_a_call_comes_back_from_its_row(coordinator, models, update, tmp_path):
    small = BufferedUpdate(BODY, LENGTH, None, DIGEST)
    received = {**ARGUMENTS, "base": None}
    for call, outcome in (
        (RecordedCall("drop", {"now": 2.0, "client": 0, "visit": 0}), None),
        (RecordedCall("receive", {**received, "vector": update}), [True, 0]),
        (RecordedCall("receive", {**received, "vector": small}), [True, 0]),
        (RecordedCall("receive", {**received, "vector": DiscardedUpdate(DIGEST)}), [False, 0]),
        (RecordedCall("receive", {**received, "vector": DiscardedUpdate(DIGEST), "share": b"\x00\xff"}), [False, 0]),
        (RecordedCall("receive", {**received, "vector": replace(update, is_masked=True), "share": b"s"}), [True, 0]),
        (RecordedCall("receive", {**received, "vector": replace(small, is_masked=True), "share": b"s"}), [True, 0]),
        (RecordedCall("reveal", {"now": 2.0, "opened": replace(update, is_masked=True)}), None),
    ):
        row = row_of(call, outcome)
        assert not re.search("vector|opened", row.arguments)
        assert call_of(row, coordinator, UpdateFolder(tmp_path), models) == call


@pytest.mark.parametrize("spoil", ["change", "cut", "delete"])
def test_a_large_update_that_differs_from_its_row_is_refused(spoil, coordinator, models, update, tmp_path):
    row = row_of(RecordedCall("receive", {**ARGUMENTS, "vector": update, "base": None}), [True, 0])
    data = update.path.read_bytes()
    if spoil == "delete":
        update.path.unlink()
    else:
        update.path.write_bytes(data[:-1] + (b"!" if spoil == "change" else b""))
    with pytest.raises(OffbeatError, match=r"0-0-1 is broken: .* row 7; restore a backup"):
        call_of(row, coordinator, UpdateFolder(tmp_path), models)


@pytest.mark.parametrize("body", [b"another", None])
def test_a_small_update_that_differs_from_its_row_or_is_gone_is_refused(body, coordinator, models, tmp_path):
    small = BufferedUpdate(BODY, LENGTH, None, DIGEST)
    row = replace(row_of(RecordedCall("receive", {**ARGUMENTS, "vector": small}), [True, 0]), body=body)
    with pytest.raises(OffbeatError, match=r"row 7.* restore a backup"):
        call_of(row, coordinator, UpdateFolder(tmp_path), models)


def test_a_discarded_update_is_never_read():
    with pytest.raises(AssertionError, match="does not count"):
        DiscardedUpdate("").resolve()
