"""A proxy of the environment is not used for the emulator, whatever reaches it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import azurite
from tests.dashboards import dashboard
from tests.proxies import NAMES, SETTINGS, WORD, Proxy, proxy

from .conftest import Shell, pool_file

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONFIG = """global_resources:
  files:
    - source: {path: data}
      destination: {storage_account_settings: link, data_transfer: {remote_path: box/in}}
"""
POOL = pool_file("behind")
JOBS = """job_specifications:
- id: reads
  tasks:
  - input_data: {azure_storage: [{storage_account_settings: link, remote_path: box/in}]}
    output_data: {azure_storage: [{storage_account_settings: link, remote_path: box/out, local_path: out}]}
    command: mkdir out; tr a-z A-Z <in/word | tee out/word
"""


@pytest.fixture
def counting(batchtrain: Shell) -> Iterator[Proxy]:
    for name in NAMES:
        batchtrain.environment.pop(name, None)
    with proxy() as running:
        yield running


def test_a_run_with_data_uses_no_proxy_and_shows_no_login(batchtrain: Shell, counting: Proxy) -> None:
    azurite.require()
    batchtrain.environment |= counting.environment(SETTINGS[-1])
    (batchtrain.cwd / "data").mkdir()
    (batchtrain.cwd / "data" / "word").write_text("hello\n", encoding="utf-8")
    for name, text in (("config", CONFIG), ("pool", POOL), ("jobs", JOBS)):
        (batchtrain.cwd / f"{name}.yaml").write_text(text, encoding="utf-8")
    said = [batchtrain("data", "ingress", "--local"), batchtrain("run", "--local")]
    said += [batchtrain("data", "get", "link/box/out/word", "back", "--local"), batchtrain("emulator", "env")]
    with dashboard(batchtrain.environment, "--local", runs=batchtrain.cwd) as page:
        assert page.get("/pools") == []
    assert (said[1].stdout, (batchtrain.cwd / "back").read_text(encoding="utf-8")) == ("HELLO\n", "HELLO\n")
    assert (counting.used(), [done for done in said if WORD in done.stdout + done.stderr]) == (False, [])
    assert [path for path in batchtrain.cwd.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()] == []
