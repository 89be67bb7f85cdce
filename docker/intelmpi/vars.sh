# shellcheck shell=sh
# To be sourced, under the names that Intel's installers give it: where this image's Intel MPI is.
export I_MPI_ROOT=/opt/venv FI_PROVIDER_PATH=/opt/venv/lib
export PATH="/opt/venv/bin:$PATH" LD_LIBRARY_PATH="/opt/venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
