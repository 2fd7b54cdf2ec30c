"""Names of trainers and metrics, for modules that need no torch."""

from typing import Literal, get_args

TRAINING_LOSS = "training_loss"
"""The metric that is the loss on the training set."""

TrainerName = Literal["auto", "loop", "vmap", "unfold", "processes", "ray"]
TRAINERS: tuple[TrainerName, ...] = get_args(TrainerName)
