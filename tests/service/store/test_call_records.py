import hashlib
import re
from dataclasses import replace

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.service.store.call_records import DiscardedUpdate, call_of, record_of
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import StoredUpdate
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
    (tmp_path / "segment-1").write_bytes(b"12345678" + BODY)
    return StoredUpdate(tmp_path / "segment-1", 8, len(BODY), LENGTH, None, DIGEST)


def test_a_call_comes_back_from_its_record(coordinator, models, update, tmp_path):
    for call in (
        RecordedCall("drop", {"now": 2.0, "client": 0, "visit": 0}),
        RecordedCall("receive", {**ARGUMENTS, "vector": update, "base": None}),
        RecordedCall("receive", {**ARGUMENTS, "vector": DiscardedUpdate(DIGEST), "base": None}),
        RecordedCall("receive", {**ARGUMENTS, "vector": DiscardedUpdate(DIGEST), "base": None, "share": b"\x00\xff"}),
        RecordedCall(
            "receive", {**ARGUMENTS, "vector": replace(update, is_masked=True), "base": None, "share": b"record"}
        ),
        RecordedCall("reveal", {"now": 2.0, "opened": replace(update, is_masked=True)}),
    ):
        record = record_of(call, 7)
        assert record.number == 7
        assert not re.search("vector|opened", record.row()["arguments"])
        assert call_of(record, coordinator, tmp_path, models) == call


@pytest.mark.parametrize("spoil", ["change", "cut", "delete"])
def test_an_update_that_differs_from_the_record_is_refused(spoil, coordinator, models, update, tmp_path):
    record = record_of(RecordedCall("receive", {**ARGUMENTS, "vector": update, "base": None}), 7)
    data = update.path.read_bytes()
    if spoil == "delete":
        update.path.unlink()
    else:
        update.path.write_bytes(data[:-1] + (b"!" if spoil == "change" else b""))
    with pytest.raises(OffbeatError, match=r"segment-1 is broken: .* record 7; restore a backup"):
        call_of(record, coordinator, tmp_path, models)


def test_a_discarded_update_is_never_read():
    with pytest.raises(AssertionError, match="does not count"):
        DiscardedUpdate("").resolve()
