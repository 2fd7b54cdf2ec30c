"""The fronts of a leader.

Those on this machine are its children; others connect to it.
"""

import asyncio
import logging
import multiprocessing
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event, logs_of_child
from pydantic import BaseModel
from starlette.types import ASGIApp

from offbeat.service.engine.leader import Leader
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.front.forwarding import forwarded
from offbeat.service.front.front_process import FrontSettings, run_child
from offbeat.service.internal.front_endpoint import FrontEndpoint, Handler
from offbeat.service.internal.internal_certificates import leader_context
from offbeat.service.internal.questions import Forward, Question
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.login.login_settings import SECURE_COOKIE
from offbeat.service.refusal import Refusal
from offbeat.service.server.common_end import GRACE_SECONDS
from offbeat.service.server_settings import FrontsElsewhere, ServerSettings

_LOOK_SECONDS = 0.25  # between two looks whether a child has ended
_MOST_FAILURES = 5  # in a row, each soon after the last
_SOON_SECONDS = 30.0
_PAUSE_SECONDS = 1.0  # before a child that has ended is started again


class Fronts:
    """Answers fronts, and runs those on this machine.

    Args:
        run: The run's id, or that of the server of several.
        log_writer: Knows the epoch, and whether another server may lead.
        answer: Answers a question; see ``FrontEndpoint``.
        elsewhere: Where fronts on other machines connect; None if there are none.
        number: How many fronts there are on this machine.
        settings: Theirs; each has a folder of its own in this one.
        listener: The socket at which clients connect, for the fronts on this machine.

    Attributes:
        children: The fronts on this machine.
    """

    def __init__(
        self,
        run: str,
        log_writer: LogWriter,
        answer: Handler,
        elsewhere: FrontsElsewhere | None,
        number: int,
        settings: FrontSettings,
        listener: socket.socket,
    ) -> None:
        self._log_writer = log_writer
        self._elsewhere = elsewhere
        self._number = number
        self._settings = settings
        self._listener = listener
        self._endpoint = FrontEndpoint(run, answer)
        self._socket: Path | None = None  # for children
        self.children: list[BaseProcess] = []
        self._is_closing = False

    async def run(self) -> None:
        """Accept fronts, and keep the children running; never returns."""
        self._endpoint.lead(self._log_writer.epoch)
        elsewhere = self._elsewhere
        if elsewhere is not None:
            await self._endpoint.listen((elsewhere.host, elsewhere.port), leader_context(elsewhere.certificates))
        if self._number:
            # A short path, as a Unix socket needs.
            self._socket = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="offbeat-")) / "leader"
            await self._endpoint.listen(self._socket)
            self.children = [self._start(number, self._socket) for number in range(self._number)]
        await self._keep_watch()

    async def _keep_watch(self) -> None:
        """Start children again that have ended; lead only while others know of it.

        Raises:
            OffbeatError: Children fail each time.
        """
        failures, last = 0, time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._lead_unless_silent()
            ended = [number for number, child in enumerate(self.children) if not child.is_alive()]
            if ended and not self._is_closing:
                codes = [self.children[number].exitcode or 0 for number in ended]
                event("fronts_ended", logging.ERROR, fronts=ended, exit_codes=codes)
                now = time.monotonic()
                failures = failures + 1 if max(codes) > 0 and now - last < _SOON_SECONDS else 0
                last = now
                if failures == _MOST_FAILURES:
                    raise OffbeatError("fronts fail again and again: see the lines above, and start without --fronts")
                await asyncio.sleep(_PAUSE_SECONDS)
            for number in [] if self._is_closing else ended:
                assert self._socket is not None
                self.children[number] = self._start(number, self._socket)

    def _lead_unless_silent(self) -> None:
        log_writer, leads = self._log_writer, self._endpoint.epoch is not None
        if leads and log_writer.is_silent:
            self._endpoint.follow("its log does not answer")
        elif not leads and not log_writer.is_silent and not self._is_closing:
            self._endpoint.lead(log_writer.epoch)

    async def close(self) -> None:
        """Let the fronts end their requests, and send those on other machines away."""
        self._is_closing = True
        for child in self.children:
            child.terminate()
        ends = [asyncio.to_thread(child.join, GRACE_SECONDS + 2) for child in self.children]
        await asyncio.gather(*ends)
        for child in self.children:
            child.kill()
            await asyncio.to_thread(child.join)
        await self._endpoint.close("the server is being stopped")
        if self._socket is not None:
            shutil.rmtree(self._socket.parent, ignore_errors=True)

    def _start(self, number: int, leader: Path) -> BaseProcess:
        front = replace(self._settings, folder=self._settings.folder / str(number), leaders=[leader])
        # A new interpreter: this one has threads, which a fork would break.
        child = multiprocessing.get_context("spawn").Process(
            target=run_child,
            args=(front, self._listener, logs_of_child(f"front-{number}")),
            name=f"front {number}",
            daemon=True,
        )
        # Ctrl-C reaches all processes of a terminal: the leader first gives its answers, and then ends its fronts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return child


def front_settings(settings: ServerSettings) -> FrontSettings:
    """Return the settings of the fronts on a leader's machine."""
    number = max(settings.front_processes, 1)
    return FrontSettings(
        folder=settings.folder / "fronts",
        store=settings.folder,
        blobs=settings.store and settings.store.blobs,
        is_presigned=settings.store is not None and settings.store.presigned,
        leaders=[],
        certificates=settings.certificates,
        requests_a_second=settings.service.requests_a_second,
        connections_per_address=settings.service.connections_per_address,
        burst=settings.burst,
        upload_budget=settings.upload_budget // number,
        fronts=number,
        session_cookie=SECURE_COOKIE if settings.login is None else settings.login.cookie,
    )


def answers(service: Operations, leader: Leader, app: ASGIApp) -> Handler:
    """Return what answers the questions of fronts: ``app`` those that they pass on."""

    async def answer(question: Question[Any], has_waited: bool) -> BaseModel | Turn:
        if isinstance(question, Forward):
            return await forwarded(app, question)
        try:
            return await leader.begin(question, has_waited=has_waited)
        except Refusal as refusal:
            service.count_refusal(refusal.kind)
            if 400 <= refusal.status < 500:
                await service.engine.confirm()
            raise

    return answer
