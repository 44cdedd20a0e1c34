#!/usr/bin/env bash
# Makes a fresh Debian 12 or Ubuntu 24.04 machine able to build hindcast: system packages by apt, LibTorch by pip into .deps/.
# What is there already is left alone; a run with nothing to do takes a fraction of a second and touches no network.
#
#   LIBTORCH or Torch_DIR    folder of a LibTorch 2.11 to use instead of installing one
#   PYTHON                   the python3 (3.10 to 3.14) that makes the private environment
#   HINDCAST_SKIP_APT=1      take system packages as they are

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/install_packages.sh
if [ -n "${Torch_DIR:-}${LIBTORCH:-}" ]; then
  # Whether it is LibTorch 2.11 is for cmake/FindLibTorch.cmake to say.
  say "using LibTorch in ${Torch_DIR:-$LIBTORCH}"
else
  scripts/install_libtorch.sh
fi
