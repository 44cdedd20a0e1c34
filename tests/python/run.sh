#!/usr/bin/env bash
# run.sh <build folder> [file or option of pytest]...: tests the Python package in <build folder>/python, with the torch that it was built
# for; without files or options runs all tests.
# PACKAGE names another folder of packages: python_card has one with an emulated card.

source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

package=$(cd "$1" && pwd)/${PACKAGE:-python}
shift
scripts/python_env.sh .deps/pytest tests/python/requirements.txt

# Tests import from their own folder, not from a package.
export PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1
release=$(sed -n 's/^TORCH = "\(.*\)"$/\1/p' "$package/hindcast/_built_for.py")
if [ "$release" != 2.11 ]; then
  scripts/install_torch_version.sh "$release"
  PYTHONPATH+=:$PWD/.deps/torch-$release
  set -- --ignore=tests/python/test_models.py "${@:-tests/python}"  # a torchvision is for one release
fi
exec .deps/pytest/bin/python -m pytest -q -rs -p no:cacheprovider "${@:-tests/python}"
