from typing import Any

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.lr_decay import LR_DECAYS, LrDecay, exponential, inverse_square_root

from offbeat.algorithms.components import Compression
from offbeat.compression import COMPRESSORS, TopK, random_k
from offbeat.config.local_section import StepsFunction, check_compression, compression_from_table, lr_decay_from_table
from tests.error_line import error_line


@pytest.mark.parametrize("steps", [1, np.int64(1), torch.tensor(3), 1_000_000])
def test_a_function_gives_whole_numbers(steps):
    found = StepsFunction(lambda _: steps, "mine")(7, 5)
    assert found == steps
    assert type(found) is int


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, None, "3", 1_000_001])
def test_other_answers_of_a_function_are_refused(steps):
    with pytest.raises(OffbeatError) as caught:
        StepsFunction(lambda examples: steps if examples == 7 else 1, "x.py:mine")(7, 5)
    assert str(caught.value) == (
        f"local.steps = 'x.py:mine' returned {steps!r} for 7 examples: it must return a whole number in 1 … 1,000,000"
    )


def test_a_function_that_fails_is_one_line_with_its_place():
    with pytest.raises(OffbeatError, match=r"^local.steps = 'mine' failed for 7 examples: Zero.*_section.py:\d+"):
        StepsFunction(lambda examples: 1 // (examples - 7), "mine")(7, 5)


DECAYS = {
    "exponential": ({"factor": 0.5}, exponential(0.5)),
    "step": ({"every": 4}, LrDecay("step", (("every", 4), ("factor", 0.1)))),  # with its default
    "inverse_square_root": ({"versions": 3.0}, inverse_square_root(versions=3.0)),
    "none": ({}, None),
}
COMPRESSIONS = {
    "top_k": ({"share": 0.25}, Compression("top_k", (("share", 0.25),))),
    "random_k": ({"share": 1}, Compression("random_k", (("share", 1.0), ("scaled", True)))),
    "qsgd": ({"bits": 4}, Compression("qsgd", (("bits", 4),))),
    "sign": ({}, Compression("sign")),
    "none": ({}, None),
}


def test_a_table_is_a_decay_or_a_compression_with_its_parameters() -> None:
    for read, tables, known in (
        (lr_decay_from_table, DECAYS, LR_DECAYS),
        (compression_from_table, COMPRESSIONS, COMPRESSORS),
    ):
        assert set(tables) == {*known, "none"}
        for name, (table, expected) in tables.items():
            assert read("key", {"name": name, **table}) == expected
    for _, compression in COMPRESSIONS.values():
        assert check_compression("key", compression) == compression


class TestFromPython:
    def test_a_compressor_or_a_dict_means_the_same(self) -> None:
        expected = Compression("random_k", (("share", 0.5), ("scaled", True)))
        parameters: Any = {"share": 0.5}
        assert check_compression("key", random_k(share=0.5)) == expected
        assert check_compression("key", Compression("random_k", parameters)) == expected

    @pytest.mark.parametrize(
        ("compression", "message"),
        [
            (Compression("topk"), "key.name = 'topk': did you mean 'top_k'? Allowed: qsgd, random_k, sign, top_k"),
            (Compression("none"), "key.name = 'none': Allowed: qsgd"),
            (Compression("top_k"), "key.share is missing"),
            (Compression("top_k", (("share", 0.0),)), "key: share must be in (0, 1], got 0.0"),
            (Compression("top_k", ("share", 0.1)), "key.parameters = ('share', 0.1): must be pairs, such as ((\"share"),
            (Compression("top_k", 0.1), "key.parameters = 0.1: must be pairs"),
            (Compression("top_k", ((["share"], 0.1),)), "key.parameters = ((['share'], 0.1),): must be pairs"),
            ("top_k", "key = 'top_k': must be a Compression, or a compressor such as top_k(0.01)"),
            ({"name": "top_k", "share": 0.1}, "key = {'name': 'top_k', 'share': 0.1}: must be a Compression"),
            (TopK, "key = <class"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_one_line(self, compression: Any, message: str) -> None:
        assert error_line(check_compression, "key", compression).startswith(message)
