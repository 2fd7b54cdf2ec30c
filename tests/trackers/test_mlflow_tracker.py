"""Runs in a database of MLflow, without a server."""

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.trackers.catch_up import CatchUp
from tests.trackers.conftest import add, begin


@pytest.fixture
def tracker_module(tmp_path, monkeypatch):
    pytest.importorskip("mlflow.server")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    from offbeat.trackers import mlflow_tracker

    return mlflow_tracker


def test_parameters_that_fail_leave_one_run_and_are_sent_later(tmp_path, tracker_module, monkeypatch):
    add(begin(tmp_path / "runs", "fedbuff+mom"), range(2))

    class Failing(tracker_module.MlflowClient):
        def log_batch(self, *_, **__):
            raise ConnectionError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(tracker_module, "MlflowClient", Failing)
        for _ in range(2):
            with pytest.raises(OffbeatError, match="mlflow failed: ConnectionError: no route"):
                CatchUp(tmp_path / "runs", "mlflow").send()
    assert CatchUp(tmp_path / "runs", "mlflow").send() == 2
    client = tracker_module.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("digits at night").experiment_id])
    assert run.data.params["algorithms.fedbuff_mom.algorithm"] == "fedavg"
    assert run.data.params["local.lr"] == "0.1"
    assert run.data.metrics["accuracy"] == 0.1
