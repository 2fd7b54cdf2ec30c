"""Evaluations by clients over HTTP: who is asked, what is kept, and that training goes on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.early_stop import EarlyStop
from offbeat.uniform_numbers import choose_clients
from tests.service.client_evaluation.peers import (
    Waiting,
    able,
    answer,
    asked,
    check_in,
    clients_of,
    finish_visits,
    lines,
    make_versions,
    serving,
    status,
    work,
)
from tests.service.conftest import LENGTH, Served, body_of, running
from tests.service.http_client import until

ONES = torch.ones(LENGTH)


class TestRound:
    def test_two_chosen_clients_evaluate_every_second_version(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", requests_a_second=1e6) as served:
            peers = clients_of(served, 5)
            work(peers[0])
            assert asked([peers[0]]) == {}
            work(peers[1])  # version 2
            finish_visits(peers)
            chosen = asked(peers)
            assert list(chosen) == sorted(choose_clients(7, 2, 5, 2, lambda _: True))
            assert set(chosen.values()) == {2}
            first, second = (peers[number] for number in chosen)
            evaluation = check_in(first)["evaluation"]
            assert evaluation.pop("model_sha256") in first.http.get("/v1/models/2").headers["ETag"]
            assert evaluation == {"version": 2, "length": LENGTH}
            model = load(first.http.get("/v1/models/2").content)
            assert torch.cat([model["weight"].view(-1), model["bias"]]).tolist() == pytest.approx(
                [-1 - 2**-0.5] * LENGTH
            )
            assert answer(first, 2, 3, accuracy=0.5, loss=1.0).json()["counted"] is True
            assert check_in(first)["evaluation"] is None
            assert status(served)["evaluated_by_clients"] is None
            assert answer(second, 2, 1, accuracy=1.0, loss=2.0).json()["counted"] is True
            summary = status(served)["evaluated_by_clients"]
            assert (summary["version"], summary["asked"], summary["answered"], summary["examples"]) == (2, 2, 2, 4)
            assert summary["metrics"]["accuracy"]["weighted"] == 0.625
            assert summary["metrics"]["loss"]["worst"] == 2.0
            (line,) = lines(served.folder)
            assert [client["client"] for client in line["by_client"]] == list(chosen)
            metrics = served.admin.http.get("/metrics").text
            assert 'offbeat_client_metric{metric="accuracy",statistic="mean"} 0.75' in metrics
            assert "offbeat_clients_evaluated 2.0" in metrics

    def test_the_answers_of_a_client_that_is_forgotten_are_deleted_for_good(self, tmp_path: Path) -> None:
        folder = tmp_path / "server"
        with serving(folder, requests_a_second=1e6) as served:
            peers = clients_of(served, 5)
            make_versions(peers, 2)
            finish_visits(peers)
            gone, other = asked(peers)
            assert answer(peers[gone], 2, 3, accuracy=0.4375).json()["counted"] is True
            assert answer(peers[other], 2, 1, accuracy=1.0).json()["counted"] is True
            assert [client["client"] for client in lines(folder)[0]["by_client"]] == [gone, other]
            assert served.admin.http.delete(f"/v1/clients/{gone}/data").status_code == 200
            (line,) = lines(folder)
            assert [client["client"] for client in line["by_client"]] == [other]
            held = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
            assert b"0.4375" not in held
        with serving(folder) as served:
            assert lines(folder) == [line]
            assert status(served)["evaluated_by_clients"]["metrics"]["accuracy"]["mean"] == 1.0

    def test_a_client_at_work_is_asked_after_its_upload(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=3, every=1) as served:
            peers = clients_of(served, 3)
            answered = peers[0].put(check_in(peers[0])["visit"], body_of(ONES), params={"checkin": "true"})
            following = answered.json()["next"]
            assert (following["visit"], following["evaluation"]["version"]) == (None, 1)
            assert check_in(peers[1])["visit"]["number"] == 0  # at work
            work(peers[1])  # version 2: the round of version 1 is over
            assert asked([peers[0], peers[1]]) == {0: 2, 1: 2}
            assert lines(served.folder)[0]["answered"] == 0

    def test_a_waiting_client_is_asked_at_once(self, tmp_path: Path) -> None:
        make = lambda: FedAvg(cohort=1)  # noqa: E731
        with serving(tmp_path / "server", make=make, every=1) as served:
            worker, waiting = able(served.enrol()), able(served.enrol())
            visit = check_in(worker)["visit"]
            with Waiting(waiting) as answered:
                until(lambda: len(served.service.engine.waiting) == 1)
                worker.put(visit, body_of(ONES))
                evaluation = answered()["evaluation"]
                etag = waiting.http.get("/v1/models/1").headers["ETag"]
                assert evaluation == {"version": 1, "model_sha256": etag.strip('"'), "length": LENGTH}

    def test_clients_without_the_ability_are_not_asked(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=5, every=1) as served:
            peers = [served.enrol() for _ in range(3)]
            old, new = peers[:2], able(peers[2])
            for peer in peers:
                check_in(peer)
            make_versions(peers, 1)
            finish_visits(peers)
            assert asked([*old, new]) == {2: 1}
            assert answer(old[0], 1, accuracy=1.0).json()["kind"] == "no-such-evaluation"
            # A client that no longer says so is asked no more.
            del new.http.headers["Offbeat-Supports"]
            assert asked([new]) == {}
            assert status(served)["evaluated_by_clients"]["answered"] == 0

    def test_without_able_clients_there_is_no_round(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", every=1) as served:
            make_versions([served.enrol(), served.enrol()], 2)
            assert status(served)["evaluated_by_clients"] is None
        assert not (tmp_path / "server" / "client_evaluations.jsonl").exists()

    def test_the_last_version_is_evaluated_before_clients_leave(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=1, stop_versions=2) as served:
            (peer,) = clients_of(served, 1)
            work(peer)
            work(peer)
            now = check_in(peer)
            assert (now["evaluation"]["version"], now["finished"]) == (2, False)
            answer(peer, 2, accuracy=1.0)
            assert check_in(peer)["finished"]


class TestAnswers:
    def test_the_first_answer_counts(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=1, every=1) as served:
            (peer,) = clients_of(served, 1)
            work(peer)
            for accuracy in (0.5, 0.5, 1.0):
                assert answer(peer, 1, accuracy=accuracy).json()["counted"] is True
            assert status(served)["evaluated_by_clients"]["metrics"]["accuracy"]["mean"] == 0.5

    def test_anything_else_is_refused(self, tmp_path: Path) -> None:
        metrics = [b'{"a": ' + value + b"}" for value in (b"NaN", b"1e400", b"1e39", b'"1"')]
        metrics += [b'{"' + name + b'": 1}' for name in (b"a b", b"", b"a" * 65)]
        metrics += [b"{}", json.dumps({f"a{number}": 1 for number in range(33)}).encode()]
        bodies = [b'{"examples": 1, "metrics": ' + text + b"}" for text in metrics]
        bodies += [b'{"examples": ' + number + b', "metrics": {"a": 1}}' for number in (b"0", b"3000000000")]
        bodies += [b'{"examples": 1, "metrics": {"a": 1}, "more": "' + b"a" * n + b'"}' for n in (1, 70_000)]
        with serving(tmp_path / "server", number=1, every=1) as served:
            (peer,) = clients_of(served, 1)
            work(peer)
            for body in bodies:
                path, headers = "/v1/evaluations/1", {"Content-Type": "application/json"}
                body = body.replace(b'{"ex', b'{"model_sha256": "%b", "ex' % (b"0" * 64))
                refused = peer.http.post(path, content=body, headers=headers)
                assert refused.json()["kind"] == ("too-large" if len(body) > 70_000 else "malformed-request"), body
            assert check_in(peer)["evaluation"]["version"] == 1

    def test_more_examples_than_a_client_may_declare(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=1, every=1, max_examples=9) as served:
            peer = able(served.enrol(examples=9))
            assert peer.put(check_in(peer)["visit"], body_of(ONES), examples=9).status_code == 200
            assert answer(peer, 1, 10, accuracy=1.0).json()["kind"] == "too-many-examples"
            assert answer(peer, 1, 9, accuracy=1.0).status_code == 200

    @pytest.mark.parametrize("version", [0, 2, 2**40])
    def test_a_version_that_nobody_asked_for(self, version: int, tmp_path: Path) -> None:
        with serving(tmp_path / "server", number=1, every=1) as served:
            (peer,) = clients_of(served, 1)
            work(peer)
            for path in ("", "/give-up"):
                body = {"model_sha256": "0" * 64, "examples": 1, "metrics": {"a": 1.0}}
                refused = peer.http.post(f"/v1/evaluations/{version}{path}", json=body if path == "" else None)
                assert (refused.status_code, refused.json()["kind"]) == (404, "no-such-evaluation")

    def test_in_a_run_without_evaluations(self, server: Served) -> None:
        assert answer(server.enrol(), 0, a=1.0).json()["kind"] == "no-such-evaluation"


class TestSkipped:
    def test_a_client_that_gives_up_goes_on_training(self, tmp_path: Path) -> None:
        with serving(tmp_path / "server", every=1) as served:
            peers = clients_of(served, 2)
            work(peers[0])
            assert peers[0].http.post("/v1/evaluations/1/give-up").status_code == 204
            assert peers[0].http.post("/v1/evaluations/1/give-up").status_code == 204
            assert check_in(peers[0])["visit"]["version"] == 1
            assert answer(peers[0], 1, a=1.0).json()["counted"] is False

    def test_silent_and_revoked_clients_are_skipped(self, tmp_path: Path) -> None:
        now = 0.0
        with serving(tmp_path / "server", number=3, every=1, lease_seconds=50.0, clock=lambda: now) as served:
            peers = clients_of(served, 3)
            work(peers[0])
            assert answer(peers[0], 1, a=1.0).status_code == 200
            served.admin.http.delete("/v1/clients/1").raise_for_status()
            assert status(served)["evaluated_by_clients"] is None
            now = 50.5
            served.loop.call_soon_threadsafe(served.service.engine.run.alarm.ring)  # it sleeps by its own clock
            until(lambda: status(served)["evaluated_by_clients"] is not None)
            summary = status(served)["evaluated_by_clients"]
            assert (summary["asked"], summary["answered"]) == (3, 1)
            assert answer(peers[2], 1, a=1.0).json()["counted"] is False

    def test_clients_that_were_not_heard_from_for_long_are_not_chosen(self, tmp_path: Path) -> None:
        now = 0.0
        with serving(tmp_path / "server", number=2, every=2, clock=lambda: now) as served:
            gone, here, busy = clients_of(served, 3)
            finish_visits([gone])
            now = 601.0
            work(here)
            work(here)  # version 2
            finish_visits([busy])
            assert asked([gone, here, busy]) == {1: 2, 2: 2}


@pytest.fixture
def restart(tmp_path: Path) -> Callable[[Served], Path]:
    """Return a function that copies a server's folder, as it is; no end is as sudden."""

    def copy(served: Served) -> Path:
        shutil.copytree(served.folder, tmp_path / "killed")
        return tmp_path / "killed"

    return copy


