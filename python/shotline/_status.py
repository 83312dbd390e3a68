"""Names of completions."""

from enum import Enum


class Status(Enum):
    """Status of a completed request (IBTA volume 1, clause 11.6.2)."""

    SUCCESS = "success"
    """The operation succeeded."""
    LOCAL_LENGTH = "local_length"
    """A received message was longer than the receive, or a posted one longer than the protocol allows."""
    LOCAL_OPERATION = "local_operation"
    """The local queue pair could not execute the request."""
    LOCAL_PROTECTION = "local_protection"
    """A local key, range or access right is invalid."""
    FLUSHED = "flushed"
    """The queue pair was in its error state."""
    BAD_RESPONSE = "bad_response"
    """The target sent an invalid response."""
    REMOTE_INVALID = "remote_invalid"
    """The target rejected the request as invalid."""
    REMOTE_ACCESS = "remote_access"
    """The target rejected key, range or rights."""
    REMOTE_OPERATION = "remote_operation"
    """The target could not execute the request."""
    RETRY_EXCEEDED = "retry_exceeded"
    """No acknowledgement after all retransmissions."""
    RNR_RETRY_EXCEEDED = "rnr_retry_exceeded"
    """The target had no receive posted, after all retries."""


class Operation(Enum):
    """What a completed request did."""

    SEND = "send"
    """A SEND."""
    WRITE = "write"
    """A WRITE."""
    READ = "read"
    """A READ."""
    COMPARE_SWAP = "compare_swap"
    """A compare and swap."""
    FETCH_ADD = "fetch_add"
    """A fetch and add."""
    RECV = "recv"
    """A receive filled by a SEND."""
    RECV_WRITE_IMM = "recv_write_imm"
    """A receive consumed by a WRITE with immediate data; its memory was not written."""
