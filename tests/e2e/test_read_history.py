"""A version that changes its contents, or that no log makes, is seen."""

import hashlib

import pytest
import torch
from safetensors.torch import save

from tests.e2e.http_message import Answer
from tests.e2e.read_history import ReadHistory
from tests.e2e.undisturbed import Undisturbed

ONES = torch.ones(4)


def download(vector, begin=None, etag=None):
    body = save({"weight": vector})
    etag = etag or f'"{hashlib.sha256(body).hexdigest()}"'
    head = f"HTTP/1.1 {200 if begin is None else 206} X\r\nETag: {etag}\r\n"
    if begin is not None:
        head += f"Content-Range: bytes {begin}-{len(body) - 1}/{len(body)}\r\n"
        body = body[begin:]
    return Answer(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.fixture
def history():
    return ReadHistory()


def test_a_version_with_other_bytes_than_before_is_a_problem(history):
    for _ in range(2):
        history.add(3, download(ONES))
    for number in range(4, 20):
        history.add(number, download(number * ONES))
    assert history.problems == []
    history.add(3, download(2 * ONES))
    history.add(19, download(2 * ONES))
    history.add(19, download(19 * ONES, etag='"run-19"'))
    assert history.problems == [
        "download: version 3 has other parameters than before",
        "download: version 19 has other parameters than before",
        "download: version 19 has other bytes than before",
        "download: the ETag of version 19 is not its digest",
    ]


@pytest.mark.parametrize("whole_first", [True, False])
def test_a_part_is_compared_with_the_whole(whole_first, history):
    parts = [download(ONES, begin=30), download(2 * ONES, begin=40)]
    for answer in [download(ONES), *parts] if whole_first else [*parts, download(ONES)]:
        history.add(3, answer)
    assert history.parts == 2
    assert history.problems == ["download: version 3 has other bytes than before from 40 on"]


def test_a_version_that_the_log_does_not_make_is_a_problem(history):
    history.add(3, download(ONES))
    undisturbed = Undisturbed.__new__(Undisturbed)
    undisturbed.model_digests = {3: hashlib.sha256(ONES.numpy().tobytes()).hexdigest()}
    undisturbed.check_reads(history.digests)
    undisturbed.model_digests = {3: hashlib.sha256((0 * ONES).numpy().tobytes()).hexdigest()}
    with pytest.raises(AssertionError, match="version 3"):
        undisturbed.check_reads(history.digests)
