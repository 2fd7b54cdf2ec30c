"""Writer of a run's folder; a kill loses only the rows after the last checkpoint."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

import tomli_w
from offbeat_core.files import sync_file, sync_folder, write_durably
from safetensors.torch import save
from torch import Tensor

from offbeat.metric_bounds import Bounds
from offbeat.runs import directory as run_directory
from offbeat.runs.parquet_chunks import ChunkedTable
from offbeat.runs.resume import check_chunks, check_settings, check_versions
from offbeat.simulation.client_time import ClientTime
from offbeat.simulation.evaluations import ClientEvaluation
from offbeat.simulation.totals import Evaluation, VisitEnded
from offbeat.tensor_file import read_checkpoint, write_checkpoint

_MAX_ROWS = 100_000  # in memory


class RunWriter:
    """Writer of one run; ``directory`` lists the files.

    ``real_seconds`` and ``processor_seconds`` are what the run took until the checkpoint that it was resumed from; 0
    for a new run.
    """

    def __init__(
        self, path: Path, config: Mapping[str, Any], metrics: Iterable[str], checkpoint: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._folder = run_directory.unfinished_path(path)
        self._metrics = tuple(metrics)
        self.real_seconds: float = checkpoint.get("real_seconds", 0.0)
        self.processor_seconds: float = checkpoint.get("processor_seconds", 0.0)
        schemas = run_directory.table_schemas(config, self._metrics)
        chunks = checkpoint.get("parts", [0] * len(schemas))
        self._tables = {
            name: ChunkedTable(self._folder, name, schema, number)
            for (name, schema), number in zip(schemas.items(), chunks, strict=True)
        }

    @classmethod
    def begin(cls, path: Path, config: Mapping[str, Any], metrics: Iterable[str], versions: Mapping[str, str]) -> Self:
        """Begin the run of ``path``; an unfinished one is removed."""
        folder = run_directory.unfinished_path(path)
        with _disk_errors(path):
            run_directory.remove(folder)
            folder.mkdir(parents=True)
            # The settings come last: a folder with settings is complete.
            _write(folder / "versions.json", _as_json(versions))
            _write(folder / "config.toml", tomli_w.dumps(config))
            return cls(path, config, metrics, {})

    @classmethod
    def resume(
        cls, path: Path, config: Mapping[str, Any], metrics: Iterable[str], versions: Mapping[str, str]
    ) -> tuple[Self, dict[str, Any] | None]:
        """Continue the unfinished run of ``path``, or begin it.

        Returns:
            The writer, and the state of the last checkpoint; None without a checkpoint.
        """
        folder = run_directory.unfinished_path(path)
        checkpoint = folder / "checkpoint.safetensors"
        check_settings(folder, config)
        if not checkpoint.exists():
            return cls.begin(path, config, metrics, versions), None
        check_versions(folder, versions)
        state = read_checkpoint(checkpoint)
        check_chunks(folder, state, list(run_directory.table_schemas(config, ())))
        with _disk_errors(path):
            return cls(path, config, metrics, state), state

    def add(
        self, evaluation: Evaluation | None, ended: list[VisitEnded], by_clients: list[ClientEvaluation] | None = None
    ) -> None:
        """Add an evaluation, if any; move visits and clients' evaluations out of lists."""
        if evaluation is not None:
            *numbers, metrics = evaluation
            self._tables["history"].add([*numbers, *(metrics[name] for name in self._metrics)])
        for visit in ended:
            self._tables["events"].add(visit)
        ended.clear()
        for evaluated in by_clients or []:
            self._tables["clients"].add(list(evaluated.row().values()))
        if by_clients:
            by_clients.clear()
        if len(self._tables["events"]) > _MAX_ROWS:
            with _disk_errors(self._path):
                self._tables["events"].close_chunk()

    def checkpoint(self, state: Mapping[str, Any], real_seconds: float, processor_seconds: float = 0.0) -> None:
        """Write all rows, and the state."""
        with _disk_errors(self._path):
            self._close_chunks()
            _write(self._folder / "timing.json", _as_json({"real_seconds": real_seconds}))
            chunks = [table.chunks for table in self._tables.values()]
            seconds = {"real_seconds": real_seconds, "processor_seconds": processor_seconds}
            write_checkpoint(self._folder / "checkpoint.safetensors", {**state, "parts": chunks, **seconds})

    def finish(
        self,
        model: Mapping[str, Tensor],
        real_seconds: float,
        notes: Sequence[str] = (),
        *,
        processor_seconds: float | None = None,
        by_label: Mapping[str, float] | None = None,
        client_time: ClientTime | None = None,
        bounds: Mapping[str, Bounds] | None = None,
    ) -> None:
        """Write the finished run to its path; an earlier run there is removed afterwards.

        ``by_label`` is the model's accuracy on each label, where that was measured; ``bounds`` are those of metrics
        that are not built in.
        """
        new = self._path.with_name(f".{self._path.name}.partial")
        with _disk_errors(self._path):
            try:
                self._close_chunks()
                run_directory.remove(new)
                new.mkdir()
                for name in ("config.toml", "versions.json"):
                    (new / name).write_bytes((self._folder / name).read_bytes())
                for name, table in self._tables.items():
                    table.join(new / f"{name}.parquet")
                (new / "model.safetensors").write_bytes(save(dict(model)))
                if by_label:
                    _write(new / "labels.json", _as_json(by_label))
                if bounds:
                    _write(new / "bounds.json", _as_json(bounds))
                if client_time is not None:
                    _write(new / "client_time.json", _as_json(asdict(client_time)))
                timing: dict[str, Any] = {"real_seconds": real_seconds}
                if processor_seconds is not None:
                    timing["processor_seconds"] = processor_seconds
                timing |= {**provenance(), **({"notes": list(notes)} if notes else {})}
                _write(new / "timing.json", _as_json(timing))
                for file in new.iterdir():
                    sync_file(file)
                sync_folder(new)
                _replace(self._path, new)
                # The checkpoint is removed only once the finished run survives a power cut.
                sync_folder(self._path.parent)
            finally:
                run_directory.remove(new)
        run_directory.remove(self._folder)

    def _close_chunks(self) -> None:
        for table in self._tables.values():
            table.close_chunk()


def _disk_errors(path: Path) -> AbstractContextManager[None]:
    advice = "free some space and run it again, or choose another --output"
    return run_directory.disk_errors(f"the run into {path}", advice)


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _write(path: Path, content: str) -> None:
    write_durably(path, content.encode())


def _replace(path: Path, new: Path) -> None:
    """Move the folder ``new`` to ``path``; remove an earlier folder only afterwards."""
    old = path.with_name(f".{path.name}.old")
    run_directory.remove(old)
    if path.exists():
        path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    run_directory.remove(old)


def provenance() -> dict[str, str]:
    """Return the date, the machine and, in a folder of a Git repository, its commit."""
    return {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **_commit(Path.cwd())}


@cache
def machine() -> str:
    """Return the processor, the number of its cores and the system."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    processor = found[1] if found else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}"


@cache
def _commit(folder: Path) -> dict[str, str]:
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(git, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):  # without Git
        return {}
    return {} if done.returncode else {"commit": done.stdout.strip()}