class TestKilledServer:
    def test_no_acknowledged_answer_is_lost(self, tmp_path: Path, restart: Callable[[Served], Path]) -> None:
        with serving(tmp_path / "server", number=3, every=2, checkpoint_seconds=1e6) as served:
            peers = clients_of(served, 3)
            make_versions(peers, 2)
            assert answer(peers[0], 2, accuracy=0.25).status_code == 200
            assert peers[1].http.post("/v1/evaluations/2/give-up").status_code == 204
            tokens = [peer.token for peer in peers]
            killed = restart(served)
        with serving(killed, number=3, every=2) as served:
            again = [able(served.peer(token)) for token in tokens]
            finish_visits(again)
            assert asked(again) == {2: 2}
            assert again[2].http.get("/v1/models/2").status_code == 200
            assert answer(again[0], 2, accuracy=1.0).json()["counted"] is True  # the first one
            assert answer(again[2], 2, accuracy=0.75).json()["counted"] is True
            summary = status(served)["evaluated_by_clients"]
            assert (summary["answered"], summary["metrics"]["accuracy"]["mean"]) == (2, 0.5)
            assert [line["version"] for line in lines(killed)] == [2]

    def test_a_round_goes_on_after_many_checkpoints(self, tmp_path: Path, restart: Callable[[Served], Path]) -> None:
        with serving(tmp_path / "server", number=2, every=3) as served:
            peers = clients_of(served, 3)
            for peer in (peers[0], peers[1], peers[2]):
                work(peer)
            first = list(asked(peers))
            other = next(peer for number, peer in enumerate(peers) if number not in first)
            for _ in range(2):
                work(other)
                served.checkpoint()
            assert {3, 5} <= served.service.engine.models.versions()
            killed = restart(served)
            tokens = [peers[number].token for number in first]
        with serving(killed, number=2, every=3) as served:
            again = [able(served.peer(token)) for token in tokens]
            assert set(asked(again).values()) == {3}
            for peer in again:
                assert answer(peer, 3, a=1.0).json()["counted"] is True
            served.checkpoint()
            served.checkpoint()
            assert 3 not in served.service.engine.models.versions()

    def test_the_file_has_all_rounds_again(self, tmp_path: Path, restart: Callable[[Served], Path]) -> None:
        with serving(tmp_path / "server", number=1, every=1) as served:
            (peer,) = clients_of(served, 1)
            for version in (1, 2):
                work(peer)
                answer(peer, version, accuracy=version / 4)
            before = lines(served.folder)
            killed = restart(served)
        (killed / "client_evaluations.jsonl").write_text('{"version": 1, "as')
        with serving(killed, number=1, every=1) as served:
            assert lines(killed) == before
            assert status(served)["evaluated_by_clients"]["version"] == 2
        with running(killed, lambda: FedBuff(buffer_size=1, concurrency=8)) as served:  # without evaluations
            assert status(served)["evaluated_by_clients"] is None


