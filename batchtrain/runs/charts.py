"""Curves in report.html: the charts of the page, with their scripts and styles in the file."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import NamedTuple

import msgspec

from batchtrain.records.metric import MAIN
from batchtrain.runs.curves import Curves

STATIC = files("batchtrain") / "dashboard" / "static"
MODULES = ("dom.js", "format.js", "chart.js")
"""The modules of a chart, in the order of their imports."""
_START = (
    f"order({msgspec.json.encode(MAIN).decode()});"
    'report(document.getElementById("charts"), uPlot, JSON.parse(document.getElementById("data").textContent));'
)


class Charts(NamedTuple):
    """The charts of a report as markup, and what the head of its page needs for them."""

    head: str = ""
    body: str = ""


def charts(curves: Curves) -> Charts:
    """The charts of curves. Their scripts may load nothing, and no other script of the page may run."""
    library = _read("uplot/uPlot.iife.min.js")
    lines = (line for name in MODULES for line in _read(f"js/{name}").splitlines())
    module = "\n".join([*(line for line in lines if not line.startswith("import ")), _START])
    data = msgspec.json.encode(curves).decode().replace("<", "\\u003c")
    digests = (hashlib.sha256(script.encode()).digest() for script in (library, module))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
    return Charts(
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<style>{_read('uplot/uPlot.min.css')}{_read('style.css')}</style>",
        '<div id="charts"></div><noscript><p>The curves need JavaScript.</p></noscript>'
        f'<script type="application/json" id="data">{data}</script>'
        f'<script>{library}</script><script type="module">{module}</script>',
    )


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
