#!/usr/bin/env bash
# python_env.sh <folder> <requirements>: makes a Python environment in <folder> with what the file pins and the torch of
# .deps/venv, which it does not install a second time. Made anew when the file has changed.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$1
pins=$2
log=$venv.log

scripts/install_libtorch.sh # always PyPI's: a LibTorch of one's own (LIBTORCH) need not have its Python half
! cmp -s "$pins" "$venv/.complete" || exit 0

# Two runs in one folder: the second waits, and finds the environment.
if command -v flock >/dev/null; then
  exec 9>"$venv.lock"
  flock 9
  ! cmp -s "$pins" "$venv/.complete" || exit 0
fi

torch=.deps/venv
say "making $venv (once)"
"$torch/bin/python" -m venv --clear "$venv" >"$log" 2>&1 || fail "$torch/bin/python -m venv $venv failed; see $log."
if ! env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PYTHONPATH -u PYTHONHOME \
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --log "$log" \
  -q --progress-bar off -r "$pins"; then
  fail "pip could not install $pins (its own words are above and in $log)." "Run the same again when the network is there."
fi
# Searched after the folder that this file lies in: what is pinned goes before what came with torch.
packages=$(echo "$venv"/lib/python3*/site-packages)
echo "../../../../venv/lib/$(basename "$(dirname "$packages")")/site-packages" >"$packages/torch_of_libtorch.pth"
"$venv/bin/python" -c 'import torch' >>"$log" 2>&1 || fail "$venv cannot import torch; see $log."
cp "$pins" "$venv/.complete"
