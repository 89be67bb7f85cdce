#!/bin/sh
# MVAPICH and the OSU micro-benchmarks into /opt/mvapich.
set -eu
site=https://mvapich.cse.ohio-state.edu/download/mvapich
get() { # URL SHA256 DIRECTORY
  curl --fail --silent --show-error --location --output source.tar.gz "$1"
  echo "$2  source.tar.gz" | sha256sum --check --quiet
  mkdir "$3"
  tar -xzf source.tar.gz --strip-components=1 -C "$3"
}
add-packages bison build-essential curl gfortran libucx-dev zlib1g-dev
cd /tmp
get "$site/mv2/mvapich-3.0.tar.gz" ee076c4e672d18d6bf8dd2250e4a91fa96aac1db2c788e4572b5513d86936efb mvapich
cd mvapich
./configure --prefix=/opt/mvapich --with-device=ch4:ucx --with-ucx=/usr FFLAGS=-fallow-argument-mismatch \
  FCFLAGS=-fallow-argument-mismatch
make -j "$(nproc)"
make install
cd /tmp
get "$site/osu-micro-benchmarks-7.0.1.tar.gz" 04954aea082ba1b90a461ffab82a3cee43fe2d5a60fed99f5cb4585ac7da8c66 osu
cd osu
./configure CC=/opt/mvapich/bin/mpicc CXX=/opt/mvapich/bin/mpicxx --prefix=/tmp/installed
make -j "$(nproc)"
make install
find /tmp/installed -type f -name 'osu_*' -perm -u+x -exec cp -t /opt/mvapich/bin {} +
