import stat
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.trained_models import TrainedModels
from offbeat_private.masks.signing_key import public_bytes

Command = Callable[..., tuple[int, str, str]]


class TestKey:
    def test_makes_a_key_once_and_prints_its_public_half(self, offbeat: Command, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "client"
        code, out, err = offbeat("client", "key", "--folder", str(folder))
        assert (code, err) == (0, "")
        path = folder / "signing-key"
        key = load_pem_private_key(path.read_bytes(), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        assert public_bytes(out.strip()) == key.public_key().public_bytes_raw()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]
        with ClientFolder(folder):  # while the client is at work, too
            assert offbeat("client", "key", "--folder", str(folder)) == (0, out, "")

    def test_is_another_one_for_each_folder(self, offbeat: Command, tmp_path: Path) -> None:
        assert len({offbeat("client", "key", "--folder", str(tmp_path / name))[1] for name in "ab"}) == 2

    def test_of_a_wrong_file_is_one_line(self, offbeat: Command, tmp_path: Path) -> None:
        (tmp_path / "signing-key").write_text("no key")
        code, out, err = offbeat("client", "key", "--folder", str(tmp_path))
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "is not an Ed25519 key" in err


class TestCompare:
    @staticmethod
    def kept(folder: Path, *digests: str) -> str:
        folder.mkdir()
        models = TrainedModels(folder, bytes(32))
        for version, digest in enumerate(digests):
            models.keep(version, digest * 64)
        (path,) = folder.iterdir()
        return str(path)

    def test_counts_the_versions_that_both_clients_got(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b", "c"), self.kept(tmp_path / "b", "a", "b")
        assert offbeat("client", "compare-models", one, two) == (
            0,
            "2 versions are in both, with the same models\n",
            "",
        )
        three = self.kept(tmp_path / "c", "a")
        assert offbeat("client", "compare-models", one, three)[1] == "1 version is in both, with the same models\n"

    def test_says_in_one_line_that_models_differ(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b"), self.kept(tmp_path / "b", "a", "c")
        code, out, err = offbeat("client", "compare-models", one, two)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "the server gave different models as version 1: bbbb" in err
