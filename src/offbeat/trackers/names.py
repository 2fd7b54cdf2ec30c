"""Names of the trackers."""

from typing import Literal, get_args

TrackerName = Literal["wandb", "mlflow", "tensorboard", "trackio"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
