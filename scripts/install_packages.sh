#!/usr/bin/env bash
# Installs those packages of scripts/packages/<distribution>.txt that are missing. Called by scripts/setup.sh.
# With arguments: installs these packages instead (scripts/docs.sh and scripts/format.sh need some that a build does not).

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -z "${HINDCAST_SKIP_APT:-}" ] || exit 0

release="this system"
if [ -r /etc/os-release ]; then
  release=$(. /etc/os-release && echo "${ID:-unknown}-${VERSION_ID:-unknown}")
fi
list="scripts/packages/$release.txt"

if [ ! -f "$list" ] || ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  fail "no list of packages for $release; set-up knows Debian 12 and Ubuntu 24.04." \
    "Install what scripts/packages/debian-12.txt names under your system's names, then: HINDCAST_SKIP_APT=1 make test"
fi

if [ $# -gt 0 ]; then
  wanted=("$@")
else
  mapfile -t wanted < <(awk '!/^#/ && NF { print $1 }' "$list")
fi

# The status and version of every wanted package that dpkg has heard of. A virtual name counts when something provides it.
known=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package} ${Version}\n' "${wanted[@]}" 2>/dev/null || true)

missing=()
for package in "${wanted[@]}"; do
  version=$(awk -v p="$package" '{ sub(/:.*/, "", $2) } $1 == "installed" && $2 == p { print $3; exit }' <<<"$known")
  if [ -z "$version" ]; then
    missing+=("$package")
    continue
  fi
  least=$(awk -v p="$package" '$1 == p { print $2 }' "$list")
  if [ -n "$least" ] && dpkg --compare-versions "$version" lt "$least"; then
    fail "$package is $version; expected $least or newer, which $release has." \
      "Run: apt-get install --only-upgrade $package"
  fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

by_hand="apt-get update && apt-get install -y ${missing[*]}"
need_root "Installing ${missing[*]}" "$by_hand"

install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; }

# Whether apt knows all that is missing. The lists of a fresh image are empty.
in_the_lists() {
  local package candidate
  for package in "${missing[@]}"; do
    candidate=$(apt-cache policy "$package" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
    if [ -z "$candidate" ] || [ "$candidate" = "(none)" ]; then return 1; fi
  done
}

say "installing system packages: ${missing[*]}"
if in_the_lists && install; then exit 0; fi

# The lists are empty, or so old that the mirrors no longer have what they name.
if ! { as_root apt-get update && install; }; then
  fail "apt-get could not install: ${missing[*]} (its own words are above)." \
    "Check the network and /etc/apt/sources.list*, then run as root:" "  $by_hand"
fi
