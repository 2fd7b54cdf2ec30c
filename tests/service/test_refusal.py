import errno
import pickle
import re
from pathlib import Path

import pytest

from offbeat.service.refusal import KINDS, Refusal, is_descriptor_shortage, no_space

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def documented_kinds() -> dict[str, int]:
    section = PROTOCOL.read_text(encoding="utf-8").split("\n## Errors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", section, re.MULTILINE)
    # Names of headers begin with a capital letter.
    return {kind: int(status) for status, kinds in rows for kind in re.findall(r"`([a-z-]+)`", kinds)}


def test_kinds_are_those_of_the_protocol() -> None:
    assert documented_kinds() == KINDS


def test_problem_is_the_protocols_example() -> None:
    detail = "the update must be of shape (7850,), got shape (10,)"
    problem = Refusal("wrong-shape", detail).problem()
    assert problem == {"title": "Unprocessable Content", "status": 422, "kind": "wrong-shape", "detail": detail}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_problem_with_a_title(kind: str) -> None:
    refusal = Refusal(kind, "do this")
    assert refusal.status == KINDS[kind]
    assert refusal.problem()["title"]
    assert refusal.headers == {}
    assert str(refusal) == "do this"


@pytest.mark.parametrize(("code", "kind"), [(errno.EMFILE, "busy"), (errno.ENFILE, "busy"), (errno.ENOSPC, "no-space")])
def test_a_shortage_of_descriptors_is_not_a_full_disk(code: int, kind: str) -> None:
    error = OSError(code, "the reason")
    assert is_descriptor_shortage(error) is (kind == "busy")
    refusal = no_space(error)
    assert (refusal.kind, refusal.headers) == (kind, {"Retry-After": "5"})
    assert ("the reason" in refusal.detail) is (kind == "no-space")


def test_an_unknown_kind_is_a_programming_error() -> None:
    with pytest.raises(KeyError, match="no-such-kind"):
        Refusal("no-such-kind", "")


def test_it_comes_back_from_another_process() -> None:
    refusal = pickle.loads(pickle.dumps(Refusal("busy", "come back", {"Retry-After": "3"})))
    assert (refusal.kind, refusal.detail, refusal.headers) == ("busy", "come back", {"Retry-After": "3"})
