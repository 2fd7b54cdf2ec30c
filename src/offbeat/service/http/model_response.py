"""The answer to a download of a version."""

import os
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path

from fastapi.responses import FileResponse, Response
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from offbeat.service.refusal import Refusal


class ModelResponse(FileResponse):
    """Sends a file, or a range of it, that a checkpoint may delete at any moment.

    The HTTP server sends a whole file, which is faster; it answers 404 if the file is gone by then. An nginx in front
    of it sends the file itself if it says, by ``Offbeat-Models``, where it has the folder of models. For a range the
    file is opened before the answer begins, so the answer is complete. The ``ETag`` is the file's SHA-256: a server
    that was restored from a backup may make other bytes of the same version.
    """

    def __init__(self, path: Path, sha256: str, headers: Mapping[str, str]) -> None:
        headers = {**headers, "ETag": f'"{sha256}"'}
        super().__init__(path, media_type="application/octet-stream", headers=headers, stat_result=path.stat())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; ``FileNotFoundError`` if it is gone."""
        wanted = Headers(scope=scope)
        if wanted.get("if-range", self.headers["etag"]) != self.headers["etag"]:
            # A date would do for FileResponse, but two files may have the same.
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        elif "range" in wanted and os.path.isdir("/dev/fd"):  # noqa: PTH112
            await self._send_range(scope, receive, send)
            return
        elif (folder := wanted.get("offbeat-models")) is not None:
            place = f"{folder}/{Path(self.path).name}"
            headers = {**self.headers, "x-accel-redirect": place, "content-length": "0"}
            await Response(headers=headers)(scope, receive, send)
            return
        await super().__call__(scope, receive, send)

    async def _send_range(self, scope: Scope, receive: Receive, send: Send) -> None:
        with open(self.path, "rb") as file:  # noqa: PTH123 - it is on this machine
            self.path = f"/dev/fd/{file.fileno()}"
            # The HTTP server would open this name later, when the descriptor may be another file's.
            extensions = {name: value for name, value in scope.get("extensions", {}).items() if "pathsend" not in name}
            await super().__call__({**scope, "extensions": extensions}, receive, partial(_refuse_errors, send))


async def _refuse_errors(send: Send, message: Message) -> None:
    """Pass a message on, but raise ``Refusal`` in place of an error's text."""
    if message["type"] == "http.response.start":
        if message["status"] == HTTPStatus.BAD_REQUEST:
            raise Refusal("malformed-request", "the Range is malformed: send bytes=FIRST-LAST or bytes=FIRST-")
        if message["status"] == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            size = Headers(raw=message["headers"])["content-range"]
            raise Refusal("wrong-range", f"the range is not in the file ({size})", {"Content-Range": size})
    await send(message)
