"""The registry is what the log's rows make, however often a checkpoint was taken and loaded between them."""

import json
from random import Random

import pytest

from offbeat.service.accounts.registry import AccountRegistry

TOKEN = {"kind": "enrolment", "uses": 9, "expires": None, "name": "of sites"}


def changes(random, number):
    """Yield some changes that may follow each other."""
    yield "make_token", {"token": "e0", **TOKEN}
    clients, tokens, renewed = 0, ["e0"], set()
    for count in range(number):
        kinds = ["enrol", "make_token", "revoke_token"]
        kinds += ["declare", "rename", "renew", "revoke_client"] * (clients > 0) + ["replace"] * bool(renewed)
        kind, client = random.choice(kinds), random.randrange(max(clients, 1))
        match kind:
            case "enrol":
                values = {"client": clients, "name": "site", "at": float(count), "examples": None, "by": "e0"}
                yield kind, values | {"token": f"c{count}", "expires": random.choice([None, 5.0])}
                clients += 1
            case "make_token":
                tokens.append(f"e{count}")
                yield kind, {"token": tokens[-1], **TOKEN}
            case "revoke_token":
                yield kind, {"token": random.choice(tokens)}
            case "renew":
                renewed.add(client)
                yield kind, {"client": client, "token": f"c{count}", "expires": float(count)}
            case "replace":
                client = random.choice(sorted(renewed))
                renewed.discard(client)
                yield kind, {"client": client}
            case _:
                values = {"declare": {"examples": count}, "rename": {"name": f"n{count}"}, "revoke_client": {"at": 1.0}}
                yield kind, {"client": client, **values[kind]}


def copy(registry):
    return AccountRegistry(json.loads(json.dumps(registry.state_dict())))


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_at_any_row_changes_nothing(seed):
    random = Random(seed)
    registry, loaded = AccountRegistry(), AccountRegistry()
    for change in changes(random, 60):
        registry.apply(*change)
        loaded.apply(*change)
        if random.random() < 0.2:
            loaded = copy(loaded)
        assert (loaded.sites, loaded.accounts) == (registry.sites, registry.accounts)
        if random.random() < 0.3:  # also after values that were taken before
            assert registry.state_dict() == loaded.state_dict()


def test_values_that_were_taken_do_not_change():
    """Another thread writes them."""
    registry = AccountRegistry()
    registry.apply("make_token", {"token": "e0", **TOKEN})
    enrol = {"client": 0, "name": "one", "at": 1.0, "token": "c0", "expires": None, "examples": None, "by": "e0"}
    registry.apply("enrol", enrol)
    taken = registry.state_dict()
    text = json.dumps(taken)
    registry.apply("rename", {"client": 0, "name": "two"})
    registry.apply("enrol", enrol | {"client": 1, "token": "c1"})
    registry.state_dict()
    assert json.dumps(taken) == text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("enrol", {"client": 1, "name": "", "at": 1.0, "token": "c", "expires": None, "examples": None, "by": "e0"}),
        ("rename", {"client": 0, "name": ""}),
        ("news", {}),
    ],
)
def test_a_change_that_cannot_follow_is_an_error(name, values):
    with pytest.raises((ValueError, LookupError)):
        AccountRegistry().apply(name, values)


def test_the_next_token_replaces_a_clients_token_once_it_is_used():
    registry = AccountRegistry()
    registry.apply("make_token", {"token": "e0", **TOKEN})
    enrol = {"client": 0, "name": "one", "at": 1.0, "token": "c0", "expires": None, "examples": None, "by": "e0"}
    registry.apply("enrol", enrol)
    registry.apply("renew", {"client": 0, "token": "c1", "expires": 9.0})
    registry.apply("renew", {"client": 0, "token": "c2", "expires": 9.0})  # the answer with c1 was lost
    assert {token: one.is_next for token, one in registry.accounts.items()} == {"e0": False, "c0": False, "c2": True}
    registry.apply("replace", {"client": 0})
    assert {token: one.is_next for token, one in registry.accounts.items()} == {"e0": False, "c2": False}
    assert registry.accounts["e0"].uses == 8
