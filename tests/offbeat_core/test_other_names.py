import pytest
from offbeat_core.other_names import hint_for_other_name


@pytest.mark.parametrize(
    ("word", "allowed", "hint"),
    [
        ("learning_rate", ["lr", "steps"], "did you mean 'lr'? "),
        ("learning_rate", ["buffer_size", "server_lr"], "did you mean 'server_lr'? "),
        ("Learning-Rate", ["lr"], "did you mean 'lr'? "),
        ("num_clients", ["clients"], "did you mean 'clients'? "),
        ("linear", ["mlp", "softmax"], "did you mean 'softmax'? "),
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
