import pytest
from offbeat_core.errors import MistakesError, OffbeatError

from offbeat.python.argument_errors import in_terms_of_arguments


@in_terms_of_arguments
def call(error: Exception | None = None, *, virtual_seconds: float = 1.0) -> float:
    """Return the seconds, or raise the error."""
    if error:
        raise error
    return virtual_seconds


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("stop.virtual_seconds = 0: must be", "virtual_seconds = 0: must be"),
        ("stop: set virtual_seconds, versions or updates", "set virtual_seconds, versions or updates"),
        ("evaluate.every_seconds = 0: must be", "evaluate_every_seconds = 0: must be"),
        (
            "evaluate: set exactly one of every_seconds and every_versions",
            "set exactly one of evaluate_every_seconds and evaluate_every_versions",
        ),
        ("data.augmentation = 'x' is for images", "augmentation = 'x' is for images"),
        ("population.lossy needs server.lease_seconds", "population.lossy needs server.lease_seconds"),
        ("unstoppable.versions", "unstoppable.versions"),
    ],
)
def test_keys_of_a_file_become_arguments(message: str, shown: str) -> None:
    with pytest.raises(OffbeatError) as caught:
        call(OffbeatError(message))
    assert str(caught.value) == shown


def test_several_mistakes_stay_several() -> None:
    with pytest.raises(OffbeatError) as caught:
        call(MistakesError(["stop.versions = 0", "evaluate.every_seconds = 0"]))
    assert caught.value.lines == ("versions = 0", "evaluate_every_seconds = 0")


def test_a_misspelt_argument_gets_a_hint() -> None:
    line = r"^unknown argument virtual_second: did you mean 'virtual_seconds'\? Allowed: error, virtual_seconds$"
    with pytest.raises(OffbeatError, match=line):
        call(virtual_second=1.0)  # pyright: ignore[reportCallIssue]


def test_all_else_is_as_before() -> None:
    assert call(virtual_seconds=2.0) == 2.0
    assert call.__doc__ == "Return the seconds, or raise the error."
    with pytest.raises(KeyError):
        call(KeyError("stop.versions"))
