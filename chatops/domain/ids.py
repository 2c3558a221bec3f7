"""Distinct types for the strings that identify things, so that one is never passed for another."""

from typing import NewType

SessionId = NewType("SessionId", str)
"""A session, e.g. ``20261121-101512-k3f9``."""
TurnId = NewType("TurnId", str)
"""One user message up to its answer: ``<session>.<n>``."""
RoundId = NewType("RoundId", str)
"""One model call and the tool calls of its reply: ``<turn>.<request>``."""
CallId = NewType("CallId", str)
"""One tool call: ``<round>.<index>``. Made by chatops, because ids written by models repeat."""
MessageId = NewType("MessageId", str)
"""One stored message: ``<turn>.m<n>``."""


def round_id(turn_id: TurnId, request: int) -> RoundId:
    """Return the id of the `request`-th model call (from 1) of a turn."""
    return RoundId(f"{turn_id}.{request}")


def call_id(round_: RoundId, index: int) -> CallId:
    """Return the id of the `index`-th call (from 1) of a round."""
    return CallId(f"{round_}.{index}")


def session_of(call: str) -> SessionId:
    """Return the id of the session of a call."""
    return SessionId(call.partition(".")[0])


def round_of(call: str) -> RoundId:
    """Return the id of the round of a call."""
    return RoundId(call.rpartition(".")[0])


def child_session(call: CallId) -> SessionId:
    """Return the id of the session that works on a delegated call, the same after each restart."""
    return SessionId(call.replace(".", "-"))


def is_child(session: str) -> bool:
    """Return True for the id of a session that works on a delegated call."""
    return session.count("-") > 2  # Two in a session's own id, and three more for turn, round and call.


def parent_session(child: SessionId) -> SessionId:
    """Return the id of the session with the call that a child session works for."""
    return SessionId(child.rsplit("-", 3)[0])


def turn_of(message: MessageId) -> str:
    """Return the id of a message's turn; empty for a message that belongs to none."""
    return message.rpartition(".m")[0]


def thought_id(round_: RoundId) -> str:
    """Return the id of the model's text in a round, for the event tree."""
    return f"{round_}.thought"
