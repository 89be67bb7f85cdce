"""`docs/reference/launcher-options.md`, made of the table of launchers: `python -m tests.generated_files`."""

from __future__ import annotations

from batchtrain.frameworks.launcher_options import LAUNCHERS

HEAD = """\
# Options of other launchers

A block of `multi_instance` takes the place of `torchrun`, `accelerate launch`, `deepspeed`, `horovodrun`,
`mpirun` and `srun`. This table gives the replacement of each option; `config validate` says the same about such a
command. Options of `mpirun` may begin with one dash or with two.
`python -m tests.generated_files` generates this page; a test fails if it is stale.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for name, launcher in LAUNCHERS.items():
        parts.append(f"## {name}\n\n| option | replacement |\n|---|---|")
        rows = [(", ".join(f"`{each}`" for each in option.names), option.becomes) for option in launcher.options]
        block = next(iter(launcher.blocks), "")
        for names, becomes in (*rows, ("any other", launcher.others)):
            parts.append(f"| {names} | {becomes.format(value='N', block=block)} |")
        parts.append("")
    return "\n".join(parts)
