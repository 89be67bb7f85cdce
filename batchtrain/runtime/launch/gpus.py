"""The GPUs of this machine."""

from .kernel import names_in, text_of
from .spec import LaunchError


def gpu_homes() -> "dict[str, int]":
    """The NUMA node of each NVIDIA GPU by its number, in the order of the bus addresses."""
    return {
        str(index): int(text_of(f"/sys/bus/pci/devices/{address.lower()}/numa_node") or -1)
        for index, address in enumerate(names_in("/proc/driver/nvidia/gpus"))
    }


def choose_gpus(gpus: "list[str]", wanted: "str | None") -> "list[str]":
    """The GPUs that CUDA_VISIBLE_DEVICES selects. Raises LaunchError for a number that no GPU has."""
    if wanted is None or not gpus:
        return gpus
    chosen = [word.strip() for word in wanted.split(",") if word.strip()]
    for word in chosen:
        if word.isdigit() and int(word) >= len(gpus):
            raise LaunchError(f"CUDA_VISIBLE_DEVICES={wanted} names GPU {word}, and there are {len(gpus)}")
    return chosen
