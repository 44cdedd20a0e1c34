#!/usr/bin/env bash
# Installs Chromium, with which `make test` opens the page of HINDCAST_TRACE (tests/python/test_trace.py), where the distribution has it
# as a package: Debian 12. Tried once. Where it cannot be, those tests skip, and nothing else is different.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -z "${HINDCAST_SKIP_APT:-}" ] || exit 0
if command -v chromium >/dev/null || [ -e .deps/chromium_was_tried ]; then exit 0; fi
[ -r /etc/os-release ] || exit 0
[ "$(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}")" = debian-12 ] || exit 0

mkdir -p .deps
touch .deps/chromium_was_tried
scripts/install_packages.sh chromium || say "without Chromium, the tests that open a page skip"
