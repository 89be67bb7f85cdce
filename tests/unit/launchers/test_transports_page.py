"""The page of transports says what launches tell each library."""

from __future__ import annotations

from tests import transports_page


def test_every_library_but_gloo_is_told_to_use_tcp_with_a_source() -> None:
    rows = [line.split(" | ") for line in transports_page.page().splitlines() if line.startswith("| ")]
    told = {row[0].strip("| "): row[2] for row in rows if len(row) == 5}
    assert {name for name, tcp in told.items() if "=" not in tcp} == {"library", "gloo"}
