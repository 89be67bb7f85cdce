#!/bin/bash
# A wheel of Horovod for the framework that this image has, into /opt/horovod.
set -euo pipefail
version=0.28.1
add-packages build-essential cmake python3-dev
add-wheels --requirement /tmp/requirements.txt wheel==0.45.1

has() { /opt/venv/bin/python -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))"; }
found=
for pair in torch:PYTORCH tensorflow:TENSORFLOW mxnet:MXNET; do
  if has "${pair%%:*}"; then
    export "HOROVOD_WITH_${pair#*:}=1" found="$found ${pair%%:*}"
  else
    export "HOROVOD_WITHOUT_${pair#*:}=1"
  fi
done
[ -n "$found" ] || { echo "build.sh: there is no PyTorch, TensorFlow or MXNet in this image" >&2 && exit 1; }

export HOROVOD_WITH_GLOO=1
if command -v mpicxx >/dev/null; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
if [ -x /usr/local/cuda/bin/nvcc ]; then export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_CUDA_HOME=/usr/local/cuda; fi

# The MPI is found whatever LD_LIBRARY_PATH says.
export LDFLAGS=-Wl,-rpath,/opt/venv/lib

cd /tmp
/opt/venv/bin/pip download --no-cache-dir --no-deps --no-build-isolation --no-binary :all: "horovod==$version"
tar -xzf "horovod-$version.tar.gz"
# The headers of today's frameworks are C++17; the source asks for 14.
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' "horovod-$version/CMakeLists.txt" \
  "horovod-$version"/horovod/{torch,tensorflow}/CMakeLists.txt
MAKEFLAGS="-j$(nproc)" /opt/venv/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation \
  --wheel-dir /opt/horovod "./horovod-$version"
