"""Evaluation of versions in a separate process, so that clients need not wait."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat_core.files import write_durably
from offbeat_core.serving.console_log import event

from offbeat.service.refusal import Refusal
from offbeat.service.store.model_files import ModelFiles

_SUFFIX = ".evaluated"
_RETRY_SECONDS = 1.0  # on a full disk
_MOST_WAITING = 8  # versions, each with a file that takes space


class EvaluationQueue:
    """Evaluates every n-th version in turn; results go to ``evaluations.jsonl``.

    Args:
        folder: The store's folder.
        models: The files of versions.
        wait_until_durable: Waits until the log's rows that make up a version are on disk.
        every_versions: n.
        command: A program that reads paths of models from its standard input, one on a line, and answers each with a
            line of JSON.
        on_result: Called with each version and its result, also with those of earlier servers.

    Attributes:
        last: The last result, also of an earlier server; None before the first.
        waiting: The versions that are queued or being evaluated.
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
        self.waiting: set[int] = set()
        self._folder = folder
        self._models = models
        self._wait_until_durable = wait_until_durable
        self._every = every_versions
        self._command = command
        self._on_result = on_result
        self._queue: asyncio.Queue[tuple[int, Path]] = asyncio.Queue()
        self._path = folder / "evaluations.jsonl"
        self._load()

    def wants(self, version: int) -> bool:
        """Return whether a version is to be evaluated."""
        return version % self._every == 0

    def lacks(self, version: int) -> bool:
        """Return whether a version is due that an earlier server has not evaluated."""
        return version > 0 and self.wants(version) and (self.last is None or self.last["version"] < version)

    def add(self, version: int) -> None:
        """Queue a version for evaluation; where too many wait, the oldest is left out."""
        if self._queue.qsize() >= _MOST_WAITING:
            skipped, path = self._queue.get_nowait()
            path.unlink(missing_ok=True)
            self.waiting.discard(skipped)
            event("evaluation_skipped", logging.WARNING, version=skipped)
        # A link, since the original may be deleted before the evaluation.
        path = self._folder / f".{version}{_SUFFIX}"
        with suppress(FileExistsError):
            self._models.link(version, path)
        self._queue.put_nowait((version, path))
        self.waiting.add(version)

    async def run(self) -> None:
        """Evaluate versions, after a failure by a new process; never returns."""
        try:
            while True:
                async with _Program(self._command) as program:
                    while await self._evaluate_next(program):
                        pass
        finally:
            delete_links(self._folder)

    async def _evaluate_next(self, program: "_Program") -> bool:
        """Evaluate the next version; return whether that worked."""
        version, path = await self._queue.get()
        await self._insist_on_durability()
        try:
            self.last = {"version": version, **json.loads(await program.answer(path))}
            self._save(self.last)
            self._on_result(version, self.last)
        except (OSError, ValueError, TypeError) as error:  # no program, its end, or an answer that is not a JSON object
            # Which must not keep clients from their work.
            event("evaluation_failed", logging.WARNING, version=version, problem=str(error))
            return False
        finally:
            path.unlink(missing_ok=True)
            self.waiting.discard(version)
        event("evaluated", **self.last)
        return True

    def _save(self, result: dict[str, Any]) -> None:
        """Append a result to the file; a failure, which is logged, loses this result only."""
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


class _Program:
    """The program that evaluates, started with the first question."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "_Program":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def answer(self, path: Path) -> bytes:
        """Return the program's line about a model; ``OSError`` if it has ended."""
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                start_new_session=True,  # Ctrl-C is for the server
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n".encode())
        line = await self._process.stdout.readline()
        if not line:
            raise OSError(f"the program has ended with the exit code {await self._process.wait()}")
        return line


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