class TestEarlyStop:
    def test_a_round_that_reaches_the_target_ends_the_run_also_after_a_kill(
        self, tmp_path: Path, restart: Callable[[Served], Path]
    ) -> None:
        def stop() -> EarlyStop:
            return EarlyStop("client_accuracy_mean", lower_is_better=False, target=0.8)

        with serving(tmp_path / "server", number=1, every=1, early_stop=stop()) as served:
            (peer,) = clients_of(served, 1)
            work(peer)
            answer(peer, 1, accuracy=0.79)
            work(peer)
            assert not status(served)["finished"]
            answer(peer, 2, accuracy=0.8)
            assert check_in(peer)["finished"]
            assert status(served)["finished"]
            token, killed = peer.token, restart(served)
        with serving(killed, number=1, every=1, early_stop=stop()) as served:
            assert check_in(able(served.peer(token)))["finished"]
            assert status(served)["version"] == 2

    def test_waiting_clients_leave_when_the_run_ends(self, tmp_path: Path) -> None:
        stop = EarlyStop("client_loss", lower_is_better=True, patience=1)
        make = lambda: FedAvg(cohort=1)  # noqa: E731
        with serving(tmp_path / "server", make=make, number=1, every=1, early_stop=stop) as served:
            worker, other = able(served.enrol()), served.enrol()
            for version in (1, 2):
                worker.put(check_in(worker)["visit"], body_of(ONES))
                if version == 1:
                    answer(worker, version, loss=1.0)
            visit = check_in(other)["visit"]
            assert visit["version"] == 2
            with Waiting(served.enrol()) as answered:
                until(lambda: len(served.service.engine.waiting) == 1)
                answer(worker, 2, loss=1.5)
                assert answered()["finished"]
            assert other.put(visit, body_of(ONES)).json()["receipt"]["counted"] is False


def test_models_are_the_same_with_and_without_evaluations(tmp_path: Path) -> None:
    def last_model(number: int | None, folder: Path) -> bytes:
        with serving(folder, number=number or 1, every=1 if number else 10**6) as served:
            peers = clients_of(served, 3)
            for step in range(6):
                for client, version in asked(peers).items():
                    answer(peers[client], version, a=1.0)
                    check_in(peers[client])  # for its visit
                peer = peers[step % 3]
                update = torch.randn(LENGTH, generator=torch.Generator().manual_seed(step))
                assert peer.put(check_in(peer)["visit"], body_of(update)).status_code == 200
            served.checkpoint()
            assert (status(served)["evaluated_by_clients"] is not None) is (number is not None)
            latest = peers[0].http.get("/v1/models/6")
            assert latest.status_code == 200
            return latest.content

    assert last_model(3, tmp_path / "with") == last_model(None, tmp_path / "without")
