"""The folder that ``offbeat.simulate`` writes its tables and its model into."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from offbeat_core.errors import OffbeatError
from safetensors.torch import save

from offbeat.config.import_path import check_utf8
from offbeat.python.run_record import RunRecord
from offbeat.runs.directory import disk_errors

if TYPE_CHECKING:
    from pandas import DataFrame


def make_folder(folder: Path) -> Path:
    """Make the folder, which must not be that of a run."""
    check_utf8(folder)
    if (folder / "config.toml").exists():
        raise OffbeatError(f"output = {str(folder)!r} holds a run: choose another folder")
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_output(folder: Path, history: "DataFrame", record: RunRecord) -> None:
    """Write the tables and the model."""
    with _disk_errors(folder):
        history.to_parquet(folder / "history.parquet", index=False)
        pq.write_table(record.visits, folder / "events.parquet")
        if record.by_clients:
            rows = pa.Table.from_pylist([evaluation.row() for evaluation in record.by_clients])
            pq.write_table(rows, folder / "clients.parquet")
        (folder / "model.safetensors").write_bytes(save(dict(record.model)))


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    return disk_errors(f"into {folder}", "choose another output")
