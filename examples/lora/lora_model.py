"""A classifier of sentences: a Hugging Face model with LoRA adapters.

LoRA: Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022. FFA-LoRA: Sun et al., "Improving LoRA
in privacy-preserving federated learning", ICLR 2024.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from base_model import find_base, import_package
from torch import Tensor, nn

_A_SEED = 0  # of frozen A, which do not travel: all clients draw the same


class SentenceClassifier(nn.Module):
    """A linear layer on an encoder's mean output over a sentence's tokens.

    Args:
        encoder: A model of ``transformers`` that returns ``last_hidden_state``, ``(n, length, width)``.
        classes: Number of classes.
        padding: The number of the padding token.
    """

    def __init__(self, encoder: Any, classes: int, padding: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)
        self.padding = padding
        self.is_causal = any(getattr(layer, "is_causal", False) for layer in encoder.modules())

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``(n, classes)`` for tokens, int64 ``(n, length)``."""
        mask = tokens != self.padding
        states = self.encoder(input_ids=tokens, attention_mask=self._attention_mask(mask)).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1))

    def _attention_mask(self, mask: Tensor) -> Tensor:
        if self.is_causal:
            return mask.long()
        # The numbers that attention adds. From a mask (n, length) an encoder would read whether there is any padding,
        # which neither vmap nor a CUDA graph allows.
        numbers = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, torch.finfo(torch.float32).min)
        return numbers[:, None, None, :]


def model(
    name: str,
    sha256: str,
    rank: int = 8,
    alpha: float = 16.0,
    freeze_a: bool = False,
    targets: Sequence[str] | None = None,
    classes: int = 2,
) -> nn.Module:
    """Return a classifier of which only the adapters and the last layer are trained.

    A layer's output W x becomes W x + alpha / rank · B A x; B starts at zero. There is no dropout.

    Args:
        name: The base model: a folder, or a name on Hugging Face.
        sha256: That of its file ``model.safetensors``.
        rank: Number of rows of A, and of columns of B.
        alpha: LoRA's scale.
        freeze_a: Whether only B is trained, as in FFA-LoRA. The mean of clients' B A is then (mean of B) A; the means
            of B and A apart have another product.
        targets: The ends of the names of the layers that get adapters; those that PEFT proposes for the kind of model
            if it is left out.
        classes: Number of classes.

    Raises:
        OffbeatError: A package is missing, or the base model is not found or is another one.
    """
    folder = str(find_base(name, sha256))
    transformers, peft = import_package("transformers"), import_package("peft")
    transformers.utils.logging.set_verbosity_error()  # not a list of the layers that are left out
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one library calls what another one calls outdated
        # Fused attention has no batched form, which the trainer vmap needs for many clients on a GPU.
        encoder = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
        )
        padding = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True).pad_token_id
        config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=None if targets is None else list(targets))
        encoder = peft.inject_adapter_in_model(config, encoder)
    for layer in encoder.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    if freeze_a:
        _freeze_a(encoder)
    return SentenceClassifier(encoder, classes, padding)


def _freeze_a(encoder: nn.Module) -> None:
    """Give each A the same values on all machines, and freeze it."""
    numbers = np.random.default_rng(_A_SEED)
    for name, parameter in encoder.named_parameters():
        if "lora_A" in name:
            bound = parameter.shape[1] ** -0.5  # as PEFT draws A
            values = numbers.uniform(-bound, bound, tuple(parameter.shape)).astype(np.float32)
            parameter.data.copy_(torch.from_numpy(values))
            parameter.requires_grad_(False)
