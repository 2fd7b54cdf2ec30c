"""The choice whether a run's examples lie in the accelerator's memory."""

import torch

from offbeat.config.experiment_sections import DataOnDevice
from offbeat.training.accelerator import Accelerator
from offbeat.training.workload import Workload

_SHARE = 0.5  # of the free memory; models, gradients and activations need the rest


def fits_on_device(workload: Workload, accelerator: Accelerator, choice: DataOnDevice) -> bool:
    """Return whether the examples are to lie on the accelerator.

    ``auto`` means: if they take at most half of a GPU's free memory.
    """
    if choice != "auto" or not accelerator.is_cuda:
        return choice != "never"
    free, _ = torch.cuda.mem_get_info(accelerator.device)
    test = 0 if workload.test is None else workload.test.nbytes
    return workload.train.nbytes + test <= _SHARE * free
