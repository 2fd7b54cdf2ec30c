"""Versions are measured in a process of its own, and nobody waits for it."""

import asyncio
import json
import sys
import time

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.config.model_sections import SoftmaxSection
from offbeat.data import load_dataset
from offbeat.early_stop import EarlyStop
from offbeat.service.audit.verification import entries
from offbeat.service.engine.evaluation_queue import EvaluationQueue
from offbeat.service.store.model_files import ModelFiles
from offbeat.training.evaluation import Evaluator
from offbeat.worlds.workload import build_model, build_objective
from tests.service.conftest import LAYOUT, LENGTH, body_of, running

SECTIONS = {"data": {"name": "digits"}, "model": {"name": "softmax"}, "metrics": ["accuracy"], "seed": 1}
PROGRAM = [sys.executable, "-m", "offbeat.worlds.server_evaluation", json.dumps(SECTIONS)]
ANSWERS = [sys.executable, "-c", "while True: input(); print('{\"loss\": 0.5}', flush=True)"]

SESSION = [
    sys.executable,
    "-c",
    "import os; input(); print('{\"loss\": %d}' % (os.getsid(0) == os.getpid()), flush=True)",
]


@pytest.fixture(scope="module")
def model():
    return build_model(SoftmaxSection(name="softmax"), load_dataset("digits"), 1)


def wait_for(condition, seconds=40.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def serve(folder, model, command, every=2, **settings):
    layout = [(name, tuple(tensor.shape)) for name, tensor in model.named(model.vector).items()]
    return running(
        folder,
        lambda: FedBuff(buffer_size=1, concurrency=1),
        model=model.vector.clone(),
        layout=layout,
        evaluate_every=every,
        evaluate_command=command,
        **settings,
    )


def work(server, peer, model, visits):
    for number in range(visits):
        update = torch.randn(len(model.vector), generator=torch.Generator().manual_seed(number))
        assert peer.put(peer.check_in(), body_of(update)).status_code == 200


def test_each_nth_version_is_measured_as_in_a_simulation(model, tmp_path):
    lines = tmp_path / "server" / "evaluations.jsonl"
    with serve(tmp_path / "server", model, PROGRAM) as server:
        work(server, server.enrol(), model, 5)
        wait_for(lambda: lines.exists() and lines.read_text().count("\n") == 2)
        assert server.admin.http.get("/v1/status").json()["evaluated"]["version"] == 4
    dataset = load_dataset("digits")
    objective = build_objective("cross_entropy", ["accuracy"])
    evaluate = Evaluator(
        model,
        loss=objective.loss,
        metrics=objective.metrics,
        seed=1,
        inputs=torch.from_numpy(dataset.test_inputs),
        labels=torch.from_numpy(dataset.test_labels),
    )
    vector, expected = model.vector.clone(), []
    for number in range(4):
        vector = vector - torch.randn(len(vector), generator=torch.Generator().manual_seed(number))
        if number % 2:
            loss, metrics = evaluate(vector)
            expected.append({"version": number + 1, "loss": loss, **metrics})
    assert [json.loads(line) for line in lines.read_text().splitlines()] == expected
    assert not list((tmp_path / "server").glob(".*.evaluated"))


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], "the program has ended with the exit code 3"),
        (["cat"], "Expecting value: line 1 column 1 (char 0)"),  # paths are not JSON
        ([sys.executable, "-c", "input(); print('[1]', flush=True); input()"], "'list' object is not a mapping"),
        (["no-such-program"], "[Errno 2] No such file or directory: 'no-such-program'"),
    ],
)
def test_clients_work_on_after_the_program_has_failed(command, problem, model, tmp_path, caplog):
    with serve(tmp_path / "server", model, command, every=1) as server:
        work(server, server.enrol(), model, 3)
        wait_for(lambda: caplog.messages.count("evaluation_failed") == 3)
        assert not list((tmp_path / "server").glob(".*.evaluated"))
    failed = [record for record in caplog.records if record.message == "evaluation_failed"]
    assert [record.fields for record in failed] == [{"version": n, "problem": problem} for n in (1, 2, 3)]


def test_a_program_that_has_failed_is_started_again(model, tmp_path):
    once = f"import pathlib; path = pathlib.Path({str(tmp_path / 'failed')!r}); first = not path.exists(); path.touch()"
    program = [sys.executable, "-c", f"{once}\nif first: raise SystemExit(1)\n{ANSWERS[-1]}"]
    with serve(tmp_path / "server", model, program, every=1) as server:
        peer = server.enrol()
        work(server, peer, model, 1)
        wait_for(lambda: (tmp_path / "failed").exists())
        work(server, peer, model, 1)
        wait_for(lambda: server.service.status().evaluated == {"version": 2, "loss": 0.5})


