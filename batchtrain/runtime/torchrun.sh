#!/bin/sh
# torchrun.sh [ARGUMENT]...: runs torchrun.py with the Python of torchrun, for a command that names no Python.
#
# It is that of the first line of the program torchrun, or the first one on PATH that has PyTorch. Without one, torchrun
# itself runs, and can print a traceback after a successful training (see torchrun.py).

own=$(sed -n '1s/^#! *\([^ ]*python[^ ]*\)$/\1/p' "$(command -v torchrun)" 2>/dev/null)
for python in ${own:+"$own"} python3 python; do
  if "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' >/dev/null 2>&1; then
    exec "$python" "${0%.sh}.py" "$@"
  fi
done
exec torchrun "$@"
