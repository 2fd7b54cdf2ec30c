from collections.abc import Iterable

import pytest
from offbeat_core.errors import MistakesError, OffbeatError, did_you_mean, hint_for_other_name, setting, settings_named


@pytest.mark.parametrize(
    ("word", "allowed", "hint"),
    [
        ("fedbuf", ["fedbuff", "fedavg", "fedasync"], "did you mean 'fedbuff'? Allowed: fedasync, fedavg, fedbuff"),
        ("adam", iter(["fedbuff", "fedasync"]), "Allowed: fedasync, fedbuff"),
        ("linear", ["mlp", "softmax"], "did you mean 'softmax'? Allowed: mlp, softmax"),
    ],
)
def test_the_nearest_word_is_named(word: str, allowed: Iterable[str], hint: str) -> None:
    assert did_you_mean(word, allowed) == hint


def test_an_error_of_several_lines_fails_the_test_that_meets_it() -> None:
    with pytest.raises(AssertionError, match="an error of several lines: one"):
        OffbeatError("one\ntwo")


def test_an_error_is_one_line_or_several() -> None:
    assert OffbeatError("one").lines == ("one",)
    several = MistakesError(["one", "two"])
    assert (several.lines, str(several)) == (("one", "two"), "one\ntwo")


@pytest.mark.parametrize(
    ("word", "allowed", "hint"),
    [
        ("learning_rate", ["lr", "steps"], "did you mean 'lr'? "),
        ("learning_rate", ["buffer_size", "server_lr"], "did you mean 'server_lr'? "),
        ("Learning-Rate", ["lr"], "did you mean 'lr'? "),
        ("clients_per_round", ["buffer_size", "concurrency"], "did you mean 'concurrency'? "),
    ],
)
def test_another_name_of_the_same_thing(word: str, allowed: list[str], hint: str) -> None:
    assert hint_for_other_name(word, allowed) == hint


@pytest.mark.parametrize(
    ("word", "allowed", "part"),
    [("FedProx", ["fedavg"], "local.mu"), ("fedadam", ["fedavg"], '"adam"')],
)
def test_what_takes_its_place(word: str, allowed: list[str], part: str) -> None:
    hint = hint_for_other_name(word, allowed)
    assert hint is not None
    assert part in hint
    assert hint.endswith(". ")


@pytest.mark.parametrize("word", ["epochs", "learning_rate", "lr", ""])
def test_no_hint_for_what_is_not_allowed_here(word: str) -> None:
    assert hint_for_other_name(word, ["hidden", "name"]) is None


def test_a_key_is_its_own_name_outside_of_the_context():
    assert setting("stop.versions") == "stop.versions"
    with settings_named({"stop.versions": "versions", "stop": ""}):
        assert [setting(key) for key in ("stop.versions", "stop", "local.lr")] == ["versions", "", "local.lr"]
        with settings_named({}):
            assert setting("stop.versions") == "stop.versions"
        assert setting("stop.versions") == "versions"
    with pytest.raises(KeyError), settings_named({"stop": "end"}):
        raise KeyError
    assert setting("stop") == "stop"
