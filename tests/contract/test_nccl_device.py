"""device.py of the recipe Fabric-Checks-NCCL calls CUDA and NCCL as their headers declare: against libraries in C.

They are no GPU. The compiler reads the same prototypes as NCCL's and CUDA's headers have, so a wrong argument shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.process
SOURCE = Path(__file__).resolve().parents[2] / "recipes" / "Fabric-Checks-NCCL" / "src"
CUDA = r"""
#include <stdlib.h>
#include <string.h>
int cudaSetDevice(int n) { return n == 3 ? 0 : 101; }
int cudaMemGetInfo(size_t *free, size_t *total) { *free = 1ul << 34; *total = 1ul << 35; return 0; }
int cudaMalloc(void **at, size_t size) { *at = malloc(size); return 0; }
int cudaMallocHost(void **at, size_t size) { *at = calloc(1, size); return 0; }
int cudaFree(void *at) { free(at); return 0; }
int cudaFreeHost(void *at) { free(at); return 0; }
int cudaMemset(void *at, int value, size_t size) { memset(at, value, size); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int cudaDeviceSynchronize(void) { return 0; }
const char *cudaGetErrorString(int code) { return "invalid device ordinal"; }
"""
NCCL = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { char internal[128]; } ncclUniqueId;
struct comm { int ranks; };
int ncclGetUniqueId(ncclUniqueId *id) { memset(id, 7, sizeof *id); id->internal[127] = 9; return 0; }
int ncclCommInitRank(struct comm **comm, int ranks, ncclUniqueId id, int rank) {
  if (id.internal[0] != 7 || id.internal[127] != 9 || rank != 1) return 4;
  *comm = malloc(sizeof **comm); (*comm)->ranks = ranks; return 0;
}
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, struct comm *comm, void *stream) {
  if (type != 7 || op != 0 || stream) return 4;
  for (size_t i = 0; i < count; i++) ((float *)recv)[i] = ((const float *)send)[i] * comm->ranks;
  return 0;
}
int ncclCommDestroy(struct comm *comm) { free(comm); return 0; }
const char *ncclGetErrorString(int code) { return "invalid argument"; }
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    needs.program("cc")
    for name, text in (("libcudart.so.13", CUDA), ("libnccl.so.2", NCCL)):
        (tmp_path / f"{name}.c").write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / name, tmp_path / f"{name}.c"], check=True)
    return tmp_path


def run(libraries: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from device import Device\n{program}"],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(libraries),
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_sum_goes_through_nccl_and_comes_back(libraries: Path) -> None:
    done = run(
        libraries,
        "gpu = Device(3)\ngroup = gpu.join(gpu.new_id(), 4, 1)\nprint(gpu.sum_of(group, 2.5), gpu.free_bytes())\n"
        "gpu.allreduce(group, 1 << 20)\nassert gpu.copy_rate(1 << 20) > 0\ngpu.leave(group)",
    )
    assert (done.stdout, done.stderr) == (f"10.0 {1 << 34}\n", "")


def test_an_error_of_cuda_ends_the_program_with_its_text(libraries: Path) -> None:
    done = run(libraries, "Device(9)")
    assert (done.returncode, done.stderr) == (1, "CUDA: invalid device ordinal\n")


def test_an_error_of_nccl_ends_the_program_with_its_text(libraries: Path) -> None:
    done = run(libraries, "gpu = Device(3)\ngpu.join(gpu.new_id(), 4, 2)")
    assert (done.returncode, done.stderr) == (1, "NCCL: invalid argument\n")
