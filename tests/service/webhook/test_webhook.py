"""Messages to a real receiver, with chosen answers."""

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.serving.certificates import Certificates, make_certificates
from offbeat_core.serving.console_log import attached, event, log

from offbeat.service.webhook import webhook as module
from offbeat.service.webhook.webhook import Webhook
from offbeat.service.webhook.webhook_settings import WebhookSettings
from tests.service.conftest import running
from tests.service.http_client import ONES, until

SECRET = b"0123456789abcdef"


class Receiver:
    """An HTTP server that keeps what it gets.

    Attributes:
        answers: The status of each answer to come; then 204.
        got: The headers and the body of each request.
    """

    def __init__(self, certificates: Certificates | None = None) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[Any, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.headers, body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("Location", receiver.url + "/elsewhere")
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificates is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def settings_of(receiver: Receiver, url: str | None = None, *, is_internal: bool = True) -> WebhookSettings:
    return WebhookSettings(url or receiver.url, SECRET, frozenset({"run_ended", "disk_full"}), is_internal)


def send(settings: WebhookSettings, until_done: Any, *events: tuple[str, dict[str, Any]]) -> None:
    """Log events, and let the webhook send until ``until_done()``."""

    async def main() -> None:
        webhook = Webhook(settings, "a-run", pauses=(0.01, 0.01))
        with attached(webhook):
            task = asyncio.create_task(webhook.run())
            for name, facts in events:
                event(name, **facts)
            async with asyncio.timeout(10):
                while not until_done():
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # for what must not come
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_the_chosen_events_come_in_order_and_signed(receiver: Receiver) -> None:
    facts = [{"version": version, "reason": "stop.versions", "none": None} for version in range(3)]
    events = [("run_ended", each) for each in facts]
    send(settings_of(receiver), lambda: len(receiver.got) == 3, ("progress", {}), *events, ("evaluated", {}))
    for number, ((headers, body), message) in enumerate(zip(receiver.got, receiver.messages, strict=True)):
        assert message["event"] == "run_ended"
        assert message["run"] == "a-run"
        assert message["facts"] == {"version": number, "reason": "stop.versions"}
        time, _, signature = headers["Offbeat-Signature"].removeprefix("t=").partition(",v1=")
        assert abs(int(time) - message["time"]) < 30
        assert signature == hmac.new(SECRET, time.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert len({message["id"] for message in receiver.messages}) == 3


def test_a_message_is_sent_again_until_it_is_taken_and_the_next_waits(receiver: Receiver) -> None:
    receiver.answers = [503, 429]
    send(settings_of(receiver), lambda: len(receiver.got) == 4, ("run_ended", {}), ("disk_full", {}))
    assert [message["event"] for message in receiver.messages] == ["run_ended"] * 3 + ["disk_full"]
    assert len({message["id"] for message in receiver.messages}) == 2


@pytest.mark.parametrize("status", [302, 400, 410])
def test_an_answer_that_will_not_change_ends_the_attempts(
    receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [status]
    with caplog.at_level(logging.WARNING, "offbeat.service"):
        send(settings_of(receiver), lambda: len(receiver.got) == 2, ("run_ended", {}), ("disk_full", {}))
    first, second = receiver.messages
    assert (first["event"], second["event"], second["dropped_before"]) == ("run_ended", "disk_full", 1)
    (failed,) = [vars(record)["fields"] for record in caplog.records if record.msg == "webhook_failed"]
    assert (failed["of"], failed["problem"]) == ("run_ended", f"the receiver answers {status}")


def test_attempts_are_bounded(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = [500] * 3
    with caplog.at_level(logging.WARNING, "offbeat.service"):
        send(settings_of(receiver), lambda: "webhook_failed" in caplog.messages, ("run_ended", {}))
    assert len(receiver.got) == 3


def test_messages_that_wait_are_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 2)
    events = [("run_ended", {"version": version}) for version in range(5)]

    async def main() -> None:
        webhook = Webhook(settings_of(receiver), "a-run")
        with attached(webhook):
            for name, facts in events:
                event(name, **facts)
            await asyncio.sleep(0.05)
            task = asyncio.create_task(webhook.run())
            async with asyncio.timeout(10):
                while len(receiver.got) < 2:
                    await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(main())
    assert [message["facts"]["version"] for message in receiver.messages] == [3, 4]
    assert receiver.messages[0]["dropped_before"] == 3


def test_a_receiver_inside_is_not_called(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_of(receiver, is_internal=False)
    with caplog.at_level(logging.WARNING, "offbeat.service"):
        send(settings, lambda: "webhook_failed" in caplog.messages, ("run_ended", {}))
    assert receiver.got == []


def test_the_request_goes_to_the_address_that_was_checked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    async def address_of(host: str, *, may_be_internal: bool) -> str:
        assert (host, may_be_internal) == ("hooks.invalid", False)
        return "127.0.0.1"

    monkeypatch.setattr(module, "address_of", address_of)
    url = f"http://hooks.invalid:{receiver.port}/hook"
    send(settings_of(receiver, url=url, is_internal=False), lambda: receiver.got, ("run_ended", {}))
    assert receiver.got[0][0]["Host"] == f"hooks.invalid:{receiver.port}"


@pytest.mark.parametrize(("host", "comes"), [("hooks.invalid", True), ("other.invalid", False)])
def test_the_certificate_must_be_of_the_host_that_the_url_names(
    host: str, comes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def address_of(host: str, *, may_be_internal: bool) -> str:
        return "127.0.0.1"

    certificates = make_certificates(tmp_path, ["hooks.invalid"])
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setattr(module, "address_of", address_of)
    with closing(Receiver(certificates)) as receiver, caplog.at_level(logging.WARNING, "offbeat.service"):
        settings = settings_of(receiver, url=f"https://{host}:{receiver.port}/hook", is_internal=False)
        send(settings, lambda: receiver.got or "webhook_failed" in caplog.messages, ("run_ended", {}))
        assert bool(receiver.got) == comes


def test_a_proxy_of_the_environment_is_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    send(settings_of(receiver), lambda: receiver.got, ("run_ended", {}))


def test_a_server_sends_the_end_of_its_run_although_its_log_is_quiet(receiver: Receiver, tmp_path: Path) -> None:
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with running(tmp_path / "server", stop_versions=1, webhook=settings_of(receiver)) as server:
            peer = server.enrol()
            for _ in range(2):
                visit = peer.check_in()
                assert visit is not None
                assert peer.send(visit, ONES)["counted"]
            assert peer.check_in() is None
            until(lambda: receiver.got)
            assert receiver.messages[0]["run"] == str(server.service.engine.run.state.run_id)
        assert [(one["event"], one["facts"]["version"]) for one in receiver.messages] == [("run_ended", 1)]
        assert log.level == logging.WARNING
    finally:
        log.setLevel(level)
