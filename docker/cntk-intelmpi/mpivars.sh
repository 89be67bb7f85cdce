# shellcheck shell=sh
# To be sourced, under the path that Intel's installers gave it: Intel MPI in CNTK's environment.
export I_MPI_ROOT=/cntk/venv FI_PROVIDER_PATH=/cntk/venv/lib
export PATH="/cntk/venv/bin:$PATH" LD_LIBRARY_PATH="/cntk/venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
