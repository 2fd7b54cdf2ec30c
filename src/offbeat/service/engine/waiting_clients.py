"""Who waits for work."""

import asyncio

from offbeat.coordinator.calls import Assignment

Answer = asyncio.Future[Assignment | None]
"""What a client that waits will be told: its work, or that there is none."""


class WaitingClients:
    """At most one request a client; all methods are for the event loop."""

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._answers)

    def begin(self, client: int) -> Answer:
        """Let a client wait; its request before this one, if there is one, is told that there is no work."""
        before = self._answers.get(client)
        if before is not None and not before.done():
            before.set_result(None)  # its line has broken, or it would not have asked again
        answer: Answer = asyncio.get_running_loop().create_future()
        self._answers[client] = answer
        return answer

    def end(self, client: int, answer: Answer) -> bool:
        """Let a client wait no longer; return whether it goes without work, and without a later request that waits."""
        if self._answers.get(client) is not answer:
            return False
        del self._answers[client]
        return not answer.done() or answer.result() is None

    def tell(self, assignment: Assignment) -> None:
        """Give a client its work; if it does not wait any more it asks again, and gets the same."""
        answer = self._answers.get(assignment.client)
        if answer is not None and not answer.done():
            answer.set_result(assignment)

    def let_go(self) -> None:
        """Tell all that there is no work."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
