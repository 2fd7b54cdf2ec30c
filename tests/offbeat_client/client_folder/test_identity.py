import stat

import pytest
from offbeat_client.client_folder.identity import AuditHeads, ClientFolder, Identity
from offbeat_core.errors import OffbeatError

ME = Identity("https://host", 17, "obc_secret", 123.5)


def test_an_identity_comes_back_and_only_its_owner_may_read_it(tmp_path):
    with ClientFolder(tmp_path / "a" / "b") as folder:
        assert folder.identity("https://host") is None
        folder.keep_identity(ME)
    with ClientFolder(tmp_path / "a" / "b") as folder:
        assert folder.identity("https://host") == ME
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert "secret" not in repr(ME)


def test_two_at_once_are_refused(tmp_path):
    with ClientFolder(tmp_path), pytest.raises(OffbeatError, match="another client is at work"), ClientFolder(tmp_path):
        pass
    with ClientFolder(tmp_path):
        pass


def test_another_servers_client_and_a_folder_that_cannot_be_used_are_refused(tmp_path):
    with ClientFolder(tmp_path) as folder:
        folder.keep_identity(ME)
        with pytest.raises(OffbeatError, match="belongs to client 17 of https://host, not of https://other"):
            folder.identity("https://other")
        (tmp_path / "identity.json").write_text('{"server": 1}')
        with pytest.raises(OffbeatError, match=r"broken: take another folder, and enrol"):
            folder.identity("https://host")
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match="cannot write into"), ClientFolder(tmp_path / "file" / "x"):
        pass


HEADS = [f"{number}:{number:064x}" for number in range(1, 4)]


def lines(folder):
    return (folder / "audit-heads").read_text().splitlines()


def test_each_new_head_is_a_line(tmp_path):
    heads = AuditHeads(tmp_path)
    heads.keep(None)
    assert not (tmp_path / "audit-heads").exists()
    for head in (HEADS[0], HEADS[0], HEADS[1], None, HEADS[1], HEADS[0]):
        heads.keep(head)
    for head in (HEADS[0], HEADS[2]):  # restarts continue the file
        AuditHeads(tmp_path).keep(head)
    assert lines(tmp_path) == [HEADS[0], HEADS[1], HEADS[0], HEADS[2]]


@pytest.mark.parametrize("torn", [HEADS[1][:30], HEADS[1]])
def test_a_line_that_a_kill_has_torn_spoils_no_other(tmp_path, torn):
    (tmp_path / "audit-heads").write_text(f"{HEADS[0]}\n{torn}")
    heads = AuditHeads(tmp_path)
    heads.keep(HEADS[1])
    heads.keep(HEADS[2])
    assert lines(tmp_path) == [HEADS[0], torn, HEADS[1], HEADS[2]]
