#!/usr/bin/env bash
# wheel.sh: makes the Python package's wheel in dist/. Without pip's isolation, which would download a torch for the build alone.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/python_env.sh .deps/wheel python/requirements.txt
python=.deps/wheel/bin/python
"$python" -m pip wheel --no-deps --no-build-isolation --disable-pip-version-check -v --wheel-dir dist ./python

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
"$python" -m zipfile -e dist/hindcast-*.whl "$unpacked"
scripts/check_libraries.sh "$unpacked"/hindcast/*.so
ls dist
