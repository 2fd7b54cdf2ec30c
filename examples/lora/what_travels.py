"""Print what a model with adapters sends, and what it does not.

python examples/lora/what_travels.py examples/lora/server.toml
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

from lora_model import model
from torch import nn


def count_bytes(module: nn.Module) -> Counter[str]:
    """Return the bytes of a model's A, B and head, and of all that is frozen."""
    found: Counter[str] = Counter()
    for name, parameter in module.named_parameters():
        kind = next((kind for kind in ("lora_A", "lora_B", "head") if kind in name), "frozen")
        found[kind if parameter.requires_grad else "frozen"] += parameter.nbytes
    return found


if __name__ == "__main__":
    arguments = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["model"]["arguments"]
    for freeze_a in (False, True):
        counted = count_bytes(model(**{**arguments, "freeze_a": freeze_a}))
        frozen = counted.pop("frozen")
        parts = ", ".join(f"{kind} {size:,}" for kind, size in sorted(counted.items()))
        print(f"freeze_a = {str(freeze_a).lower()}: {counted.total():,} bytes travel ({parts}), {frozen:,} are frozen")
