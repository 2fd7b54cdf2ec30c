"""Copies of a server's folder that are made while the server runs."""

import os
import shutil
import stat
import threading

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.service.server.admin import status
from offbeat.service.store.backup import back_up
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import put_in_pieces

ONES = torch.ones(LENGTH)


def plain():
    """Every update weighs the same, so that the model says how many there were."""
    return FedBuff(buffer_size=2, concurrency=4, staleness=constant())


def test_a_server_continues_from_a_copy_that_was_made_while_it_ran(tmp_path):
    with running(tmp_path / "one", plain, checkpoint_seconds=0.05) as server:
        peers = [server.enrol() for _ in range(5)]
        stop = threading.Event()

        def work(peer):
            while not stop.is_set():
                if (visit := peer.check_in(0.1)) is not None:
                    peer.send(visit, ONES)

        threads = [threading.Thread(target=work, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        copies = []
        for number in range(3):
            before, copy = status(tmp_path / "one")["counted"], tmp_path / "copies" / str(number)
            copies.append((copy, before, back_up(tmp_path / "one", copy)))
        stop.set()
        for thread in threads:
            thread.join()
    for copy, before, last in copies:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o700
        with running(copy, plain) as server:
            engine = server.service.engine
            assert engine.log_writer.number >= last > 0
            counted = engine.coordinator.statistics.counted
            assert counted >= before
            version = counted // 2
            assert engine.coordinator.algorithm.version == version
            assert torch.equal(engine.coordinator.algorithm.model, torch.full((LENGTH,), -float(version)))
            peer = server.peer(peers[0].token)
            visit = peer.check_in()
            assert visit is None or peer.send(visit, ONES)["counted"]


@pytest.mark.parametrize("umask", [0o022, 0])
def test_only_the_owner_may_read_a_copy_in_a_folder_that_anybody_may_read(tmp_path, umask):
    copy = tmp_path / "copy"
    copy.mkdir()
    copy.chmod(0o755)
    with running(tmp_path / "one", plain) as server:
        (tmp_path / "one" / "evaluations.jsonl").write_text("{}\n")
        (tmp_path / "one" / "tls").mkdir()
        (tmp_path / "one" / "tls" / "key.pem").write_text("key")
        peer = server.enrol(name="ward 3")
        peer.send(peer.check_in(), ONES)
        before = os.umask(umask)
        try:
            back_up(tmp_path / "one", copy)
        finally:
            os.umask(before)
    found = {path.relative_to(copy).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in copy.rglob("*")}
    assert {"offbeat.sqlite", "admin-token", "tls/key.pem", "evaluations.jsonl", "models/0.safetensors"} <= found.keys()
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o755


def test_other_folders_cannot_be_copied(tmp_path):
    with pytest.raises(OffbeatError, match="not a server's folder"):
        back_up(tmp_path, tmp_path / "copy")
    with running(tmp_path / "one"):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OffbeatError, match="not empty"):
        back_up(tmp_path / "one", tmp_path / "full")
    shutil.rmtree(tmp_path / "one" / "checkpoints")
    with pytest.raises(OffbeatError, match="does not hold a checkpoint"):
        back_up(tmp_path / "one", tmp_path / "copy")


def test_evaluations_are_copied_and_missing_tokens_are_made_again(tmp_path):
    with running(tmp_path / "one"):
        (tmp_path / "one" / "evaluations.jsonl").write_text('{"version": 2, "loss": 0.5}\n')
        for name in ("admin-token", "enrolment-token"):
            (tmp_path / "one" / name).unlink()
        back_up(tmp_path / "one", tmp_path / "copy")
    assert (tmp_path / "copy" / "evaluations.jsonl").read_text() == '{"version": 2, "loss": 0.5}\n'
    with running(tmp_path / "copy") as server:
        assert server.enrol().check_in()


def test_a_database_that_cannot_be_copied_is_one_line_that_says_what_to_do(tmp_path):
    with running(tmp_path / "one"):
        pass
    (tmp_path / "one" / "offbeat.sqlite").write_bytes(b"broken" * 1000)
    with pytest.raises(OffbeatError, match=r"file is not a database: .* restore an earlier backup") as raised:
        back_up(tmp_path / "one", tmp_path / "copy")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("fronts", [0, 1])
def test_a_copy_of_a_folder_with_fronts_holds_what_was_acknowledged_and_nothing_of_theirs(tmp_path, fronts):
    body = body_of(ONES)
    with running(tmp_path / "one", plain, front_processes=1, checkpoint_seconds=1e6) as server:
        peer, other = server.enrol(), server.enrol()
        answer = put_in_pieces(peer, peer.check_in(), body)
        assert answer.json()["receipt"]["counted"]  # in a file behind the checkpoint
        begun = other.check_in()
        head = other.head(begun, body)
        assert other.put(begun, body[:10], head=head).status_code == 202
        assert (tmp_path / "one" / "fronts" / "0" / "partial" / "1-0").stat().st_size == 10
        back_up(tmp_path / "one", tmp_path / "copy")
        assert other.put(begun, body, offset=10, head=head).json()["receipt"]["counted"]
    assert not (tmp_path / "copy" / "fronts").exists()
    with running(tmp_path / "copy", plain, front_processes=fronts) as server:
        assert server.service.engine.coordinator.statistics.counted == 1
        other = server.peer(other.token)
        state = other.http.get("/v1/uploads/0").json()
        assert (state["wanted"], state["offset"]) == (True, 0)
        assert put_in_pieces(other, begun, body).json()["receipt"]["counted"]
