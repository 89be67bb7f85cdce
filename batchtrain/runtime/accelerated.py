"""accelerated.py [OPTION]... -- COMMAND...: runs the command with the variables that `accelerate launch` sets.

Accelerate itself reads the options and the file of `--config_file`; ranks, addresses and devices are the launch's. A
variable that is set already keeps its value. Source: Accelerate, commands/launch.py and utils/launch.py; measured with
Accelerate 1.15.
"""

import os
import sys

OF_SETTINGS = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "FP8_", "TORCH_DISTRIBUTED_DEBUG")


def settings(options: "list[str]") -> "dict[str, str]":
    """The variables by which a program of Accelerate finds these options."""
    from accelerate.commands.launch import (  # type: ignore[import-not-found,unused-ignore] # on nodes only
        _validate_launch_command,
        launch_command_parser,
    )
    from accelerate.utils.launch import (  # type: ignore[import-not-found,unused-ignore] # on nodes only
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
    )

    of_launch = ["--num_processes", os.environ["WORLD_SIZE"], "--num_machines", "1"]  # one: it is to start nothing
    of_launch += ["--main_process_port", os.environ["MASTER_PORT"]]
    arguments = launch_command_parser().parse_args([*options, *of_launch, "script"])
    arguments, of_file, has_precision = _validate_launch_command(arguments)
    if arguments.use_deepspeed:
        fields = [*of_file.deepspeed_config] if of_file else []
        fields += ["mixed_precision"] if has_precision else []
        arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
        values = prepare_deepspeed_cmd_env(arguments)[1]
    else:
        values = prepare_multi_gpu_env(arguments)
    return {name: value for name, value in values.items() if name.startswith(OF_SETTINGS)}


def main(arguments: "list[str]") -> None:
    end = arguments.index("--")
    for name, value in settings(arguments[:end]).items():
        os.environ.setdefault(name, value)
    os.execvp(arguments[end + 1], arguments[end + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
