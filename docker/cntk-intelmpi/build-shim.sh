#!/bin/sh
# Let CNTK's wheel run on Intel MPI: build-shim.sh MPI-SHIM.C SITE-PACKAGES.
#
# The shim gets a name of its own, for Intel MPI's library has the name that CNTK looks for (libmpi.so.12).
set -eu
source=$1 packages=$2
set -- "$packages"/_cntk_py.*.so "$packages"/cntk/libs/libCntk.Core-2.7.so "$packages"/cntk/libs/libCntk.Math-2.7.so
for library; do
  patchelf --replace-needed libmpi.so.12 libcntk-mpi.so --replace-needed libmpi_cxx.so.1 libcntk-mpi.so "$library"
done
work=$(mktemp -d)
cc -O2 -fPIC -c "$source" -o "$work/shim.o"
nm --defined-only "$work/shim.o" | awk '{print $3}' | sort >"$work/made"
nm -D --undefined-only "$@" | awk '$2 ~ /^(MPI_|ompi_|_ZN3MPI)/ {print $2}' | sort -u >"$work/wanted"
{
  echo 'void cntk_shim_missing(const char *);'
  comm -23 "$work/wanted" "$work/made" | awk '{print "void " $1 "(void) { cntk_shim_missing(\"" $1 "\"); }"}'
} >"$work/stubs.c"
cc -shared -fPIC -O2 "$work/stubs.c" "$work/shim.o" -ldl -o "$packages/cntk/libs/libcntk-mpi.so"
rm -r "$work"
