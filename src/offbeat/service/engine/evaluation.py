"""Evaluation of versions in a separate process, so that clients need not wait."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat.service.refusal import Refusal
from offbeat.service.store.model_files import ModelFiles
from offbeat_client.serving.console_log import event

_SUFFIX = ".evaluated"
_RETRY_SECONDS = 1.0  # on a full disk


class EvaluationQueue:
    """A queue of every n-th version, evaluated one after the other.

    Results go to ``evaluations.jsonl``.

    Args:
        folder: The store's folder.
        models: The files of versions.
        wait_until_durable: Waits until the log's records that make up a version are on disk.
        every_versions: n.
        on_result: Called with each version and its result, also with those of earlier servers.
        command: A program that reads paths of models from its standard input, one on a line, and answers each with a
            line of JSON.

    Attributes:
        last: The last result; None before the first.
    """

    def __init__(
        self,
        folder: Path,
        models: ModelFiles,
        wait_until_durable: Callable[[], Awaitable[None]],
        every_versions: int,
        command: Sequence[str],
        on_result: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self.last: dict[str, Any] | None = None
        self._folder = folder
        self._models = models
        self._wait_until_durable = wait_until_durable
        self._every = every_versions
        self._command = command
        self._on_result = on_result
        self._queue: asyncio.Queue[tuple[int, Path]] = asyncio.Queue()
        self._has_ended = False
        self._path = folder / "evaluations.jsonl"
        _end_last_line(self._path)
        for result in _results(self._path):
            self.last = result
            on_result(result["version"], result)

    def wants(self, version: int) -> bool:
        """Return whether a version is to be evaluated; none is once the program has ended."""
        return not self._has_ended and version % self._every == 0

    def add(self, version: int) -> None:
        """Queue a version for evaluation.

        Links its file, since the original may be deleted before the evaluation.
        """
        path = self._folder / f".{version}{_SUFFIX}"
        with suppress(FileExistsError):
            self._models.link(version, path)
        self._queue.put_nowait((version, path))

    async def run(self) -> None:
        """Evaluate versions; returns only if the program ends."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while True:
                version, path = await self._queue.get()
                await self._insist_on_durability()
                process.stdin.write(f"{path}\n".encode())
                line = await process.stdout.readline()
                path.unlink(missing_ok=True)
                if not line:
                    # Which must not keep clients from their work.
                    event("evaluation_failed", version=version, exit_code=await process.wait())
                    return
                try:
                    self._append({"version": version, **json.loads(line)})
                except (OSError, ValueError, TypeError) as error:  # a full disk, or an answer that is not an object
                    event("evaluation_failed", version=version, problem=str(error))
        finally:
            self._has_ended = True
            while not self._queue.empty():
                self._queue.get_nowait()[1].unlink(missing_ok=True)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _append(self, result: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        self.last = result
        self._on_result(result["version"], result)
        event("evaluated", **result)

    async def _insist_on_durability(self) -> None:
        while True:
            try:
                return await self._wait_until_durable()
            except Refusal:  # the disk is full
                await asyncio.sleep(_RETRY_SECONDS)


def _results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of earlier servers; a kill may have left a part of one."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
        for line in file:
            with suppress(ValueError):
                yield json.loads(line)


def _end_last_line(path: Path) -> None:
    """End the last line, which a kill may have cut: the next result has its own."""
    with suppress(FileNotFoundError):
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            with path.open("ab") as file:
                file.write(b"\n")


def delete_links(folder: Path) -> None:
    """Delete the links to versions that an earlier server did not evaluate."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink()
