from offbeat.service.store.database import numbers_of


def test_only_files_named_by_a_number_count(tmp_path):
    for name in ("0.safetensors", "12.safetensors", "notes.safetensors", ".3.pending", "4.txt", "-1.safetensors"):
        (tmp_path / name).touch()
    assert sorted(numbers_of(tmp_path)) == [0, 12]


def test_a_missing_folder_holds_nothing(tmp_path):
    assert numbers_of(tmp_path / "missing") == []
