"""The answer to a download of a version."""

import os
from collections.abc import Mapping
from pathlib import Path

from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send


class ModelResponse(FileResponse):
    """Sends a file, or a range of it, that a checkpoint may delete at any moment.

    The HTTP server sends a whole file, which is faster; it answers 404 if the file is gone by then. For a range the
    file is opened before the answer begins, so the answer is complete.
    """

    def __init__(self, path: Path, headers: Mapping[str, str]) -> None:
        super().__init__(path, media_type="application/octet-stream", headers=headers, stat_result=path.stat())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; ``FileNotFoundError`` if it is gone and nothing has been sent."""
        if not any(name == b"range" for name, _ in scope["headers"]) or not os.path.isdir("/dev/fd"):  # noqa: PTH112
            await super().__call__(scope, receive, send)
            return
        with open(self.path, "rb") as file:  # noqa: PTH123 - it is on this machine
            self.path = f"/dev/fd/{file.fileno()}"
            # The HTTP server would open this name later, when the descriptor may be another file's.
            extensions = {name: value for name, value in scope.get("extensions", {}).items() if "pathsend" not in name}
            await super().__call__({**scope, "extensions": extensions}, receive, send)
