from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx

from offbeat.algorithms import FedBuff
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, Line, begin_upload, check_log, until


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
