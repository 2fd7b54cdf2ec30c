from pathlib import Path

import pytest
from offbeat_private.helper.helper_refusal import KINDS, HelperRefusal

PAGE = Path(__file__).parents[3] / "docs" / "privacy" / "helper.md"


def test_a_refusal_is_a_problem_document():
    assert HelperRefusal("wrong-head", "another head", bytes(32)).problem() == {
        "title": "Unprocessable Content",
        "status": 422,
        "kind": "wrong-head",
        "detail": "another head",
        "client": "00" * 32,
    }
    assert HelperRefusal("no-space", "full").problem() == {
        "title": "Service Unavailable",
        "status": 503,
        "kind": "no-space",
        "detail": "full",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_every_kind_with_its_status(kind):
    (line,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{kind}` ")]
    assert line.split("|")[2].strip() == str(KINDS[kind])
