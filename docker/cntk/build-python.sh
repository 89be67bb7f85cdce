#!/bin/sh
# CPython 3.6 into /opt/python3.6, from its source; nothing where that is there already.
set -eu
[ ! -x /opt/python3.6/bin/python3.6 ] || exit 0
add-packages build-essential curl libbz2-dev libffi-dev liblzma-dev libsqlite3-dev libssl-dev xz-utils zlib1g-dev
cd /tmp
curl --fail --silent --show-error --location --output python.tar.xz \
  https://www.python.org/ftp/python/3.6.15/Python-3.6.15.tar.xz
echo '6e28d7cdd6dd513dd190e49bca3972e20fcf455090ccf2ef3f1a227614135d91  python.tar.xz' | sha256sum --check --quiet
tar -xJf python.tar.xz
cd Python-3.6.15
# Python 3.6 aligns its objects to 8 bytes; what compilers of today make of its loops may assume 16.
CFLAGS=-fno-tree-vectorize ./configure --prefix=/opt/python3.6 --quiet
make --silent -j "$(nproc)"
make --silent install
