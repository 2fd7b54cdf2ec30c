"""Names of the trainers, for files and the command line."""

from typing import Literal, get_args

TrainerName = Literal["auto", "loop", "vmap", "unfold", "processes", "ray"]
TRAINERS: tuple[TrainerName, ...] = get_args(TrainerName)
