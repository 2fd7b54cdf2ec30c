from offbeat.service.masked.helper_connection import HelperConnection
from offbeat.service.masked.helper_protocol import HelperRefusedError, MaskHelper


def test_the_connection_to_a_helper_has_its_methods():
    connection: MaskHelper = HelperConnection("https://localhost:1", "obh_token", None, 6)
    assert {"facts", "open"} <= set(dir(connection))


def test_a_refusal_is_one_line_with_its_kind():
    error = HelperRefusedError("too-soon", "keep it", b"key")
    assert str(error) == "the helper refuses: keep it (too-soon)"
    assert (error.kind, error.detail, error.client) == ("too-soon", "keep it", b"key")
    assert str(HelperRefusedError("", "Bad Gateway")) == "the helper refuses: Bad Gateway"
