"""Exceptions of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._native import Completion


class VerbsError(Exception):
    """A call of an endpoint, a queue or a target has failed: the base class of all that endpoints raise.

    Invalid arguments raise ValueError, TypeError or IndexError instead, and too little memory MemoryError.
    """


class ClosedError(VerbsError):
    """The object, or the endpoint that it belongs to, is closed; also in threads that wait while another one closes it."""


class ForkedError(VerbsError):
    """The process is a child of the one that opened the endpoint: its sockets and queues are the parent's."""


class ConnectError(VerbsError, ConnectionError):
    """There is no connection to the target: it cannot be reached, refuses the token, or has another transport."""


class DisconnectedError(VerbsError, ConnectionError):
    """The target has ended or has closed the connection, and all completions have been returned."""


class PostError(VerbsError):
    """Not all requests of a call were posted."""

    def __init__(self, text: str, posted: int = 0) -> None:
        super().__init__(text)
        self.posted = posted
        """Number of requests that were posted: those before the one that was refused."""


class QueueFullError(PostError):
    """The queue of the queue pair is full: take completions, then post the remaining requests."""


class CompletionError(VerbsError):
    """A request has failed: its completion has another status than SUCCESS."""

    def __init__(self, text: str, completion: Completion | None = None) -> None:
        super().__init__(text)
        self.completion = completion
        """The completion; None for a transfer of `Target.read` or `Target.write`."""


class RemoteAccessError(CompletionError):
    """The target refused key, range or rights (REMOTE_ACCESS)."""


class RetryExceededError(CompletionError):
    """The target did not answer (RETRY_EXCEEDED).

    It has stopped, or it dropped the request because of its key, range or rights: only a target with `--strict-ib`
    (`serve(strict_ib=True)`) answers those, with REMOTE_ACCESS.
    """


class FlushedError(CompletionError):
    """The queue pair was in its error state (FLUSHED): an earlier request failed, or the target has ended."""
