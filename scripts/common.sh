# Sourced by the other scripts: how they speak, and where they stand.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "hindcast: $*"; }

# fail WHAT [WHAT TO DO]...: one line each, on stderr, and the end.
fail() {
  printf 'hindcast: error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

# count_cpu: sets cpu_seconds, of all commands that this shell has run. (In a subshell, `times` has those of the subshell.)
count_cpu() {
  local file
  file=$(mktemp)
  times >"$file"
  cpu_seconds=$(awk 'NR == 2 { split($1 "m" $2, t, "[ms]+"); printf "%d", t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$file")
  rm -f "$file"
}

# Runs a command as root: as it is, or through sudo where that asks no password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# need_root PURPOSE COMMAND: ends here, naming the command for root to type, if as_root could not work.
need_root() {
  [ "$(id -u)" != 0 ] || return 0
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then return 0; fi
  fail "$1 needs root, and this is user $(id -un) without password-less sudo." \
    "Run this as root, then what you ran again:" "  $2"
}
