"""A model whose inputs have names, as those of Hugging Face, and examples for it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.training.conftest import data_of

WORDS = 9


class Sentences(nn.Module):
    """Classifies by the mean of the words where the mask is 1; computes its own loss if it gets labels."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
        mask = attention_mask.unsqueeze(-1).float()
        logits = self.head((self.words(input_ids) * mask).sum(dim=-2) / mask.sum(dim=-2))
        return {"loss": None if labels is None else cross_entropy(logits, labels), "logits": logits}


class Plain(Sentences):
    """The same model with one input, in which 0 is padding."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs, inputs > 0)["logits"]


def named(words: Tensor) -> dict[str, Tensor]:
    """Return the inputs of ``Sentences`` for those of ``Plain``."""
    return {"input_ids": words, "attention_mask": words > 0}


def sentences_of(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return a trainer's data for ``Plain``: clients of these sizes."""
    random = np.random.default_rng(8)
    words = torch.from_numpy(random.integers(1, WORDS, size=(sum(sizes), 6)))
    lengths = torch.from_numpy(random.integers(1, 7, size=len(words)))
    words[torch.arange(6) >= lengths[:, None]] = 0
    return data_of(sizes) | {"inputs": words}
