"""No message of the corpus of mistakes changes unseen; `python -m tests.mistakes` shows the difference."""

from __future__ import annotations

from tests import mistakes


def test_the_corpus_has_at_least_300_mistakes() -> None:
    assert len(mistakes.stored()) + len(mistakes.written()) >= 300


def test_no_message_about_a_mistake_changes_unseen() -> None:
    now = mistakes.golden(mistakes.stored())
    changed = "".join(mistakes.difference(path, text) for path, text in now.items())
    assert not changed, f"{changed}\n`python -m tests.mistakes --write` stores these messages"
