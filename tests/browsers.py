"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.needs import program


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser; the test is skipped, with the reason, where there is none."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed (pip install -e '.[browser]')")
    from playwright.sync_api import sync_playwright  # in the extra `browser` only

    path = program("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()
