"""Names of torchvision's operators, for a torchvision that has none.

pip gets a torchvision for CUDA whatever torch there is, and one without its operators cannot be imported. fluke and
APPFL use datasets and models of it, none of its operators: it is enough to name those that the import asks for.
"""

import importlib

import torch


def define() -> None:
    """Make torchvision importable."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
