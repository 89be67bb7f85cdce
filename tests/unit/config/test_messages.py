"""No message of the corpus of mistakes changes unseen; `python -m tests.mistakes` shows the difference."""

from __future__ import annotations

from batchtrain.config import schema
from tests import mistakes


def test_the_corpus_has_at_least_300_mistakes() -> None:
    assert len(mistakes.stored()) + len(mistakes.written()) >= 300


def test_no_message_about_a_mistake_changes_unseen() -> None:
    now = mistakes.golden(mistakes.stored())
    changed = "".join(mistakes.difference(path, text) for path, text in now.items())
    assert not changed, f"{changed}\n`python -m tests.mistakes --write` stores these messages"


def test_a_word_of_another_system_means_a_property() -> None:
    names = frozenset(name for block in schema.definitions().values() for name in schema.fields_of(block))
    assert [name for meanings in schema.SYNONYMS.values() for name in meanings if name not in names] == []
