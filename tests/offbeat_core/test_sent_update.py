from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from offbeat_core.compression import decode, random_k
from offbeat_core.local_plan import Compression, LocalPlan
from offbeat_core.sent_update import check_sending, control_variate, has_memory, is_plain, send, upload_bytes

TOP_1_OF_4 = Compression("top_k", (("share", 0.25),))
WHOLE = LocalPlan(steps=1, batch_size=1, lr=0.1)
SMALL = LocalPlan(steps=1, batch_size=1, lr=0.1, compression=TOP_1_OF_4)
FEEDING_BACK = LocalPlan(steps=1, batch_size=1, lr=0.1, compression=TOP_1_OF_4, error_feedback=True)


def compressed(name: str, error_feedback: bool = False, **parameters: float) -> LocalPlan:
    compression = Compression(name, tuple(parameters.items()))
    return LocalPlan(steps=1, batch_size=1, lr=0.1, compression=compression, error_feedback=error_feedback)


def vector(*entries: float) -> NDArray[np.float32]:
    return np.array(entries, np.float32)


@pytest.mark.parametrize(
    ("payload", "plan", "rounds"),
    [
        ("delta", SMALL, [([1, -4, 2, 3], [0, -4, 0, 0], None)] * 2),
        # The memory and the second update are 2, 1, 3, 3.5 together.
        (
            "delta",
            FEEDING_BACK,
            [([1, -4, 2, 3], [0, -4, 0, 0], [1, 0, 2, 3]), ([1, 1, 1, 0.5], [0, 0, 0, 3.5], [2, 1, 3, 0])],
        ),
        ("difference", WHOLE, [([1, 2], [1, 2], [1, 2]), ([5, 1], [4, -1], [5, 1])]),
        # The second update is a change of 1, 1, 2, 3 against the memory.
        (
            "difference",
            SMALL,
            [([1, -4, 2, 3], [0, -4, 0, 0], [0, -4, 0, 0]), ([1, -3, 2, 3], [0, 0, 0, 3], [0, -4, 0, 3])],
        ),
    ],
    ids=["dropped", "remembered", "difference", "small difference"],
)
def test_updates_and_memories_by_hand(payload: str, plan: LocalPlan, rounds: list[tuple[Any, Any, Any]]) -> None:
    memory = None
    for update, sent, kept in rounds:
        found, memory, _ = send(payload, vector(*update), memory, plan, seed=0)
        assert (found.tolist(), memory if memory is None else memory.tolist()) == (sent, kept)


def test_the_seed_decides_about_random_numbers() -> None:
    plan, values = compressed("random_k", share=0.1), np.arange(1.0, 101.0, dtype=np.float32)
    one, again, other = (send("delta", values, None, plan, seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert np.array_equal(one, decode(random_k(share=0.1).encode(values, 3)))


@given(st.lists(st.lists(st.integers(-8, 8), min_size=4, max_size=4), min_size=1, max_size=20))
def test_server_and_client_have_the_same_sum_of_differences(updates: list[list[float]]) -> None:
    memory, at_the_server = None, np.zeros(4, np.float32)
    for update in updates:
        sent, memory, _ = send("difference", vector(*update), memory, SMALL, seed=0)
        at_the_server += sent
        assert np.array_equal(at_the_server, memory)
        assert sent.astype(bool).sum() <= 1


@pytest.mark.parametrize("payload", ["delta", "difference"])
@pytest.mark.parametrize("plan", [WHOLE, SMALL, FEEDING_BACK], ids=["whole", "small", "feeding back"])
def test_the_arguments_are_not_changed(payload: str, plan: LocalPlan) -> None:
    update, before = vector(1, -4, 2, 3), vector(3, 2, 1, 0)
    send(payload, update, before, plan, seed=0)
    assert update.tolist() == [1, -4, 2, 3]
    assert before.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("payload", "plan", "plain", "has"),
    [
        ("delta", WHOLE, True, False),
        ("params", WHOLE, True, False),
        ("difference", WHOLE, False, True),
        ("delta", SMALL, False, False),
        ("difference", SMALL, False, True),
        ("delta", FEEDING_BACK, False, True),
    ],
)
def test_plain_updates_and_memories(payload: str, plan: LocalPlan, plain: bool, has: bool) -> None:
    update = vector(1, -4, 2, 3)
    assert is_plain(payload, plan) is plain
    assert has_memory(payload, plan) is has
    assert has_memory(payload, plan, corrects_gradients=True)
    for before in (None, vector(0, 0, 0, 9)):
        sent = send(payload, update, before, plan, seed=0)
        assert (sent.vector is update) == (plain or (plan is WHOLE and before is None))
        assert (sent.memory is not None) is has
        assert (sent.encoded is None) is (plan is WHOLE)
        assert sent.encoded is None or decode(sent.encoded).tolist() == sent.vector.tolist()


def test_the_size_of_an_upload() -> None:
    assert upload_bytes(WHOLE, 100) == 400
    # A header of 16 bytes and the share of 8; a bit an entry, 13 bytes; 25 values of 4 bytes.
    assert upload_bytes(SMALL, 100) == 16 + 8 + 13 + 100


@pytest.mark.parametrize("payload", ["delta", "difference"])
def test_values_that_are_not_finite_cannot_be_compressed(payload: str) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        send(payload, vector(1, float("nan"), 2, 3), vector(0, 0, 0, 0), SMALL, seed=0)
    with pytest.raises(ValueError, match="NaN or infinity"):
        send("delta", vector(3e38, 0, 0, 0), vector(3e38, 0, 0, 0), FEEDING_BACK, seed=0)


class TestCheck:
    @pytest.mark.parametrize(
        ("payload", "plan"),
        [
            ("params", WHOLE),
            ("delta", compressed("random_k", share=0.1)),
            ("delta", compressed("random_k", error_feedback=True, share=0.1, scaled=False)),
            ("delta", compressed("sign", error_feedback=True)),
            ("difference", compressed("sign")),
            ("difference", compressed("qsgd", bits=5)),  # 15 levels, d = 225
        ],
    )
    def test_other_updates_can_be_sent(self, payload: str, plan: LocalPlan) -> None:
        check_sending(payload, plan, 225)

    @pytest.mark.parametrize(
        ("payload", "plan", "what"),
        [
            ("delta", compressed("random_k", error_feedback=True, share=0.1), "error_feedback .* random_k .* 226"),
            ("difference", compressed("random_k", share=0.1), "difference .* random_k .* 226"),
            ("difference", compressed("qsgd", bits=5), "difference .* qsgd .* 226"),
            ("params", SMALL, "whole models here, which cannot be compressed"),
            ("difference", FEEDING_BACK, "leave error_feedback out"),
        ],
    )
    def test_updates_that_cannot_be_sent_are_refused(self, payload: str, plan: LocalPlan, what: str) -> None:
        with pytest.raises(ValueError, match=what):
            check_sending(payload, plan, 226)


@pytest.mark.parametrize(("plan", "memory"), [({"lr": (0.25, 0.25)}, [5, -4]), ({"lr": 0.25, "mu": 4.0}, [11, -6])])
def test_the_control_variate_by_hand(plan: dict[str, Any], memory: list[float]) -> None:
    found = control_variate(vector(3, -1), vector(1, 2), LocalPlan(steps=2, batch_size=1, **plan))
    assert found.tolist() == memory


def test_a_change_beyond_float32_does_not_warn() -> None:
    largest = vector(3e38)
    assert np.isinf(send("difference", largest, -largest, WHOLE, seed=0).vector).all()
    assert np.isinf(control_variate(largest, -largest, WHOLE)).all()
