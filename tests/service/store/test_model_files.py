import pytest
import torch
from offbeat_core.files import delete_files
from safetensors.torch import load_file

from offbeat.service.store import model_files
from offbeat.service.store.model_files import DOWN, ModelFiles
from tests.service.conftest import LAYOUT, LENGTH

VECTOR = torch.arange(float(LENGTH))


@pytest.fixture
def models(tmp_path):
    return ModelFiles(tmp_path, LAYOUT)


@pytest.mark.parametrize("down", [None, -VECTOR])
def test_a_version_is_pending_then_published(down, models, tmp_path):
    models.write(3, VECTOR, down)
    assert models.versions() == set()
    assert torch.equal(models.read(3), VECTOR)
    models.publish(3)
    models.publish(3)
    assert models.versions() == {3}
    assert torch.equal(models.read(3), VECTOR)
    tensors = load_file(models.path(3))
    assert torch.equal(tensors["weight"], VECTOR[:4].view(2, 2))
    assert torch.equal(tensors["bias"], VECTOR[4:])
    assert (DOWN in tensors) is (down is not None)
    assert not list(tmp_path.glob(".*"))


def test_a_published_version_is_not_written_again(models):
    models.write(3, VECTOR)
    models.publish(3)
    before = models.path(3).stat()
    models.write(3, VECTOR)
    models.publish(3)
    assert models.path(3).stat().st_ino == before.st_ino


@pytest.mark.parametrize("is_published", [True, False])
def test_a_link_outlives_its_version(is_published, models, tmp_path):
    models.write(3, VECTOR)
    if is_published:
        models.publish(3)
    models.link(3, tmp_path / "link")
    delete_files(models.forget([]))
    models.discard_pending()
    assert torch.equal(load_file(tmp_path / "link")["bias"], VECTOR[4:])
    assert not models.path(3).exists()
    assert not models.pending_path(3).exists()


def test_other_versions_are_deleted_and_other_files_stay(models, tmp_path):
    (tmp_path / "notes.safetensors").touch()
    for version in range(3):
        models.write(version, VECTOR)
        models.publish(version)
    delete_files(models.forget([1, 7]))
    assert models.versions() == {1}
    assert (tmp_path / "notes.safetensors").exists()


def test_a_failed_write_leaves_nothing(models, tmp_path, monkeypatch):
    def fail(file, *_):
        file.write(b"half")
        raise OSError("no space")

    monkeypatch.setattr(model_files, "write_tensors", fail)
    with pytest.raises(OSError, match="no space"):
        models.write(3, VECTOR)
    assert list(tmp_path.iterdir()) == []
