import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from offbeat.flower.app_state import AppState


def test_a_state_comes_back():
    records = RecordDict(
        {
            "own": ConfigRecord({"name": "as the app likes"}),
            "arrays": ArrayRecord([np.arange(3)]),
            "metrics": MetricRecord({"seen": [1, 2]}),
        }
    )
    own = {"running_mean": np.array([1.5, 2.5], np.float32), "num_batches_tracked": np.array(3)}
    again = AppState.from_bytes(AppState(records, own).to_bytes())
    assert again.records == records
    assert {name: (array.dtype, array.tolist()) for name, array in again.own.items()} == {
        "running_mean": (np.float32, [1.5, 2.5]),
        "num_batches_tracked": (np.int64, 3),
    }


def test_an_empty_state_comes_back():
    again = AppState.from_bytes(AppState().to_bytes())
    assert (dict(again.records), again.own) == ({}, {})
