"""Bodies on their way to the disk, without a server around them."""

import asyncio

import pytest

from offbeat.service.refusal import Refusal
from offbeat.service.uploads import Uploads, clean_up


@pytest.fixture
def uploads(tmp_path):
    for name in ("updates", "partial"):
        (tmp_path / name).mkdir()
    made = Uploads(tmp_path, budget=100, patience_seconds=0.5)
    yield made
    made.close()


async def sent(*pieces, silent=False):
    for piece in pieces:
        yield piece
    if silent:
        await asyncio.sleep(60)


def refused(work):
    async def ask():
        with pytest.raises(Refusal) as caught:
            await work
        return caught.value.kind

    return asyncio.run(ask())


def test_a_body_of_which_nothing_more_comes_is_given_up_and_what_came_is_kept(uploads):
    assert refused(uploads.write(0, 0, 0, 10, sent(b"abc", silent=True))) == "too-slow"
    assert uploads.offset(0, 0) == 3
    assert refused(uploads.read(0, 10, sent(b"abc", silent=True))) == "too-slow"


def test_a_body_goes_on_where_it_is_and_moves_when_it_is_whole(uploads, tmp_path):
    assert asyncio.run(uploads.write(3, 1, 0, 6, sent(b"ab", b"c"))) == 3
    assert refused(uploads.write(3, 1, 2, 6, sent(b"def"))) == "wrong-offset"
    whole = asyncio.run(uploads.write(3, 1, 3, 6, sent(b"def")))
    assert whole == tmp_path / "updates" / "3-1-1"
    assert whole.read_bytes() == b"abcdef"
    assert uploads.offset(3, 1) == 0
    assert refused(uploads.write(3, 1, 0, 2, sent(b"abc"))) == "too-large"


def test_who_begins_again_takes_the_place_of_the_line_before(uploads):
    async def both():
        first = asyncio.create_task(uploads.write(0, 0, 0, 6, sent(b"ab", silent=True)))
        await asyncio.sleep(0.01)
        second = await uploads.write(0, 0, 0, 6, sent(b"cdefgh"))
        with pytest.raises(Refusal) as caught:
            await first
        return caught.value.kind, second.read_bytes()

    assert asyncio.run(both()) == ("wrong-offset", b"cdefgh")


def test_there_is_a_budget_for_all_and_a_number_for_each(uploads):
    async def many(sizes, clients):
        begun = [
            asyncio.create_task(uploads.read(client, size, sent(silent=True)))
            for size, client in zip(sizes, clients, strict=True)
        ]
        await asyncio.wait(begun)
        return [task.exception().kind for task in begun]

    assert asyncio.run(many([60, 60, 40], [0, 1, 2])) == ["too-slow", "busy", "too-slow"]
    assert asyncio.run(many([1] * 33, [5] * 33)) == ["too-slow"] * 32 + ["busy"]
    assert asyncio.run(uploads.read(5, 2, sent(b"ab"))) == b"ab"
    assert refused(uploads.read(5, 2, sent(b"abc"))) == "malformed-request"


def test_what_is_taken_back_leaves_no_trace(uploads):
    path, begin = uploads.append(b"first")
    assert (path.name, begin) == ("segment-1", 0)
    _, second = uploads.append(b"second")
    assert second % 8 == 0
    uploads.take_back(second)
    assert uploads.append(b"third")[1] == second


def test_after_a_restart_a_body_that_was_whole_need_not_come_again(tmp_path, uploads):
    asyncio.run(uploads.write(3, 1, 0, 3, sent(b"abc")))
    known = uploads.append(b"known")[0].name
    (tmp_path / "updates" / "notes").touch()
    clean_up(tmp_path, {known})
    assert sorted(path.name for path in (tmp_path / "updates").iterdir()) == ["notes", known]
    assert uploads.offset(3, 1) == 3
    clean_up(tmp_path, set())
    assert [path.name for path in (tmp_path / "updates").iterdir()] == ["notes"]
