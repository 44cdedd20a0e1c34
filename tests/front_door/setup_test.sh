#!/usr/bin/env bash
# The test `setup`: what the set-up scripts print and run on machines that lack something. They run on a copy, with stand-ins for apt, dpkg,
# id and sudo first in the PATH that record their calls; nothing is installed.
#
# setup_test.sh <source folder> <work folder>

set -uo pipefail
source_folder=$1
work=$2

release=$(. /etc/os-release 2>/dev/null && echo "$ID-$VERSION_ID")
if [ ! -f "$source_folder/scripts/packages/$release.txt" ] || ! command -v dpkg >/dev/null; then
  echo "skipped: set-up knows nothing of $release"
  exit 77
fi

rm -rf "$work"
mkdir -p "$work/tree" "$work/bin"
cp -r "$source_folder/scripts" "$source_folder/CMakePresets.json" "$work/tree/"
cd "$work/tree" || exit 1
failures=0

stand_in() {  # stand_in NAME BODY: a command of this name, which first records its call
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$work" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# Our distribution, with all packages, and root.
fresh() {
  rm -f "$work/bin/"* "$work/calls"
  touch "$work/calls"
  stand_in apt-get ''
  stand_in apt-cache 'echo "  Candidate: 1.0"'
  stand_in id 'if [ "$1" = -un ]; then echo somebody; else echo 0; fi'
  stand_in dpkg-query 'shift 3; for p in "$@"; do echo "installed $p 99:1"; done'
  unset LIBTORCH Torch_DIR PYTHON HINDCAST_SKIP_APT
}

output=
run() {
  output=$(PATH="$work/bin:$PATH" "$@" 2>&1)
  code=$?
}

check() {  # check WHAT EXPECTED-EXIT [EXPECTED-TEXT]...
  local what=$1 expected=$2
  shift 2
  [ "$code" = "$expected" ] || { echo "FAILED $what: exit $code, expected $expected; output: $output"; failures=$((failures + 1)); }
  for text in "$@"; do
    case $output in
      *"$text"*) ;;
      *) echo "FAILED $what: expected '$text' in: $output"; failures=$((failures + 1)) ;;
    esac
  done
}

check_calls() {  # check_calls WHAT EXPECTED
  local calls
  calls=$(grep -E '^(apt-get|sudo)' "$work/calls" | tr '\n' '|')
  [ "$calls" = "$2" ] || { echo "FAILED $1: called '$calls', expected '$2'"; failures=$((failures + 1)); }
}

fresh
run scripts/install_packages.sh
check "all packages are there" 0
check_calls "all packages are there" ""

fresh
stand_in dpkg-query 'shift 3; for p in "$@"; do [ $p = ccache ] || echo "installed $p 99:1"; done'
run scripts/install_packages.sh
check "one is missing" 0 "installing system packages: ccache"
check_calls "one is missing" "apt-get install -y --no-install-recommends ccache|"

stand_in apt-cache ''
: >"$work/calls"
run scripts/install_packages.sh
check "apt's lists are empty" 0
check_calls "apt's lists are empty" "apt-get update|apt-get install -y --no-install-recommends ccache|"

stand_in apt-get 'exit 100'
run scripts/install_packages.sh
check "no network" 1 "apt-get could not install: ccache" "apt-get update && apt-get install -y ccache"

stand_in id 'if [ "$1" = -un ]; then echo somebody; else echo 1000; fi'
stand_in sudo 'exit 1'
run scripts/install_packages.sh
check "no root" 1 "user somebody without password-less sudo" "apt-get update && apt-get install -y ccache"

stand_in sudo '[ "$2" = true ] || { shift; "$@"; }'
stand_in apt-cache 'echo "  Candidate: 1.0"'
stand_in apt-get ''
: >"$work/calls"
run scripts/install_packages.sh
check "password-less sudo" 0
check_calls "password-less sudo" "sudo -n true|sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ccache|apt-get install -y --no-install-recommends ccache|"

fresh
stand_in dpkg-query 'shift 3; for p in "$@"; do echo "installed $p 0.1"; done'
run scripts/install_packages.sh
check "too old a tool" 1 "build-essential is 0.1; expected 12." "apt-get install --only-upgrade build-essential"

fresh
LIBTORCH=/somewhere run scripts/setup.sh
check "a LibTorch of the user's own" 0 "using LibTorch in /somewhere"
[ ! -e .deps ] || { echo "FAILED a LibTorch of the user's own: .deps was made"; failures=$((failures + 1)); }

fresh
stand_in df 'printf "head\n/dev/x 1 1 3145728 1%% /\n"'
run scripts/install_libtorch.sh
check "little disk" 1 "need 8 GB of disk" "has 3 GB free" "LIBTORCH=/path/to/libtorch"

fresh
stand_in df 'printf "head\n/dev/x 1 1 99999999 1%% /\n"'
stand_in old-python 'if [ "$1" = --version ]; then echo Python 3.8.1; else exit 1; fi'
PYTHON=old-python run scripts/install_libtorch.sh
check "too old a Python" 1 "old-python is: Python 3.8.1" "apt-get install python3-venv"

stand_in new-python 'if [ "$2" = venv ]; then mkdir -p .deps/venv/bin; cp "$0" .deps/venv/bin/python
elif [ "$2" = pip ]; then echo "no route to host"; exit 1; fi'
PYTHON=new-python run scripts/install_libtorch.sh
check "no network for pip" 1 "no route to host" "pip could not install torch==2.11.0" "LIBTORCH=/path/to/libtorch-2.11.0"

# Remains of an interrupted or another installation are recognised.
torch=.deps/venv/lib/python3.11/site-packages/torch
mkdir -p "$torch/include/torch/headeronly" "$torch/lib"
touch "$torch/lib/libtorch_cpu.so"
stand_in new-python ''
cp "$work/bin/new-python" .deps/venv/bin/python
echo '#define TORCH_VERSION "2.10.0"' >"$torch/include/torch/headeronly/version.h"
run scripts/install_libtorch.sh
check "another version" 1 "$torch is not version 2.11.0"
echo '#define TORCH_VERSION "2.11.0"' >"$torch/include/torch/headeronly/version.h"
run scripts/install_libtorch.sh
check "broken off" 1 "the installation of torch was interrupted"
mkdir "$torch-2.11.0.dist-info"
touch "$torch-2.11.0.dist-info/RECORD"
run scripts/install_libtorch.sh
check "complete" 0
: >"$work/calls"
run scripts/install_libtorch.sh
check "complete, the second time" 0
[ ! -s "$work/calls" ] || { echo "FAILED complete, the second time: it called $(cat "$work/calls")"; failures=$((failures + 1)); }

fresh
run scripts/build.sh nothing
check "no such preset" 1 "no preset 'nothing'" "release, debug, asan, tsan"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
