import pytest
from offbeat_client.client_folder.audit_heads import AuditHeads

HEADS = [f"{number}:{number:064x}" for number in range(1, 4)]


def lines(folder):
    return (folder / "audit-heads").read_text().splitlines()


def test_each_new_head_is_a_line(tmp_path):
    heads = AuditHeads(tmp_path)
    heads.keep(None)
    assert not (tmp_path / "audit-heads").exists()
    for head in (HEADS[0], HEADS[0], HEADS[1], None, HEADS[1], HEADS[0]):
        heads.keep(head)
    assert lines(tmp_path) == [HEADS[0], HEADS[1], HEADS[0]]


def test_a_restarted_client_continues_the_file(tmp_path):
    for head in (HEADS[0], HEADS[0], HEADS[1]):
        AuditHeads(tmp_path).keep(head)
    assert lines(tmp_path) == HEADS[:2]


@pytest.mark.parametrize("torn", [HEADS[1][:30], HEADS[1]])
def test_a_line_that_a_kill_has_torn_spoils_no_other(tmp_path, torn):
    (tmp_path / "audit-heads").write_text(f"{HEADS[0]}\n{torn}")
    heads = AuditHeads(tmp_path)
    heads.keep(HEADS[1])
    heads.keep(HEADS[2])
    assert lines(tmp_path) == [HEADS[0], torn, HEADS[1], HEADS[2]]
