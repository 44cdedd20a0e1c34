#!/usr/bin/env bash
# install_torch_version.sh <2.x>: puts the newest torch 2.x.* of the package registry into .deps/torch-<2.x>/torch, as far as
# hindcast needs it: the headers, and the libraries that libtorch_cpu loads. That is a third of the wheel. The libraries of
# NVIDIA's wheels, which libtorch_cpu also loads, are those of .deps/venv.
# Exit status 3: the registry has no such version for this Python. Any other failure says why.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minor=$1
folder=.deps/torch-$minor
log=$folder/pip.log
[ ! -e "$folder/complete" ] || exit 0

# Always PyPI's: a LibTorch of one's own (LIBTORCH) need not have NVIDIA's libraries beside it.
scripts/install_libtorch.sh
python=.deps/venv/bin/python

rm -rf "$folder"
mkdir -p "$folder/wheel"
ln -s "../$(cd .deps && echo venv/lib/python3*/site-packages/nvidia)" "$folder/nvidia"
say "fetching torch $minor (once; half a GB)"
if ! env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PYTHONPATH -u PYTHONHOME \
  "$python" -m pip download --disable-pip-version-check --no-input --no-deps --only-binary :all: -q --progress-bar off \
  --dest "$folder/wheel" "torch==$minor.*" >"$log" 2>&1; then
  if grep -q "No matching distribution found" "$log"; then
    rm -rf "$folder"
    exit 3
  fi
  fail "pip could not fetch torch $minor; see $log."
fi

"$python" - "$folder"/wheel/torch-*.whl "$folder" <<'EOF'
import re, sys, zipfile

# Libraries of CUDA and of Python are not loaded; a wheel for another processor may bring others in torch.libs.
wanted = re.compile(r"torch/include/|torch\.libs/|torch/lib/(?!.*(cuda|nvshmem|nvrtc|python|shm))[^/]*\.so")
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if wanted.match(name)])
EOF
rm -rf "$folder/wheel"

absent=$(ldd "$folder/torch/lib/libtorch_cpu.so" | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
[ -z "$absent" ] || fail "libraries that torch $minor needs were not found: $absent"
: >"$folder/complete"
