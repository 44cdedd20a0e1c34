#!/usr/bin/env bash
# run.sh rust|csharp <folder of libhindcast.so> <folder of libbinding.so> <folder to work in>: compiles and runs the program of a language.
# If the language is not installed, exits with 77 and prints why.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
language=$1 hindcast=$2 binding=$3 work=$4

need() {
  for tool in "$@"; do
    if ! command -v "$tool" > /dev/null; then
      echo "skipped: $language needs $tool, which is not installed"
      exit 77
    fi
  done
}

mkdir -p "$work"
export LD_LIBRARY_PATH=$hindcast:$binding${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
case $language in
  rust)
    need rustc
    rustc --edition 2021 -O -L "$hindcast" -L "$binding" -l hindcast -l binding -o "$work/program" "$here/program.rs"
    "$work/program"
    ;;
  csharp)
    need mcs mono
    mcs -out:"$work/Program.exe" "$here/Program.cs"
    mono "$work/Program.exe"
    ;;
  *)
    echo "no language '$language'" >&2
    exit 2
    ;;
esac
