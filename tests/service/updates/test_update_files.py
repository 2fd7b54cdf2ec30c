from offbeat.service.updates.update_body import StoredUpdate
from offbeat.service.updates.update_files import UpdateFiles


def test_a_file_is_forgotten_without_later_records_and_updates_in_memory(tmp_path):
    files = UpdateFiles()
    shared, own = tmp_path / "segment-1", tmp_path / "0-0-1"
    first, second = (StoredUpdate(shared, begin, 8, 2, None, "") for begin in (0, 8))
    files.add(3, first)
    files.add(5, second)
    files.add(4, StoredUpdate(own, 0, 8, 2, None, ""))
    assert shared in files
    assert own in files
    assert files.forget(3) == []
    assert files.forget(4) == [own]
    assert own not in files
    assert files.forget(5) == []  # both updates are in memory
    del first
    assert files.forget(5) == []
    del second
    assert files.forget(4) == []  # record 5 needs it
    assert files.forget(5) == [shared]
    assert files.forget(5) == []
