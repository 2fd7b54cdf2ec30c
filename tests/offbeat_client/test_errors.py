import pytest

from offbeat_client.errors import OffbeatError, did_you_mean


def test_the_error_is_not_a_value_error() -> None:
    assert issubclass(OffbeatError, Exception)
    assert not issubclass(OffbeatError, ValueError)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("fedbuf", "fedbuff"), ("fedasinc", "fedasync"), ("fed_avg", "fedavg"), ("avg", "fedavg")],
)
def test_names_the_nearest_word(word: str, nearest: str) -> None:
    hint = did_you_mean(word, ["fedbuff", "fedavg", "fedasync"])
    assert hint == f"did you mean {nearest!r}? Allowed: fedasync, fedavg, fedbuff"


@pytest.mark.parametrize("word", ["", "zzz", "adam"])
def test_names_none_if_none_is_near(word: str) -> None:
    assert did_you_mean(word, iter(["fedbuff", "fedasync"])) == "Allowed: fedasync, fedbuff"


def test_nothing_is_allowed() -> None:
    assert "\n" not in did_you_mean("x", [])
