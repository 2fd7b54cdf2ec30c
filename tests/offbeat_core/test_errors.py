import pytest
from offbeat_core.errors import MistakesError, OffbeatError, did_you_mean


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("fedbuf", "fedbuff"), ("fedasinc", "fedasync"), ("avg", "fedavg")],
)
def test_the_nearest_word_is_named(word: str, nearest: str) -> None:
    hint = did_you_mean(word, ["fedbuff", "fedavg", "fedasync"])
    assert hint == f"did you mean {nearest!r}? Allowed: fedasync, fedavg, fedbuff"


@pytest.mark.parametrize("word", ["", "adam"])
def test_no_word_is_named_if_none_is_near(word: str) -> None:
    assert did_you_mean(word, iter(["fedbuff", "fedasync"])) == "Allowed: fedasync, fedbuff"


def test_names_of_other_frameworks_come_before_similar_ones() -> None:
    assert did_you_mean("linear", ["mlp", "softmax"]) == "did you mean 'softmax'? Allowed: mlp, softmax"


def test_an_error_is_one_line_or_several() -> None:
    assert OffbeatError("one").lines == ("one",)
    several = MistakesError(["one", "two"])
    assert (several.lines, str(several)) == (("one", "two"), "one\ntwo")
