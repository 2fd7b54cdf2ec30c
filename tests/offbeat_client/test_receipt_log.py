import pytest
from offbeat_client.http.upload import Delivery
from offbeat_client.receipt_log import ReceiptLog
from offbeat_core.messages import CheckedIn, EvaluationMessage


def checked_in(*, finished=False, evaluation=None):
    return CheckedIn(visit=None, retry_after_seconds=None, finished=finished, evaluation=evaluation)


def test_each_receipt_is_one_line_with_what_comes_next(caplog: pytest.LogCaptureFixture) -> None:
    progress = ReceiptLog()
    with caplog.at_level("INFO", "offbeat_client"):
        progress.note_receipt(0, Delivery(True, 3))
        progress.note_receipt(1, Delivery(False, 12, following=checked_in()))
        progress.note_receipt(2, Delivery(True, following=checked_in(finished=True)))
        asked = EvaluationMessage(version=9, model_sha256="c8" * 32, length=6)
        progress.note_receipt(3, Delivery(True, 0, following=checked_in(evaluation=asked)))
    assert caplog.messages == [
        "visit 0: counted, staleness 3; 1 of 1 updates counted; next: check in",
        "visit 1: unused, staleness 12; 1 of 2 updates counted; next: wait for work",
        "visit 2: counted; 2 of 3 updates counted; next: nothing, the run is over",
        "visit 3: counted, staleness 0; 3 of 4 updates counted; next: evaluate version 9",
    ]


def test_no_work_is_one_line_until_there_is_some(caplog: pytest.LogCaptureFixture) -> None:
    progress = ReceiptLog()
    with caplog.at_level("INFO", "offbeat_client"):
        for _ in range(3):
            progress.note_idle("no work now")
        progress.note_receipt(0, Delivery(True, 0))
        progress.note_idle("no work now")
        progress.note_idle("the run is over")
    starts = [message.split(";")[0] for message in caplog.messages]
    assert starts == ["no work now", "visit 0: counted, staleness 0", "no work now", "the run is over"]
