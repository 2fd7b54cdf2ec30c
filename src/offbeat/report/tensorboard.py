"""Export of runs to TensorBoard."""

from collections.abc import Sequence
from pathlib import Path

from offbeat.errors import OffbeatError
from offbeat.report.metrics import measures_of
from offbeat.runs.directory import Run

_COLUMNS = ("counted", "version", "bytes_down", "bytes_up")


def write_tensorboard(runs: Sequence[Run], folder: Path) -> None:
    """Write an event file for each run into ``folder/LABEL-seedS``.

    An earlier file is replaced.

    It holds the loss, each metric, and the counted updates, versions and bytes so far, at each evaluation.
    TensorBoard's axis "step" is the number of counted updates; its axis "relative" is virtual time.

    Args:
        runs: One for each label and seed.
        folder: Made if it does not exist; ``tensorboard --logdir FOLDER`` shows it.

    Raises:
        OffbeatError: TensorBoard is not installed, or the folder cannot be written.
    """
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise OffbeatError("TensorBoard is not installed: pip install offbeat[tensorboard]") from None
    for run in runs:
        path = folder / f"{run.label}-seed{run.seed}"
        names = [*(measure.name for measure in measures_of(run)), *_COLUMNS]
        try:
            old = list(path.glob("events.out.tfevents.*"))
            with SummaryWriter(path) as writer:
                for index, (step, seconds) in enumerate(
                    zip(run.history["counted"], run.history["seconds"], strict=True)
                ):
                    for name in names:
                        writer.add_scalar(name, float(run.history[name][index]), int(step), float(seconds))
            for file in old:
                file.unlink()
        except OSError as error:
            raise OffbeatError(
                f"cannot write {path}: {error.strerror}; free some space or choose another folder"
            ) from None
