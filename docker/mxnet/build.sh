#!/bin/sh
# build.sh ARCHITECTURES: MXNet from source for the CUDA of this image, into /opt/mxnet; where there is none, the wheel will do.
set -eu
echo libgomp1 libquadmath0 >/opt/mxnet/packages
[ -x /usr/local/cuda/bin/nvcc ] || exit 0
add-packages build-essential cmake curl ninja-build liblapack-dev libopenblas-dev libopencv-dev
cd /tmp
curl --fail --silent --show-error --location --output mxnet.tar.gz \
  https://archive.apache.org/dist/incubator/mxnet/1.9.1/apache-mxnet-src-1.9.1-incubating.tar.gz
echo '11ea61328174d8c29b96f341977e03deb0bf4b0c37ace658f93e38d9eb8c9322  mxnet.tar.gz' | sha256sum --check --quiet
mkdir -p mxnet
tar -xzf mxnet.tar.gz --strip-components=1 -C mxnet
cmake -S mxnet -B mxnet/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DUSE_CUDA=ON -DUSE_CUDNN=ON -DUSE_NCCL=ON -DMXNET_CUDA_ARCH="$1" \
  -DUSE_DIST_KVSTORE=ON -DUSE_BLAS=open -DUSE_LAPACK=ON -DUSE_OPENMP=ON -DUSE_OPENCV=ON \
  -DBUILD_CPP_EXAMPLES=OFF -DUSE_CPP_PACKAGE=OFF
cmake --build mxnet/build
cp mxnet/build/libmxnet.so mxnet/python/mxnet/
cp -r mxnet/python /opt/mxnet/python
# The packages of the libraries it is linked with, for the image that will not have the compilers.
ldd mxnet/build/libmxnet.so | awk '$3 ~ "^/" {print $3}' | xargs readlink -f | xargs dpkg-query --search 2>/dev/null |
  cut -d: -f1 | sort -u >/opt/mxnet/packages || true
