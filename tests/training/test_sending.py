"""Only the conversion; tests/offbeat_client/test_sending.py has the rest."""

import pytest
import torch

from offbeat.training.sending import control_variate, send
from offbeat_client import sending
from offbeat_client.local_plan import Compression, LocalPlan

PLAIN = LocalPlan(steps=2, batch_size=1, lr=0.3)
TOP_K = LocalPlan(steps=2, batch_size=1, lr=0.3, compression=Compression("top_k", (("share", 0.25),)))
FEEDBACK = LocalPlan(
    steps=2, batch_size=1, lr=0.3, compression=Compression("top_k", (("share", 0.25),)), error_feedback=True
)


@pytest.mark.parametrize("payload", ["delta", "params"])
def test_a_vector_that_is_sent_as_it_is_is_not_copied(payload: str) -> None:
    vector = torch.ones(4)
    sent, memory = send(payload, vector, None, PLAIN, seed=0)
    assert sent is vector
    assert memory is None


def test_an_uncompressed_difference_remembers_the_vector_itself() -> None:
    vector = torch.ones(4)
    assert send("difference", vector, None, PLAIN, seed=0) == (vector, vector)
    sent, memory = send("difference", vector, torch.full((4,), 3.0), PLAIN, seed=0)
    assert memory is vector
    assert sent.tolist() == [-2.0] * 4


@pytest.mark.parametrize(("payload", "plan"), [("delta", TOP_K), ("delta", FEEDBACK), ("difference", TOP_K)])
@pytest.mark.parametrize("memory", [None, torch.tensor([0.5, 8.0, -1.0, 0.0])])
def test_compressed_updates_are_those_of_real_clients(
    payload: str, plan: LocalPlan, memory: torch.Tensor | None
) -> None:
    vector = torch.tensor([1.0, -4.0, 2.0, 3.0])
    expected = sending.send(payload, vector.numpy(), None if memory is None else memory.numpy(), plan, seed=0)
    sent, after = send(payload, vector, memory, plan, seed=0)
    assert sent.tolist() == expected.vector.tolist()
    assert (None if after is None else after.tolist()) == (
        None if expected.memory is None else expected.memory.tolist()
    )


def test_the_control_variate_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    delta, offset = torch.randn(2, 1000, generator=generator)
    assert torch.equal(control_variate(delta, offset, PLAIN), delta / PLAIN.path - offset)
