#!/usr/bin/env bash
# run.sh <build folder> [arguments of pytest]...: tests the Python package that lies in <build folder>/python.

source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

package=$(cd "$1" && pwd)/python
shift
scripts/python_env.sh .deps/pytest tests/python/requirements.txt

# Tests lie beside what they import, not in a package.
export PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1
exec .deps/pytest/bin/python -m pytest -q -p no:cacheprovider tests/python "$@"
