"""Signed messages to a URL about events of the log."""

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
from offbeat_core.http.service_errors import one_line
from offbeat_core.http.tls import trust
from offbeat_core.serving.console_log import event

from offbeat.service.webhook.receiver_address import Address, address_of
from offbeat.service.webhook.webhook_settings import WebhookSettings

_PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0)  # seconds between the attempts; then the message is dropped
_MOST_WAITING = 100  # messages; of more the oldest are dropped
_TIMEOUT = 10.0
_TRANSIENT = (408, 425, 429)  # and 5xx


class Webhook(logging.Handler):
    """Sends the chosen events of the log to a URL, in their order.

    A message is sent again until the receiver answers 2xx, for 43 minutes at most; the others wait. Messages that wait
    are in memory only: a kill of the server loses them.

    Args:
        settings: Where they go.
        run: The run's id, for the receiver.
        pauses: Seconds between the attempts.
    """

    def __init__(self, settings: WebhookSettings, run: str, pauses: Sequence[float] = _PAUSES) -> None:
        super().__init__(logging.INFO)
        self._settings = settings
        self._run = run
        self._pauses = pauses
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._dropped = 0  # since the last message that was delivered
        self._has_come = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue an event, from any thread."""
        if record.getMessage() in self._settings.events:
            fields = {name: value for name, value in getattr(record, "fields", {}).items() if value is not None}
            message = {"id": secrets.token_hex(16), "event": record.getMessage(), "time": round(record.created, 3)}
            self._loop.call_soon_threadsafe(self._queue, {**message, "run": self._run, "facts": fields})

    def _queue(self, message: dict[str, Any]) -> None:
        self._dropped += len(self._waiting) == _MOST_WAITING
        self._waiting.append(message)
        self._has_come.set()

    async def run(self) -> None:
        """Send what comes; never returns."""
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, verify=trust(None, "SSL_CERT_FILE")) as client:
            while True:
                self._has_come.clear()
                while self._waiting:
                    message = self._waiting.popleft()
                    if self._dropped:
                        message["dropped_before"] = self._dropped
                    if await self._deliver(client, message):
                        self._dropped = 0
                    else:
                        self._dropped += 1
                await self._has_come.wait()

    async def _deliver(self, client: httpx.AsyncClient, message: dict[str, Any]) -> bool:
        """Send a message, again and again; return whether the receiver has taken it."""
        problem = ""
        for attempt in range(len(self._pauses) + 1):
            problem, is_final = await self._attempt(client, message)
            if not problem:
                return True
            if is_final or attempt == len(self._pauses):
                break
            await asyncio.sleep(self._pauses[attempt])
        event("webhook_failed", logging.WARNING, of=message["event"], id=message["id"], problem=problem)
        return False

    async def _attempt(self, client: httpx.AsyncClient, message: dict[str, Any]) -> tuple[str, bool]:
        """Send a message once; return the problem, if any, and whether to stop trying."""
        body = json.dumps(message, default=str).encode()
        parts = urlsplit(self._settings.url)
        try:
            address = await address_of(parts.hostname or "", may_be_internal=self._settings.is_internal)
            request = self._request(client, address, body)
            # The answer's body is not read: its size is up to the receiver.
            response = await client.send(request, stream=True)
            await response.aclose()
        except PermissionError as error:
            return str(error), True
        except Exception as error:  # whatever it is, the server goes on
            return one_line(str(error) or type(error).__name__), False
        status = response.status_code
        is_transient = status in _TRANSIENT or status >= 500
        return ("" if 200 <= status < 300 else f"the receiver answers {status}"), not is_transient

    def _request(self, client: httpx.AsyncClient, address: Address, body: bytes) -> httpx.Request:
        """Return a request to this very address: the name may lead elsewhere by now."""
        url = httpx.URL(self._settings.url)
        now = str(int(time.time()))
        digest = hmac.new(self._settings.secret, f"{now}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {
            "Host": url.netloc.decode("ascii"),
            "Content-Type": "application/json",
            "User-Agent": "offbeat",
            "Offbeat-Signature": f"t={now},v1={digest}",
        }
        extensions = {"sni_hostname": url.host}
        return client.build_request(
            "POST", url.copy_with(host=address), content=body, headers=headers, extensions=extensions
        )
