"""Text files as editors write them."""

import ssl
from pathlib import Path

import pytest
from offbeat_core.http.tls import trust
from offbeat_core.tables.toml_table import read_table
from offbeat_core.text_file import read_text

WRITTEN = {
    "plain": "utf-8",
    "with a mark": "utf-8-sig",
    "UTF-16": "utf-16",
    "UTF-16, big": "utf-16-be",
}


def write(path: Path, text: str, encoding: str) -> Path:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_text_a_table_and_certificates(
    encoding: str, end: str, tmp_path: Path, tls_server: tuple[object, Path]
) -> None:
    assert read_text(write(tmp_path / "token", f"obe_é{end}", encoding)) == f"obe_é{end}"
    table = write(tmp_path / "table.toml", f'[[clients]]{end}name = "Ä"{end}', encoding)
    assert read_table(table) == {"clients": [{"name": "Ä"}]}
    _, ca = tls_server
    pem = "# Zürich" + end + ca.read_text(encoding="ascii").replace("\n", end)
    found = trust(write(tmp_path / "ca.pem", pem, encoding), "--ca").get_ca_certs()
    assert found == ssl.create_default_context(cafile=ca).get_ca_certs() != []


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\x80\x81")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "key")
