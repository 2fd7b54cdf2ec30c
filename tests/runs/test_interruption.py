import multiprocessing
import os
import signal
import time

import pytest

from offbeat.runs.interruption import InterruptedRunError, Interruption

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_is_kept_until_it_is_asked_for(number):
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), number)
        with pytest.raises(InterruptedRunError, match=f"stopped by {signal.Signals(number).name}") as caught:
            interruption.check()
        assert caught.value.signal == number


@pytest.mark.parametrize("number", BOTH)
def test_the_second_signal_has_its_usual_effect(number):
    seen = []
    before = {each: signal.signal(each, lambda number, _: seen.append(number)) for each in BOTH}
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), number)
            assert seen == []
            for each in BOTH:
                os.kill(os.getpid(), each)
            assert seen == [*BOTH]
            assert interruption.signal == number
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_the_handlers_are_put_back():
    before = [signal.getsignal(number) for number in BOTH]
    with Interruption():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before
    with Interruption():
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in BOTH] == before


def test_a_forked_process_ends_at_sigterm():
    with Interruption():
        context = multiprocessing.get_context("fork")
        has_begun = context.Event()
        process = context.Process(target=lambda: (has_begun.set(), time.sleep(60)))
        process.start()
        assert has_begun.wait(20)  # before that, the signal may find the parent's handler
        process.terminate()
        process.join(20)
        assert process.exitcode == -signal.SIGTERM
