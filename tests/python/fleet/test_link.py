# SPDX-License-Identifier: MIT
"""Questions to a holder, which is a socket of the test, and their answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("ray")

from gpushm.errors import NotFound
from gpushm.ray import _link, _store


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """Of a holder that answers with the key, has none that is "late", and ends the connection at the key "end"."""
    asked: list[str] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("r") as lines:
            for line in lines:
                *number, verb, key = line.split()
                if key == "end":
                    return
                if key == "late":
                    asked.append(verb)
                    error = "TimeoutError" if len(asked) < 3 else "NotFound"
                    connection.sendall(f"{number[0]} no {error}: \n".encode())
                elif verb == "use":
                    connection.sendall(f"{number[0]} ok {key}\n".encode())

    def accept() -> None:
        with suppress(OSError):  # at the end of the test
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/holder")
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield f"{tmp_path}/holder"


def link_to(place: str) -> _link.Link:
    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(place)
        return made

    return _link.Link(connect)


def test_another_cluster_takes_no_answer_of_the_last_one(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = 0
    monkeypatch.setattr(_link, "_cluster", lambda: cluster)
    link = link_to(place)
    for cluster in range(150):
        keys = [f"{cluster}-{i}" for i in range(2)]
        assert [link.ask("use", key) for key in keys] == keys


def test_a_question_that_a_dead_holder_leaves_is_an_error_and_the_next_one_is_answered(place: str) -> None:
    link = link_to(place)
    for n in range(50):
        with pytest.raises(OSError, match="has ended"):
            link.ask("use", "end")
        assert link.ask("use", f"{n}") == f"{n}"


def test_a_question_that_is_interrupted_is_not_sent_later(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link, may_open, sent = link_to(place), threading.Event(), []
    opened, write = link._opened, link._write
    monkeypatch.setattr(link, "_opened", lambda: may_open.wait(60) and opened())
    monkeypatch.setattr(link, "_write", lambda to, words, question: (sent.append(words[1]), write(to, words, question)))
    first = link.asked("use", "first")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Future, "result", interrupt)
        link.ask("use", "interrupted")
    may_open.set()
    assert link.wait(first) == "first" and link.ask("use", "next") == "next"
    assert sent == ["first", "next"]


def test_a_reader_that_is_interrupted_is_done_when_its_answer_comes(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, may_send, sent = link_to(place), threading.Event(), []
    send = link._send

    def wait_and_send(words: tuple[str, ...], question: object) -> None:
        may_send.wait(60)
        sent.append(words)
        send(words, question)

    def interrupt(question: Future[str]) -> None:
        while not question.running():
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(link, "_send", wait_and_send)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(link, "wait", interrupt)
        _store.Store().read(link, "object", ("none", 0), "r", None)
    may_send.set()
    while ("done", "object") not in sent:
        link.ask("use", "other")
    assert sent.count(("use", "object")) == sent.count(("done", "object")) == 1


def test_a_holder_that_does_not_answer_is_an_error_and_the_next_question_is_answered(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_to(place)
    monkeypatch.setattr(_link, "PATIENCE", 1)
    with pytest.raises(TimeoutError, match="does not answer"):
        link.ask("keep", "silence")
    assert link.ask("use", "next") == "next"


def test_an_object_that_a_gpu_has_not_made_is_asked_for_until_it_has(place: str) -> None:
    with pytest.raises(NotFound):
        _store.Store().read(link_to(place), "late", None, "r", None)


def test_questions_of_many_threads_have_their_own_answers(place: str) -> None:
    link, wrong = link_to(place), []

    def ask(thread: int) -> None:
        for n in range(200):
            link.say("done", "other")
            if link.ask("use", f"{thread}-{n}") != f"{thread}-{n}":
                wrong.append(n)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
