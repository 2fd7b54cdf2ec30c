import stat

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_private.helper.helper_folder import EpochKeys, HelperFolder, erase_durably


def test_a_folder_is_made_for_its_owner_alone(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    for name in ("open", "new/er"):
        HelperFolder(tmp_path / name).make()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match="cannot make the folder"):
        HelperFolder(tmp_path / "file").make()


def test_a_folder_is_locked_by_one_process(tmp_path):
    folder = HelperFolder(tmp_path)
    message = "in use by another helper: stop it first"
    with folder.lock(), pytest.raises(OffbeatError, match=message), HelperFolder(tmp_path).lock():
        pass
    with folder.lock():
        pass


def test_runs_are_erased_but_for_one(tmp_path):
    folder = HelperFolder(tmp_path)
    for number in (1, 2):
        folder.run(bytes([number] * 16)).make(bytes([number] * 32))
    old = folder.run(bytes([1] * 16))
    (old.keys / "0").write_bytes(b"secret")
    (old.answers / "1").write_bytes(b"answer")
    links = [tmp_path / "link-secret", tmp_path / "link-key"]
    links[0].hardlink_to(old.noise_secret)
    links[1].hardlink_to(old.keys / "0")
    folder.erase_runs(but=bytes([2] * 16))
    erase_durably(old.noise_secret)  # a missing file
    assert [path.name for path in tmp_path.glob("run-*")] == [f"run-{'02' * 16}"]
    assert [link.read_bytes() for link in links] == [bytes(32), bytes(6)]
    assert folder.run(bytes([2] * 16)).noise_secret.read_bytes() == bytes([2] * 32)


def test_a_key_is_made_once_and_lasts_until_the_next_epoch_ends(tmp_path):
    keys = EpochKeys(tmp_path)
    keys.keep(0)
    first = keys.read(0).private_bytes_raw()
    keys.keep(0)
    keys.keep(1)
    assert EpochKeys(tmp_path).read(0).private_bytes_raw() == first
    assert keys.read(1).private_bytes_raw() != first
    keys.keep(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    with pytest.raises(FileNotFoundError):
        keys.read(0)
