"""Evaluation of versions in a separate process, so that clients need not wait."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat.service.refusal import Refusal
from offbeat.service.store.model_files import ModelFiles
from offbeat_client.files import write_durably
from offbeat_client.serving.console_log import event

_SUFFIX = ".evaluated"
_RETRY_SECONDS = 1.0  # on a full disk


class EvaluationQueue:
    """A queue of every n-th version, evaluated one after the other.

    Results go to ``evaluations.jsonl``. Once ``run`` has ended, no version is queued.

    Args:
        folder: The store's folder.
        models: The files of versions.
        wait_until_durable: Waits until the log's records that make up a version are on disk.
        every_versions: n.
        on_result: Called with each version and its result, also with those of earlier servers.
        command: A program that reads paths of models from its standard input, one on a line, and answers each with a
            line of JSON.

    Attributes:
        last: The last result, also of an earlier server; None before the first.
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
        self._load()

    def wants(self, version: int) -> bool:
        """Return whether a version is to be evaluated."""
        return not self._has_ended and version % self._every == 0

    def add(self, version: int) -> None:
        """Queue a version for evaluation, unless the program has ended.

        Links its file, since the original may be deleted before the evaluation.
        """
        if self._has_ended:
            return
        path = self._folder / f".{version}{_SUFFIX}"
        with suppress(FileExistsError):
            self._models.link(version, path)
        self._queue.put_nowait((version, path))

    async def run(self) -> None:
        """Evaluate versions; returns only if the program ends or fails."""
        try:
            await self._evaluate()
        except (OSError, ValueError, TypeError) as error:  # no program, or an answer that is not a JSON object
            event("evaluation_failed", logging.WARNING, problem=str(error))
        finally:
            self._has_ended = True
            delete_links(self._folder)

    async def _evaluate(self) -> None:
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
                    exit_code = await process.wait()
                    event("evaluation_failed", logging.WARNING, version=version, exit_code=exit_code)
                    return
                self.last = {"version": version, **json.loads(line)}
                self._save(self.last)
                self._on_result(version, self.last)
                event("evaluated", **self.last)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _save(self, result: dict[str, Any]) -> None:
        """Append a result to the file.

        A failure is logged and loses the result, but neither the lines before it nor those after it.
        """
        size = None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                size = file.tell()
                file.write(_line(result))
        except OSError as error:  # which must not keep clients from their work
            event("evaluation_failed", logging.WARNING, version=result["version"], problem=error.strerror)
            if size is not None:
                with suppress(OSError):
                    os.truncate(self._path, size)  # else the next line would continue a part of this one

    def _load(self) -> None:
        """Load earlier results, and write those that are readable to the file again."""
        results = list(_results(self._path))
        if self._path.exists():
            write_durably(self._path, "".join(map(_line, results)).encode())
        for result in results:
            self.last = result
            self._on_result(result["version"], result)

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


def _line(result: dict[str, Any]) -> str:
    return json.dumps(result) + "\n"


def delete_links(folder: Path) -> None:
    """Delete the links to versions that were not evaluated."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink()
