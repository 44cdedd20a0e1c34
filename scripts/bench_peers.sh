#!/usr/bin/env bash
# bench_peers.sh [options of bench/peers.py]...: makes .deps/peers, a Python with PyTorch and what its compilers import
# at pinned versions, and runs the benchmarks of PyTorch's compilers in it. torch is that of .deps/venv, not a second one.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Always PyPI's: a LibTorch of one's own (LIBTORCH) need not have its Python half.
scripts/install_libtorch.sh

torch=.deps/venv
venv=.deps/peers
pins=bench/peers_requirements.txt
log=.deps/peers.log

if ! cmp -s "$pins" "$venv/.complete"; then
  say "making $venv (once; a few MB)"
  "$torch/bin/python" -m venv --clear "$venv" >"$log" 2>&1 || fail "$torch/bin/python -m venv $venv failed; see $log."
  if ! env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PYTHONPATH -u PYTHONHOME \
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --log "$log" \
    -q --progress-bar off -r "$pins"; then
    fail "pip could not install $pins (its own words are above and in $log)." "Run the same again when the network is there."
  fi
  # Searched after the folder that this file lies in: what is pinned goes before what came with torch.
  packages=$(echo "$venv"/lib/python3*/site-packages)
  echo "../../../../venv/lib/$(basename "$(dirname "$packages")")/site-packages" >"$packages/torch_of_libtorch.pth"
  "$venv/bin/python" -c 'import torch, torch._inductor.compile_fx' >>"$log" 2>&1 || fail "$venv cannot import torch; see $log."
  cp "$pins" "$venv/.complete"
fi

headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -f "$headers/Python.h" ] || say "no Python.h: the rows of Inductor will fail. On Debian and Ubuntu: apt-get install python3-dev"

exec "$venv/bin/python" bench/peers.py "$@"
