"""Every relative link of a tracked Markdown page leads to a tracked file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def tracked() -> set[str]:
    git = needs.program("git")
    done = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the repository is not a git checkout")
    files = set(done.stdout.split("\0"))
    return files | {str(parent) for file in files for parent in Path(file).parents}


def test_every_relative_link_leads_to_a_tracked_file() -> None:
    known = tracked()
    broken = []
    for page in sorted(name for name in known if name.endswith(".md")):
        for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            place = (ROOT / page).parent / target
            if str(place.resolve().relative_to(ROOT)) not in known:
                broken.append(f"{page}: {target}")
    assert broken == []
