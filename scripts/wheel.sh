#!/usr/bin/env bash
# wheel.sh [2.x]: makes the Python package's wheel, for torch 2.11 in dist/, for another release in dist/torch-<2.x>. Without
# pip's isolation, which would download a torch for the build alone.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

release=${1:-2.11}
wheels=dist
options=()
scripts/python_env.sh .deps/wheel python/requirements.txt
python=.deps/wheel/bin/python
if [ "$release" != 2.11 ]; then
  scripts/install_torch_version.sh "$release"
  export PYTHONPATH=$PWD/.deps/torch-$release
  wheels=dist/torch-$release  # the wheels have one name, whatever torch they are for
  options=(--config-settings "build-dir=../build/wheel-$release")
fi
"$python" -m pip wheel --no-deps --no-build-isolation --disable-pip-version-check -v --wheel-dir "$wheels" "${options[@]}" ./python

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
"$python" -m zipfile -e "$wheels"/hindcast-*.whl "$unpacked"
scripts/check_libraries.sh "$unpacked"/hindcast/*.so
PYTHONPATH=$unpacked${PYTHONPATH:+:$PYTHONPATH} "$python" - "$release" <<'EOF'
import sys
from importlib.metadata import distribution, requires

import hindcast
import torch

assert requires("hindcast") == [f"torch=={sys.argv[1]}.*"], requires("hindcast")
for notice in ("LICENSE", "THIRD_PARTY_NOTICES"):
    with open(notice, encoding="utf-8") as file:
        assert distribution("hindcast").read_text(f"licenses/{notice}") == file.read(), f"the wheel carries no {notice}, or another"
assert "hindcast" in torch._dynamo.list_backends(), torch._dynamo.list_backends()  # by the wheel's entry point
weight = torch.ones(3, requires_grad=True)
with hindcast.enable("eager"):
    for _ in range(2):
        weight.sin().sum().backward()
assert torch.equal(weight.grad, 2 * weight.detach().cos()) and hindcast.stats()["hits"] == 1
EOF
ls "$wheels"
