"""The trackers' own libraries, in folders and on a server of this machine."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import httpx
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.trackers.libraries import TRACKERS, check_installed
from tests.trackers.conftest import MODEL, add, begin


def track(folder, name, **environment):
    """Run ``offbeat track``; return its exit code, its line of output and its errors."""
    command = [sys.executable, "-m", "offbeat", "track", str(folder), "--to", name]
    where = {"cwd": folder.parent, "env": {**os.environ, **environment}}
    done = subprocess.run(command, **where, capture_output=True, encoding="utf-8", timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"{name}: ")]
    return done.returncode, "".join(lines), done.stderr


def wandb_records(content):
    """Yield the records of W&B's file: parts in blocks of 32 KB, as in LevelDB's log."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def go_on(folder):
    """Let the run of the folder that has begun end, with a third evaluation."""
    writer = begin(folder)
    add(writer, range(3))
    writer.finish(MODEL, 1.0)


def test_tensorboard(runs):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert track(runs, "tensorboard")[:2] == (0, "tensorboard: 5 evaluations sent")
    go_on(runs)
    assert track(runs, "tensorboard")[:2] == (0, "tensorboard: 1 evaluations sent")
    for name in ("done-seed7", "mine-seed7"):
        events = accumulator.EventAccumulator(str(runs / "tensorboard" / name))
        events.Reload()
        found = [(event.step, event.wall_time, event.value) for event in events.Scalars("accuracy")]
        assert found == [(0, 0.0, 0.0), (3, 10.0, pytest.approx(0.1)), (6, 20.0, pytest.approx(0.2))]
        assert [event.value for event in events.Scalars("lost")] == [0.0, 0.0, 0.0]
        (config,) = events.Tensors("config/text_summary")
        assert b"    lr = 0.1" in config.tensor_proto.string_val[0]


def test_wandb_offline(runs):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    assert track(runs, "wandb", WANDB_MODE="offline")[:2] == (0, "wandb: 5 evaluations sent")
    go_on(runs)
    assert track(runs, "wandb", WANDB_MODE="offline")[:2] == (0, "wandb: 1 evaluations sent")
    found, settings = {}, {}
    for path in sorted(runs.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        for data in wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.run.run_id:
                run = record.run
                settings[run.run_id] = (run.project, run.run_group, run.display_name)
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            if "accuracy" in items:
                found.setdefault(run.run_id, []).append((items["_step"], items["seconds"], items["accuracy"]))
    assert sorted(settings.values()) == [
        ("digits at night", "done", "done-seed7"), ("digits at night", "mine", "mine-seed7")
    ]  # fmt: skip
    assert list(found.values()) == [[(0, 0, 0), (1, 10, 0.1), (2, 20, 0.2)]] * 2


def unlogged(folder):
    """Return the note of a folder as it is after a failure between the beginning of a run and its first row."""
    sent = json.loads((folder / ".tracking" / "trackio.json").read_text(encoding="utf-8"))
    return {name: {**run, "key": f"{name}-0a1b2c3d", "rows": 0} for name, run in sent.items()}


def test_trackio(runs, tmp_path):
    pytest.importorskip("trackio")
    place = {"TRACKIO_DIR": str(tmp_path / "trackio")}
    assert track(runs, "trackio", **place)[:2] == (0, "trackio: 5 evaluations sent")
    add(begin(tmp_path / "others"), range(2))  # of the same names
    assert track(tmp_path / "others", "trackio", **place)[:2] == (0, "trackio: 2 evaluations sent")
    (tmp_path / "others" / ".tracking" / "trackio.json").write_text(json.dumps(unlogged(tmp_path / "others")))
    assert track(tmp_path / "others", "trackio", **place)[:2] == (0, "trackio: 2 evaluations sent")
    go_on(runs)
    assert track(runs, "trackio", **place)[:2] == (0, "trackio: 1 evaluations sent")
    script = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as storage; "
        "name = 'digits at night'; "
        "print(json.dumps({run: storage.get_logs(name, run) for run in storage.get_runs(name)}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **place}, capture_output=True, encoding="utf-8", check=True
    )
    found = json.loads(said.stdout)
    names = sorted(name.rpartition("-")[0] for name in found)
    assert names == ["done-seed7", "mine-seed7", "mine-seed7", "mine-seed7"]
    others = [name for name, rows in found.items() if len(rows) == 2]
    assert len(others) == 2
    for rows in (rows for name, rows in found.items() if name not in others):
        assert [(row["step"], row["seconds"], row["accuracy"]) for row in rows] == [
            (0, 0, 0),
            (1, 10, 0.1),
            (2, 20, 0.2),
        ]


@pytest.fixture
def mlflow_server(tmp_path):
    """Return a function that starts MLflow's server at the same address each time, as a context."""
    pytest.importorskip("mlflow.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    @contextlib.contextmanager
    def serve():
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers"]
        command += ["1", "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination"]
        command += [str(tmp_path / "artifacts")]
        with (tmp_path / "mlflow.log").open("ab") as log:
            server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
        try:
            for _ in range(1200):
                with contextlib.suppress(httpx.TransportError):  # it listens before it answers
                    if httpx.get(f"{serve.address}/health").status_code == 200:
                        break
                assert server.poll() is None, (tmp_path / "mlflow.log").read_text()
                time.sleep(0.1)
            yield
        finally:
            os.killpg(server.pid, 9)
            server.wait()

    serve.address = f"http://127.0.0.1:{port}"
    return serve


def test_an_mlflow_server_that_was_down_is_caught_up(runs, mlflow_server, tmp_path):
    place = {"MLFLOW_TRACKING_URI": mlflow_server.address}
    code, _, errors = track(runs, "mlflow", **place)
    assert code == 2
    assert errors.strip().splitlines()[-1].startswith("offbeat: mlflow failed: ")
    with mlflow_server():
        assert track(runs, "mlflow", **place)[:2] == (0, "mlflow: 5 evaluations sent")
        go_on(runs)
        assert track(runs, "mlflow", **place)[:2] == (0, "mlflow: 1 evaluations sent")
        from mlflow import MlflowClient

        client = MlflowClient(mlflow_server.address)
        experiment = client.get_experiment_by_name("digits at night")
        found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
        assert sorted(found) == ["done-seed7", "mine-seed7"]
        for run in found.values():
            points = [(p.step, p.timestamp, p.value) for p in client.get_metric_history(run.info.run_id, "accuracy")]
            assert points == [(0, 0, 0.0), (3, 10_000, 0.1), (6, 20_000, 0.2)]
            assert run.data.params["local.lr"] == "0.1"
            assert run.data.tags["seed"] == "7"
            assert run.info.status == "FINISHED"
            names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
            assert names == {"config.toml", "versions.json", "history.parquet"}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_library_that_is_not_installed_is_one_line(name, monkeypatch):
    monkeypatch.setattr("offbeat.trackers.libraries.importlib.util.find_spec", lambda _: None)
    with pytest.raises(OffbeatError) as caught:
        check_installed(name)
    assert str(caught.value) == f"{name} is not installed: pip install 'offbeat[{name}]'"
