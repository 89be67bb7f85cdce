"""One GPU by CUDA's runtime and NCCL, which the image has: no package of Python is needed."""

from __future__ import annotations

import ctypes
import time
from ctypes import byref, c_float, c_int, c_size_t, c_void_p

FLOAT, SUM, TO_DEVICE, TO_HOST = 7, 0, 1, 2
"""ncclFloat32, ncclSum, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which all ranks of a communicator share. NCCL takes it by value."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


class Device:
    """The GPU with a number on this node, and a buffer that NCCL sums."""

    def __init__(self, number: int) -> None:
        self._cuda, self._nccl = library("libcudart.so", "13", "12", "11.0"), library("libnccl.so", "2")
        self._nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
        self._nccl.ncclAllReduce.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
        self._nccl.ncclCommDestroy.argtypes = [c_void_p]
        self._nccl.ncclGetErrorString.restype = self._cuda.cudaGetErrorString.restype = ctypes.c_char_p
        self._cuda.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
        self._cuda.cudaMalloc.argtypes = self._cuda.cudaMallocHost.argtypes = [c_void_p, c_size_t]
        self._cuda.cudaFree.argtypes = self._cuda.cudaFreeHost.argtypes = [c_void_p]
        self._cuda.cudaMemset.argtypes = [c_void_p, c_int, c_size_t]
        self._buffer, self._size = c_void_p(), 0
        self._run(self._cuda.cudaSetDevice(number))

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self._run(self._cuda.cudaMemGetInfo(byref(free), byref(total)))
        return free.value

    def copy_rate(self, size: int) -> float:
        """GB/s from memory of the host that stays where it is."""
        self._reserve(size)
        host = c_void_p()
        self._run(self._cuda.cudaMallocHost(byref(host), size))
        began = time.perf_counter()
        self._run(self._cuda.cudaMemcpy(self._buffer, host, size, TO_DEVICE))
        self._run(self._cuda.cudaDeviceSynchronize())
        seconds = time.perf_counter() - began
        self._run(self._cuda.cudaFreeHost(host))
        return size / seconds / 1e9

    def new_id(self) -> bytes:
        unique = UniqueId()
        self._told(self._nccl.ncclGetUniqueId(byref(unique)))
        return bytes(unique)

    def join(self, unique: bytes, ranks: int, rank: int) -> c_void_p:
        """A communicator of NCCL; all its ranks call this."""
        group = c_void_p()
        self._told(self._nccl.ncclCommInitRank(byref(group), ranks, UniqueId.from_buffer_copy(unique), rank))
        return group

    def leave(self, group: c_void_p) -> None:
        self._told(self._nccl.ncclCommDestroy(group))

    def sum_of(self, group: c_void_p, value: float) -> float:
        """The sum of one value of each rank."""
        number = c_float(value)
        self._reserve(ctypes.sizeof(number))
        self._run(self._cuda.cudaMemcpy(self._buffer, byref(number), ctypes.sizeof(number), TO_DEVICE))
        self.allreduce(group, ctypes.sizeof(number))
        self._run(self._cuda.cudaMemcpy(byref(number), self._buffer, ctypes.sizeof(number), TO_HOST))
        return number.value

    def allreduce(self, group: c_void_p, size: int) -> None:
        """Sum so many bytes over the communicator, in place, and wait for it."""
        self._reserve(size)
        self._told(self._nccl.ncclAllReduce(self._buffer, self._buffer, size // 4, FLOAT, SUM, group, None))
        self._run(self._cuda.cudaDeviceSynchronize())

    def _reserve(self, size: int) -> None:
        if size <= self._size:
            return
        self._run(self._cuda.cudaFree(self._buffer))
        self._buffer = c_void_p()
        self._run(self._cuda.cudaMalloc(byref(self._buffer), size))
        self._run(self._cuda.cudaMemset(self._buffer, 0, size))
        self._size = size

    def _run(self, code: int) -> None:
        if code:
            raise SystemExit(f"CUDA: {self._cuda.cudaGetErrorString(code).decode()}")

    def _told(self, code: int) -> None:
        if code:
            raise SystemExit(f"NCCL: {self._nccl.ncclGetErrorString(code).decode()}")


def library(name: str, *versions: str) -> ctypes.CDLL:
    """A library of the image, without a version or with one of these."""
    reasons = []
    for file in (*(f"{name}.{version}" for version in versions), name):
        try:
            return ctypes.CDLL(file)
        except OSError as error:
            reasons.append(str(error))
    raise SystemExit(f"{name} is not in this image: {'; '.join(reasons)}")
