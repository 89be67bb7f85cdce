#!/bin/sh
# CNTK's examples and the CIFAR-10 data they train on, below /cntk/Examples, where older recipes' commands have them.
set -eu
command -v curl >/dev/null || add-packages curl
get() { curl --fail --silent --show-error --location --retry 3 --output "$1" "$2"; }
cd /cntk
get examples.tar.gz https://github.com/microsoft/CNTK/archive/refs/tags/v2.7.tar.gz
tar -xzf examples.tar.gz --strip-components=1 CNTK-2.7/Examples
rm examples.tar.gz
cd Examples/Image/DataSets/CIFAR-10
get cifar-10-python.tar.gz https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz
echo '6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce  cifar-10-python.tar.gz' |
  sha256sum --check --quiet
# The examples' own script turns the archive into CNTK's text format; it takes the file of this name for the download.
/cntk/venv/bin/python install_cifar10.py
rm -f cifar-10-python.tar.gz
