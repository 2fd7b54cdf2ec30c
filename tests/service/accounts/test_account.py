"""Valid tokens, and the reasons why others are not."""

import pytest

from offbeat.service.accounts.account import Account


@pytest.mark.parametrize(
    ("account", "state"),
    [
        (Account("admin"), "valid"),
        (Account("enrolment", uses=1, expires=11.0), "valid"),
        (Account("enrolment", expires=10.0), "expired"),
        (Account("enrolment", uses=0, expires=9.0), "used up"),
        (Account("enrolment", uses=0, expires=9.0, revoked=True), "revoked"),
    ],
)
def test_the_state_of_a_token(account, state):
    assert account.state(10.0) == state
