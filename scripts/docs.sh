#!/usr/bin/env bash
# Renders the public headers, README.md and docs/*.md as HTML with Doxygen, into build/docs/html.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v doxygen >/dev/null || scripts/install_packages.sh doxygen graphviz
command -v doxygen >/dev/null || fail "doxygen was not found." "Run as root: apt-get install doxygen graphviz"

mkdir -p build/docs
doxygen docs/Doxyfile
say "docs: build/docs/html/index.html"
