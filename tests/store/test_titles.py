"""Titles of sessions, made from the first exchange."""

import time

from chatops.domain.ids import MessageId
from chatops.domain.messages import AssistantMessage, Message, UserMessage
from chatops.store.sessions import copy_title, title_from
from tests.support.cases import for_each


def user(text: str) -> Message:
    return UserMessage(id=MessageId("u"), text=text)


def answer(text: str) -> Message:
    return AssistantMessage(id=MessageId("a"), text=text)


@for_each(
    ("text", "title"),
    [
        ("read note.txt", "read note.txt"),
        ("Hi there, could you please fix the greeting in hello.py?", "Fix the greeting in hello.py"),
        ("Hello!\n\nWhy is the invoice late? It was due on Friday.", "Why is the invoice late?"),
        ("please look at /home/ana/project/src/shop/cart.py", "Look at cart.py"),
        ("explain @src/shop/cart.py and @README.md", "explain cart.py and README.md"),
        ("what does https://example.org/docs/a/b?c=d say", "what does example.org say"),
        ("# Plan\n\nmore", "Plan"),
        ("e.g. 3.11 or node.js. Which one?", "e.g. 3.11 or node.js"),
        ("```py\nx = 1\n```\nwhat is x", "what is x"),
        ("```py\nx = 1\n```", "x = 1"),
        ("list .", "list ."),
        ("list src/. and read README.md.", "list src/. and read README.md"),
        ("help me with the tests", "The tests"),
        ("highlight the errors", "highlight the errors"),
        ("ok", ""),
        ("hello", ""),
        ("", ""),
    ],
)
def test_a_title_says_what_it_is_about(text: str, title: str) -> None:
    assert title_from([user(text)]) == title


def test_a_long_sentence_is_cut_between_words() -> None:
    title = title_from([user("compare " + "several things " * 20)])
    assert title.startswith("compare several things")
    assert title.endswith("…")
    assert len(title) <= 60
    assert len(title_from([user("x" * 500)])) <= 60


def test_after_a_greeting_the_answer_or_the_next_message_gives_the_title() -> None:
    assert title_from([user("hi"), answer("Hello! How can I help you today?")]) == ""
    assert title_from([user("hi"), answer("The build is broken since Monday. I can fix it.")]) == (
        "The build is broken since Monday"
    )
    assert title_from([user("hi"), answer("How can I help?"), user("tag the release")]) == "tag the release"


HOSTILE = ["/a" * 20_000, "a/" * 20_000, "hi " * 20_000, "." * 50_000, "a.b-" * 10_000, "@" * 9_999]


@for_each("text", HOSTILE)
def test_hostile_text_costs_little(text: str) -> None:
    started = time.process_time()
    title_from([user(text)])
    assert time.process_time() - started < 2


@for_each(
    ("source", "is_copy", "title"),
    [
        ("first try", False, "first try · before: test it"),
        ("first try · before: ship it", True, "first try · before: test it"),
        ("before: ship it", True, "before: test it"),
        ("before: lunch", False, "before: lunch · before: test it"),
        ("Notes · before: the release", False, "Notes · before: the release · before: test it"),
        ("", False, "before: test it"),
    ],
)
def test_the_title_of_a_copy_begins_with_that_of_its_source(source: str, is_copy: bool, title: str) -> None:
    assert copy_title([user("test it")], source=source, is_copy=is_copy, said=[user("first try")]) == title


def test_a_title_that_the_user_gave_stays_whole_in_those_of_copies() -> None:
    long = "Move the shop to another provider, with all pictures"
    given, made = (
        copy_title([user("test it")], source=long, is_copy=False, said=[user(text)]) for text in ("start", long)
    )
    assert (given, made) == (f"{long} · before: test it", "Move the shop to another… · before: test it")
    # A copy of that copy is not shortened again.
    assert copy_title([user("test it")], source=made, is_copy=True, said=[user(long)]) == made
