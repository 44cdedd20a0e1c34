#!/usr/bin/env bash
# bench_peers.sh [options of bench/peers.py]...: runs the benchmarks of PyTorch's compilers in .deps/peers, a Python with PyTorch
# and what its compilers import.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=.deps/peers
scripts/python_env.sh "$venv" bench/peers_requirements.txt
"$venv/bin/python" -c 'import torch._inductor.compile_fx' >>"$venv.log" 2>&1 || fail "$venv cannot import Inductor; see $venv.log."
headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -f "$headers/Python.h" ] || say "no Python.h: the rows of Inductor will fail. On Debian and Ubuntu: apt-get install python3-dev"

exec "$venv/bin/python" bench/peers.py "$@"
