"""An encoder of MiniLM's shape with LoRA adapters and random weights."""

import torch
from torch import Tensor, nn

_WORDS, _LENGTH, _WIDTH, _HEADS, _LAYERS, _INNER = 30_522, 512, 384, 12, 6, 1536


class LoraLinear(nn.Module):
    """A frozen linear layer plus ``B A x``, A of ``rank`` rows; B starts at zero."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(_WIDTH, _WIDTH).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, _WIDTH) / _WIDTH**0.5)
        self.b = nn.Parameter(torch.zeros(_WIDTH, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``(…, width)`` to ``(…, width)``."""
        return self.base(inputs) + inputs @ self.a.T @ self.b.T


class Layer(nn.Module):
    """Attention and two linear layers, each with a residual connection."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.query, self.value = LoraLinear(rank), LoraLinear(rank)
        self.key, self.output = (nn.Linear(_WIDTH, _WIDTH).requires_grad_(False) for _ in range(2))
        self.inner = nn.Sequential(nn.Linear(_WIDTH, _INNER), nn.GELU(), nn.Linear(_INNER, _WIDTH))
        self.norms = nn.ModuleList([nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)])
        for part in (self.inner, self.norms):
            part.requires_grad_(False)

    def forward(self, states: Tensor) -> Tensor:
        """Map ``(n, length, width)`` to the same shape."""
        query, key, value = (
            part(states).unflatten(-1, (_HEADS, -1)).transpose(-2, -3) for part in (self.query, self.key, self.value)
        )
        # Written out, since torch's fused kernels have no batched form.
        weights = torch.softmax(query @ key.transpose(-1, -2) / (_WIDTH // _HEADS) ** 0.5, dim=-1)
        attended = (weights @ value).transpose(-2, -3).flatten(-2)
        states = self.norms[0](states + self.output(attended))
        return self.norms[1](states + self.inner(states))


class LoraEncoder(nn.Module):
    """A classifier of tokens; the adapters and the last layer are trained.

    Args:
        rank: r of the adapters.
        classes: Number of outputs.
    """

    def __init__(self, rank: int = 8, classes: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
        for part in (self.words, self.places):
            part.requires_grad_(False)
        self.layers = nn.Sequential(*[Layer(rank) for _ in range(_LAYERS)])
        self.head = nn.Linear(_WIDTH, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens ``(n, length)`` to outputs ``(n, classes)``."""
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        states = self.layers(self.words(tokens) + self.places(places))
        return self.head(states.mean(dim=-2))
