#!/usr/bin/env bash
# Installs LibTorch 2.11.0 (PyPI's torch) into the private environment .deps/venv. Called by scripts/setup.sh.
# A finished installation is marked by a stamp; without it the rest is done again from where it was left.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=2.11.0
venv=.deps/venv
stamp=$venv/.torch-$version-complete
log=.deps/pip.log
needed_gb=8

[ ! -e "$stamp" ] || exit 0

mkdir -p .deps 2>/dev/null || fail "cannot write to $PWD." "Give $(id -un) the right to, or work on a copy that it owns."
if command -v flock >/dev/null; then
  exec 9>.deps/lock
  flock -n 9 || { say "waiting for another set-up of this folder"; flock 9; }
  [ ! -e "$stamp" ] || exit 0
fi

# Complete means: the wheel's last file is written, its version is right, and every library that libtorch_cpu needs is found.
# Sets `why_not` otherwise.
complete() {
  local torch header
  torch=$(echo "$venv"/lib/python3*/site-packages/torch)
  header=$torch/include/torch/headeronly/version.h
  if [ ! -f "$header" ] || [ ! -f "$torch/lib/libtorch_cpu.so" ]; then why_not="torch is not there"; return 1; fi
  if ! grep -q "\"$version\"" "$header"; then
    why_not="$torch is not version $version"
    return 1
  fi
  if [ ! -f "$(echo "$venv"/lib/python3*/site-packages/torch-"$version"*.dist-info/RECORD)" ]; then
    why_not="the installation of torch was interrupted"
    return 1
  fi
  local absent
  absent=$(ldd "$torch/lib/libtorch_cpu.so" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
  if [ -n "$absent" ]; then why_not="libraries that torch needs were not found: $absent"; return 1; fi
}

if complete; then
  : >"$stamp"
  exit 0
fi

free_gb=$(($(df -Pk .deps | awk 'NR == 2 { print $4 }') / 1024 / 1024))
if [ "$free_gb" -lt "$needed_gb" ]; then
  fail "LibTorch and the build need $needed_gb GB of disk; $PWD has $free_gb GB free." \
    "Free some, or name a LibTorch 2.11 that you have: LIBTORCH=/path/to/libtorch make test"
fi

# PyPI has this torch for these versions of Python.
usable() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

if ! usable "$venv/bin/python"; then
  python=
  for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.10 python3.14}; do
    if usable "$candidate"; then python=$candidate; break; fi
  done
  if [ -z "$python" ]; then
    seen=$("${PYTHON:-python3}" --version 2>&1 || true)
    fail "no Python 3.10 to 3.14 with venv (${PYTHON:-python3} is: ${seen:-not there})." \
      "Run as root: apt-get install python3-venv" "or name one: PYTHON=/path/to/python3 make test"
  fi
  "$python" -m venv --clear "$venv" >"$log" 2>&1 || fail "$python -m venv $venv failed; see $log."
fi

say "installing torch $version into $venv (once; several GB, a few minutes)"
# A user's pip settings for other installations must not lead this one elsewhere.
if ! env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PYTHONPATH -u PYTHONHOME \
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --log "$log" "torch==$version"; then
  fail "pip could not install torch==$version (its own words are above and in $log)." \
    "If the network is not there: LIBTORCH=/path/to/libtorch-$version make test, with one fetched elsewhere." \
    "If it broke off: run the same again; what was downloaded is kept."
fi

complete || fail "torch was installed, but $why_not." "Run: rm -rf $venv && scripts/setup.sh"
: >"$stamp"
