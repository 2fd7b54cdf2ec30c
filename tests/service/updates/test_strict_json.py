import pytest

from offbeat.service.updates.strict_json import read_object, shortened


def test_an_object_is_read():
    assert read_object('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not an object"),
        ("3", "not an object"),
        ("{", "Expecting"),
        ('{"a": 1, "a": 1}', "repeated"),
        ('{"a": {"b": 1, "b": 2}}', "repeated"),
        ('{"a":' * 100_000, "too deeply"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_object(text)


def test_an_error_shows_the_beginning_in_ascii():
    assert shortened("é\n" * 100) == ascii("é\n" * 100)[:40]
