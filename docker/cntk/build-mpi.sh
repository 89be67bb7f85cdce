#!/bin/sh
# The two libraries of Open MPI 1.10 that CNTK's wheel wants by name, into /opt/cntk-mpi; they go beside Open MPI's.
#
# Open MPI 5 has the C functions that CNTK calls under the same names. Of the C++ library it calls nothing, so one with
# the five symbols that the loader looks for will do.
set -eu
command -v cc >/dev/null || add-packages gcc libc6-dev
mkdir -p /opt/cntk-mpi
ln -sf libmpi.so.40 /opt/cntk-mpi/libmpi.so.12
cc -shared -fPIC /tmp/mpi-cxx.c -o /opt/cntk-mpi/libmpi_cxx.so.1
