"""Export of runs to TensorBoard."""

from collections.abc import Sequence
from pathlib import Path

from offbeat.errors import OffbeatError
from offbeat.report.export import OTHER_FOLDER
from offbeat.report.metrics import measures_of
from offbeat.runs.directory import Run, disk_errors

_COLUMNS = ("counted", "version", "bytes_down", "bytes_up")


def write_tensorboard(runs: Sequence[Run], folder: Path) -> None:
    """Write or replace an event file for each run: ``folder/LABEL-seedS``.

    It holds the loss, each metric, and the counted updates, versions and bytes so far, at each evaluation.
    TensorBoard's axis "step" is the number of counted updates; its axis "relative" is virtual time.
    """
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise OffbeatError("TensorBoard is not installed: pip install offbeat[tensorboard]") from None
    for run in runs:
        path = folder / f"{run.label}-seed{run.seed}"
        names = [*(measure.name for measure in measures_of(run)), *_COLUMNS]
        with disk_errors(str(path), OTHER_FOLDER):
            old = list(path.glob("events.out.tfevents.*"))
            with SummaryWriter(path) as writer:
                rows = zip(run.history["counted"], run.history["seconds"], strict=True)
                for index, (step, seconds) in enumerate(rows):
                    for name in names:
                        writer.add_scalar(name, float(run.history[name][index]), int(step), float(seconds))
            for file in old:
                file.unlink()
