"""The runner that hands the options of `accelerate launch` to Accelerate, with a stand-in for Accelerate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import batchtrain.runtime

RUNNER = Path(batchtrain.runtime.__file__).with_name("accelerated.py")
LAUNCH = """
import argparse
def launch_command_parser():
    parser = argparse.ArgumentParser()
    for name in ("--num_processes", "--num_machines", "--main_process_port", "--mixed_precision"):
        parser.add_argument(name)
    parser.add_argument("--use_fsdp", action="store_true")
    parser.add_argument("script")
    return parser
def _validate_launch_command(arguments):
    arguments.use_deepspeed = False
    return arguments, None, False
"""
UTILS = """
def prepare_deepspeed_cmd_env(arguments): raise AssertionError
def prepare_multi_gpu_env(arguments):
    return {"ACCELERATE_USE_FSDP": str(arguments.use_fsdp), "FSDP_N": arguments.num_processes, "MASTER_PORT": "1",
            "ACCELERATE_MIXED_PRECISION": str(arguments.mixed_precision)}
"""


def test_accelerates_own_variables_reach_the_command_and_nothing_else_changes(tmp_path: Path) -> None:
    for name, text in (("commands/launch.py", LAUNCH), ("utils/launch.py", UTILS)):
        (tmp_path / "accelerate" / name).parent.mkdir(parents=True)
        (tmp_path / "accelerate" / name).write_text(text)
    environment = {"PYTHONPATH": str(tmp_path), "WORLD_SIZE": "4", "MASTER_PORT": "29501", "PATH": "/usr/bin:/bin"}
    command = ["sh", "-c", 'echo "$ACCELERATE_USE_FSDP $FSDP_N $MASTER_PORT $ACCELERATE_MIXED_PRECISION"']
    line = [sys.executable, str(RUNNER), "--use_fsdp", "--mixed_precision", "bf16", "--", *command]
    assert subprocess.check_output(line, env=environment, text=True) == "True 4 29501 bf16\n"
    environment["ACCELERATE_MIXED_PRECISION"] = "fp16"
    assert subprocess.check_output(line, env=environment, text=True) == "True 4 29501 fp16\n"
