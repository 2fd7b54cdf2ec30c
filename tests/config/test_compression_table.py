from typing import Any

import pytest

from offbeat.algorithms.components import Compression
from offbeat.compression import COMPRESSORS, TopK, random_k
from offbeat.config.compression_table import check_compression, compression_from_table
from tests.error_line import error_line

TABLES: dict[str, dict[str, Any]] = {
    "top_k": {"share": 0.25},
    "random_k": {"share": 0.5, "scaled": False},
    "qsgd": {"bits": 4},
    "sign": {},
}


def test_no_compressor_is_forgotten_above() -> None:
    assert set(TABLES) == set(COMPRESSORS)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_a_compressor_with_its_parameters(name: str) -> None:
    compression = compression_from_table("key", {"name": name, **TABLES[name]})
    assert compression == Compression(name, tuple(TABLES[name].items()))
    assert check_compression("key", compression) == compression


def test_defaults_are_written_out() -> None:
    expected = Compression("random_k", (("share", 1.0), ("scaled", True)))
    assert compression_from_table("key", {"name": "random_k", "share": 1}) == expected


def test_none_means_uncompressed() -> None:
    assert compression_from_table("key", {"name": "none"}) is check_compression("key", None) is None


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
