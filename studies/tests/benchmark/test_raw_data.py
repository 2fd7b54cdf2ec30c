"""Files of raw data: written, merged, read, and refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offbeat_core.errors import OffbeatError

from offbeat_studies.benchmark.catalogue import read_entries
from offbeat_studies.benchmark.raw_data import SCHEMA, WorldData, published, read, write
from offbeat_studies.benchmark.world import read_world, world_names


def data(label, accuracy, seeds=(1, 2), **facts):
    rows = [("w", label, seed, 4.0 * step, 9.0 * step, 50 * step, step, 0, 0, step, accuracy, 1.0)
            for seed in seeds for step in range(3)]  # fmt: skip
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    return WorldData(table, {label: {"settings": {"server_lr": 0.5}, **facts}})


def test_what_was_written_is_read(tmp_path):
    write(tmp_path, "w", data("a", 0.5))
    found = read(tmp_path, "w")
    assert found.table.equals(data("a", 0.5).table)
    assert found.facts == {"a": {"settings": {"server_lr": 0.5}}}
    curves = found.curves["a"]
    assert [curve.seed for curve in curves] == [1, 2]
    assert curves[0].costs["client_seconds"].tolist() == [0.0, 9.0, 18.0]


def test_the_same_label_is_replaced_and_others_stay(tmp_path):
    for one in (data("a", 0.5), data("b", 0.6), data("a", 0.7, seeds=(3,))):
        write(tmp_path, "w", one)
    curves = read(tmp_path, "w").curves
    assert {label: [curve.seed for curve in own] for label, own in curves.items()} == {"a": [3], "b": [1, 2]}
    assert curves["a"][0].accuracy.tolist() == [0.7] * 3


def test_data_of_a_world_that_has_changed_since_are_left_out(tmp_path):
    write(tmp_path, "w", data("earlier", 0.5))
    for label, world in (("a", "old"), ("b", "new"), ("c", "new")):
        write(tmp_path, "w", data(label, 0.6, world=world))
    assert list(read(tmp_path, "w").curves) == ["c", "b", "earlier"]


@pytest.mark.parametrize("name", ["w.parquet", "w.json"])
def test_a_broken_file_is_one_line(name, tmp_path):
    write(tmp_path, "w", data("a", 0.5))
    (tmp_path / name).write_bytes(b"no")
    with pytest.raises(OffbeatError, match=r"w\.parquet and w\.json are not data of the benchmark: remove both$"):
        read(tmp_path, "w")


def test_a_file_that_lacks_a_column_is_refused(tmp_path):
    write(tmp_path, "w", data("a", 0.5))
    pq.write_table(data("a", 0.5).table.drop_columns("bytes"), tmp_path / "w.parquet")
    with pytest.raises(OffbeatError):
        read(tmp_path, "w")


@pytest.mark.parametrize("name", [name for name in world_names() if published(name)])
def test_published_data_are_of_the_present_algorithms(name):
    data, world = published(name), read_world(name)
    spaces = {entry.label: entry.texts for entry in read_entries(world, [], [])}
    curves = data.curves
    assert set(curves) == set(data.facts)
    for label, facts in data.facts.items():
        assert facts["space"] == spaces[label], f"{label} was tuned over another space: run it again"
        assert facts["settings"].keys() == spaces[label].keys()
        assert [curve.seed for curve in curves[label]] == list(range(1, world.seeds + 1))


def test_a_world_that_was_not_run_has_no_published_data():
    assert published("nowhere") is None
