"""Other people's programs against the emulator: each call of each, over http and https, as the docs' table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import environments
from tests.contract import clients
from tests.contract.clients import CLIENTS, Client

pytestmark = pytest.mark.process


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_calls_what_the_page_says_and_is_answered_so(client: Client, tmp_path: Path) -> None:
    try:
        over = {scheme: clients.called(client, scheme, tmp_path / scheme) for scheme in client.schemes}
    except environments.Missing as missing:
        pytest.skip(str(missing))
    on_page = clients.columns_of(clients.PAGE.read_text(encoding="utf-8"))[client.name]
    assert on_page == clients.cells(client, over), "run python -m tests.contract.clients"


def test_the_page_has_every_client_and_is_written_as_it_would_be() -> None:
    text = clients.PAGE.read_text(encoding="utf-8")
    columns = clients.columns_of(text)
    assert list(columns) == [client.name for client in CLIENTS]
    assert clients.page(columns) == text
