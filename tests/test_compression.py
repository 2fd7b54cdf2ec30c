"""Only the conversion; tests/offbeat_core/compression has the rest."""

import offbeat_core.compression
import pytest
import torch

from offbeat.compression import COMPRESSORS, decode, qsgd, random_k, sign, top_k


@pytest.mark.parametrize("compressor", [top_k(0.3), random_k(0.3), qsgd(5), sign()], ids=str)
def test_a_tensor_is_compressed_like_an_array(compressor):
    vector = torch.randn(50, generator=torch.Generator().manual_seed(0))
    encoded = compressor.encode(vector, seed=3)
    assert encoded == compressor.encode(vector.numpy(), seed=3)
    decoded = decode(encoded)
    assert decoded.dtype == torch.float32
    assert decoded.tolist() == offbeat_core.compression.decode(encoded).tolist()


def test_the_compressors_are_the_clients():
    assert COMPRESSORS is offbeat_core.compression.COMPRESSORS
    assert {"top_k": top_k, "random_k": random_k, "qsgd": qsgd, "sign": sign} == COMPRESSORS
