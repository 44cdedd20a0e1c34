#!/usr/bin/env bash
# format.sh [--check]: formats the tree's C++ by .clang-format; with --check only says what would change, and fails if any.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Each version formats a little differently, so there is one. Both distributions have it under this name.
formatter=clang-format-14
command -v "$formatter" >/dev/null || scripts/install_packages.sh "$formatter"
command -v "$formatter" >/dev/null || fail "$formatter was not found." "Run as root: apt-get install $formatter"

mode=(-i)
case "${1:-}" in
  "") ;;
  --check) mode=(--dry-run --Werror) ;;
  *) fail "unknown argument '$1'; expected --check or nothing." ;;
esac
find include base engine cache hooks capture codegen c_api preload tests bench examples python cmake \( -name '*.cpp' -o -name '*.h' \) -print0 |
  xargs -0 "$formatter" --style=file "${mode[@]}"
