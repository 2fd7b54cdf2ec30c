import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx

from offbeat.algorithms import FedBuff
from offbeat.service.server import admin, serving
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, Line, begin_upload, check_log, line, until


def test_a_token_in_the_folder_that_is_gone_or_revoked_is_replaced_at_the_next_start(tmp_path):
    folder, kinds = tmp_path / "server", ("enrolment", "admin")
    tokens = {kind: [] for kind in kinds}
    for event in ("first start", "delete", "revoke", "nothing"):
        for kind in kinds if event == "delete" else ():
            (folder / f"{kind}-token").unlink()
        with running(folder) as server:
            for kind in kinds:
                tokens[kind].append((folder / f"{kind}-token").read_text().strip())
                found = {token for token in tokens[kind] if server.service.accounts.is_valid(token, kind)}
                assert found == {tokens[kind][-1]}
            valid = [token for token in admin.tokens(folder) if token["state"] == "valid"]
            for token in sorted(valid, key=lambda token: kinds.index(token["kind"])) if event == "delete" else ():
                admin.revoke_token(folder, token["id"])
    for found in tokens.values():
        assert len(set(found[:3])) == 3
        assert found[3] == found[2]


def test_an_upload_that_ends_while_the_server_stops_is_answered(tmp_path):
    body = body_of(ONES)
    with ThreadPoolExecutor(1) as pool:
        with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1)) as server:
            peer, idle = server.enrol(), server.enrol()
            visit = peer.check_in()
            upload, waits = (Line(server, one.http.headers["authorization"]) for one in (peer, idle))
            begin_upload(upload, peer, visit, body, end=len(body))
            upload.send(body[:50])
            waits.begin("POST", "/v1/checkin", "Content-Type: application/json", length=20)
            waits.send(b'{"wait_seconds": 20}')
            until(lambda: server.service.engine.waiting)

            def finish() -> list[httpx.Response]:
                with closing(upload), closing(waits):
                    first = waits.answer()  # which comes when the server begins to stop
                    upload.send(body[50:])
                    return [first, upload.answer()]

            answers = pool.submit(finish)
        checked_in, uploaded = answers.result(10)
    assert checked_in.json()["visit"] is None
    assert uploaded.status_code in (200, 503), uploaded.text
    check_log(tmp_path / "server")


def test_a_request_that_stalls_is_cut_off_at_the_stop_in_one_line(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.3)
    with ExitStack() as until_the_stop, running(tmp_path / "server") as server:
        stalled = until_the_stop.enter_context(line(server, server.enrol()))
        stalled.begin("POST", "/v1/checkin", "Content-Type: application/json", length=20)
        stalled.send(b"{")
        time.sleep(0.3)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(found.name, found.getMessage()) for found in lines] == [("offbeat.service", "requests_cut_off")]
