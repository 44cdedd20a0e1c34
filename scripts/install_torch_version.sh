#!/usr/bin/env bash
# install_torch_version.sh <2.x>: puts the newest torch 2.x.* of the package registry into .deps/torch-<2.x>. Its torch/ is one for
# LIBTORCH; the folder itself is for PYTHONPATH, with a Python of scripts/python_env.sh: what torch needs is that of .deps/venv, but
# for those of NVIDIA's libraries without which another release cannot be imported.
# Exit status 3: the registry has no such version for this Python. Any other failure says why.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minor=$1
folder=.deps/torch-$minor
log=$folder.log
[ ! -e "$folder/importable" ] || exit 0

# Always PyPI's: a LibTorch of one's own (LIBTORCH) need not have NVIDIA's libraries beside it.
scripts/install_libtorch.sh
python=.deps/venv/bin/python

install() {
  env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PYTHONPATH -u PYTHONHOME \
    "$python" -m pip install --disable-pip-version-check --no-input --no-deps --no-compile --only-binary :all: -q --progress-bar off \
    --target "$folder" "$@" >"$log" 2>&1
}

rm -rf "$folder"
say "installing torch $minor into $folder (once; 0.8 GB to fetch)"
if ! install "torch==$minor.*"; then
  if grep -q "No matching distribution found" "$log"; then exit 3; fi
  fail "pip could not install torch $minor; see $log."
fi
mapfile -t own < <(sed -n -E 's/^Requires-Dist: (nvidia-(nccl|nvshmem)[^;]*).*/\1/p' "$folder"/torch-*.dist-info/METADATA)
[ ${#own[@]} = 0 ] || install "${own[@]}" || fail "pip could not install ${own[*]}; see $log."
mkdir -p "$folder/nvidia"
for library in .deps/venv/lib/python3*/site-packages/nvidia/*; do
  [ ! -e "$library" ] || [ -e "$folder/nvidia/${library##*/}" ] || ln -s "../../../$library" "$folder/nvidia/"
done

PYTHONPATH=$folder "$python" -c 'import torch' >>"$log" 2>&1 || fail "torch $minor cannot be imported; see $log."
: >"$folder/importable"
