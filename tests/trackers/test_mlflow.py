"""Runs on MLflow's own server, in a process that need not import it again."""

import contextlib
import multiprocessing
import socket

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.trackers.catch_up import CatchUp
from tests.trackers.conftest import add, begin, go_on

pytestmark = pytest.mark.filterwarnings("ignore")  # of what MLflow's server uses


@pytest.fixture
def mlflow_server(tmp_path, monkeypatch):
    """Return a context manager that runs the server; trackers find its address in the environment."""
    pytest.importorskip("mlflow.server")
    from mlflow.server import app, constants
    from werkzeug.serving import make_server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address, port = free.getsockname()
    for name, value in {
        "MLFLOW_TRACKING_URI": f"http://{address}:{port}",
        constants.BACKEND_STORE_URI_ENV_VAR: f"sqlite:///{tmp_path}/mlflow.db",
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: str(tmp_path / "artifacts"),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    @contextlib.contextmanager
    def serve():
        server = make_server(address, port, app, threaded=True)
        process = multiprocessing.get_context("fork").Process(target=server.serve_forever)
        process.start()
        server.server_close()  # here; the child has it open
        try:
            yield
        finally:
            process.kill()
            process.join()

    return serve


def test_a_server_that_was_down_is_caught_up(runs, mlflow_server, monkeypatch):
    with pytest.raises(OffbeatError, match=r"^mlflow failed: "):
        CatchUp(runs, "mlflow").send()
    from offbeat.trackers import mlflow_tracker

    class Failing(mlflow_tracker.MlflowClient):
        def log_batch(self, *_, **__):
            raise ConnectionError("no route")

    add(begin(runs, "fedbuff+mom"), range(2))
    with mlflow_server():
        with monkeypatch.context() as patch:  # parameters that fail leave one run
            patch.setattr(mlflow_tracker, "MlflowClient", Failing)
            for _ in range(2):
                with pytest.raises(OffbeatError, match="mlflow failed: ConnectionError: no route"):
                    CatchUp(runs, "mlflow").send()
        assert CatchUp(runs, "mlflow").send() == 7
        go_on(runs)
        assert CatchUp(runs, "mlflow").send() == 1
        client = mlflow_tracker.MlflowClient()
        experiment = client.get_experiment_by_name("digits at night")
        found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
        assert sorted(found) == ["done-seed7", "fedbuff+mom-seed7", "mine-seed7"]
        assert found["fedbuff+mom-seed7"].data.params["algorithms.fedbuff_mom.algorithm"] == "fedavg"
        assert found.pop("fedbuff+mom-seed7").info.status == "RUNNING"
        for run in found.values():
            points = [(p.step, p.timestamp, p.value) for p in client.get_metric_history(run.info.run_id, "accuracy")]
            assert points == [(0, 0, 0.0), (3, 10_000, 0.1), (6, 20_000, 0.2)]
            assert run.data.params["local.lr"] == "0.1"
            assert run.data.tags["seed"] == "7"
            assert run.info.status == "FINISHED"
            names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
            assert names == {"config.toml", "versions.json", "history.parquet"}
