"""A small causal language model of ``transformers``, with random weights."""

from typing import Any

from letters import TOKENS

from offbeat import OffbeatError


def model(width: int = 32, layers: int = 1, heads: int = 2) -> Any:
    """Return a Llama that predicts the next letter.

    Called with labels, it returns its loss.
    """
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise OffbeatError("the package transformers is missing: pip install 'offbeat[lora]'") from error
    config = LlamaConfig(
        vocab_size=TOKENS,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config)