def test_of_many_versions_that_wait_the_oldest_are_left_out(model, tmp_path, caplog):
    never = [sys.executable, "-c", "input(); input()"]
    with serve(tmp_path / "server", model, never, every=1) as server:
        work(server, server.enrol(), model, 12)
        skipped = [r.fields["version"] for r in caplog.records if r.message == "evaluation_skipped"]
        # Eight of twelve wait, and the program may have got the first.
        assert (len(skipped), max(skipped)) in ((3, 4), (4, 4))
        assert len(list((tmp_path / "server").glob(".*.evaluated"))) <= 9


def test_the_newest_version_is_evaluated_after_a_restart(model, tmp_path):
    with serve(tmp_path / "server", model, [sys.executable, "-c", "input(); input()"], stop_versions=2) as server:
        work(server, server.enrol(), model, 2)
        assert server.service.status().finished
    with serve(tmp_path / "server", model, ANSWERS, stop_versions=2) as server:
        wait_for(lambda: server.service.status().evaluated == {"version": 2, "loss": 0.5})
    with serve(tmp_path / "server", model, ["no-such-program"], stop_versions=2) as server:
        assert server.service.status().evaluated == {"version": 2, "loss": 0.5}  # and not again


def test_a_result_that_cannot_be_saved_is_logged_and_the_next_is_evaluated(model, tmp_path, caplog):
    lines = tmp_path / "server" / "evaluations.jsonl"
    with caplog.at_level("INFO", "offbeat.service"), serve(tmp_path / "server", model, ANSWERS) as server:
        lines.mkdir()
        peer = server.enrol()
        work(server, peer, model, 2)
        wait_for(lambda: "evaluated" in caplog.messages)
        assert server.service.status().evaluated == {"version": 2, "loss": 0.5}
        lines.rmdir()
        work(server, peer, model, 2)
        wait_for(lambda: caplog.messages.count("evaluated") == 2)
    assert lines.read_text() == '{"version": 4, "loss": 0.5}\n'
    (failed,) = [record for record in caplog.records if record.message == "evaluation_failed"]
    assert failed.fields == {"version": 2, "problem": "Is a directory"}


def test_a_part_of_a_result_does_not_spoil_the_next(tmp_path):
    resource = pytest.importorskip("resource")
    path, models = tmp_path / "evaluations.jsonl", ModelFiles(tmp_path / "models", LAYOUT)
    models.path(0).parent.mkdir()

    async def evaluate():
        saved = asyncio.Queue()

        async def is_durable():
            pass

        queue = EvaluationQueue(tmp_path, models, is_durable, 1, ANSWERS, lambda version, _: saved.put_nowait(version))
        task = asyncio.create_task(queue.run())
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for version in range(3):
            models.write(version, torch.zeros(LENGTH))
            if version == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
            queue.add(version)
            try:
                assert await saved.get() == version
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(evaluate(), 40.0))
    assert path.read_text() == '{"version": 0, "loss": 0.5}\n{"version": 2, "loss": 0.5}\n'


def test_a_result_that_reaches_the_target_ends_the_run_also_after_a_restart(model, tmp_path):
    def stop():
        return EarlyStop("loss", lower_is_better=True, target=0.5)

    with serve(tmp_path / "server", model, ANSWERS, early_stop=stop(), stop_versions=8) as server:
        peer = server.enrol()
        work(server, peer, model, 2)
        wait_for(lambda: server.service.status().finished)
        token = peer.token
        extended = server.admin.http.post("/v1/admin/extend", json={"versions": 9})
        assert (extended.status_code, extended.json()["kind"]) == (409, "cannot-extend")
        assert "stop.target or stop.patience" in extended.json()["detail"]
        assert server.service.status().stop_versions == 8
        assert [entry for entry in entries(server.folder) if entry["kind"] == "run extended"] == []
    lines = tmp_path / "server" / "evaluations.jsonl"
    lines.write_text('{"version": 1, "lo\n' + lines.read_text() + '{"version": 4')  # what a kill may leave
    with serve(tmp_path / "server", model, ANSWERS, early_stop=stop()) as server:
        answer = server.peer(token).http.post("/v1/checkin", json={"wait_seconds": 0.0}).json()
        assert answer["finished"]
        assert server.admin.http.get("/v1/status").json()["evaluated"] == {"version": 2, "loss": 0.5}
    assert lines.read_text() == '{"version": 2, "loss": 0.5}\n'


def test_the_program_is_not_interrupted_with_the_server_by_its_terminal(model, tmp_path):
    lines = tmp_path / "server" / "evaluations.jsonl"
    with serve(tmp_path / "server", model, SESSION) as server:
        work(server, server.enrol(), model, 2)
        wait_for(lambda: lines.exists() and lines.read_text())
    assert json.loads(lines.read_text().splitlines()[0])["loss"] == 1
