from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from offbeat.algorithms import FedBuff
from offbeat.service.server import admin
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, Line, begin_upload, check_log, until


@pytest.mark.parametrize("kind", ["enrolment", "admin"])
def test_a_token_in_the_folder_that_is_gone_or_revoked_is_replaced_at_the_next_start(kind, tmp_path):
    folder, file, tokens = tmp_path / "server", tmp_path / "server" / f"{kind}-token", []
    for event in ("first start", "delete", "revoke", "nothing"):
        if event == "delete":
            file.unlink()
        with running(folder) as server:
            tokens.append(file.read_text().strip())
            accounts = server.service.accounts
            assert {token for token in tokens if accounts.is_valid(token, kind)} == {tokens[-1]}
            if event == "delete":
                listed = [token for token in admin.tokens(folder) if (token["kind"], token["state"]) == (kind, "valid")]
                admin.revoke_token(folder, listed[0]["id"])
    assert len(set(tokens[:3])) == 3
    assert tokens[3] == tokens[2]


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
