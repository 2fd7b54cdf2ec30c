#!/usr/bin/env bash
# Run tests on the Pythons that this machine has or can get: 3.11 … 3.14 on PATH, and as root on Debian those of its
# testing release, in a folder that debootstrap makes. It ends with a line for each Python, and fails if a test fails.
#
#     make pythons VERSIONS="3.13 3.14" TESTS="tests/offbeat_client tests/offbeat_core"
set -uo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build/pythons
debian=$build/debian
tests=${TESTS:-tests/offbeat_client tests/offbeat_core tests/offbeat_private tests/algorithms tests/config tests/coordinator
  tests/report tests/runs tests/statistics tests/sweeps tests/service/http tests/service/log tests/cli}

make_debian() {
  debootstrap --variant=minbase --include=ca-certificates,git,procps,python3.13-venv,python3.14-venv testing "$debian" \
    http://deb.debian.org/debian sid > "$build/debootstrap.log"
}

# Runs a command in Debian's folder, where the checkout has the same path. Its mounts end with it.
in_debian() {
  # shellcheck disable=SC2016
  unshare --mount sh -ec '
    debian=$1 checkout=$2
    shift 2
    mkdir -p "$debian$checkout"
    mount --bind "$checkout" "$debian$checkout"
    mount --rbind /dev "$debian/dev"
    mount -t proc proc "$debian/proc"
    mount -t tmpfs tmpfs "$debian/tmp"
    mount --bind /etc/ssl/certs "$debian/etc/ssl/certs"
    cp /etc/resolv.conf /etc/hosts "$debian/etc"
    exec chroot "$debian" sh -ec "cd $checkout; exec \"\$@\"" sh "$@"
  ' sh "$debian" "$PWD" "$@"
}

# Arguments: a Python, and what runs a command beside it.
run_tests() {
  local python=$1 environment=$build/$1
  shift
  rm -rf "$environment" "$build/$python.log"
  "$@" "$python" -m venv "$environment" &&
    "$@" "$environment/bin/python" -m pip install --quiet --upgrade "pip>=25.1" &&
    "$@" "$environment/bin/python" -m pip install --quiet --no-compile --editable packages/client \
      --editable '.[sweep,cluster,blake3]' --editable studies --group test axe-core-python selenium &&
    # shellcheck disable=SC2086
    "$@" "$environment/bin/python" -m pytest -n 2 -q -p no:cacheprovider -m "not long" $tests 2>&1 | tee "$build/$python.log" || has_failed=1
  results+=("$python: $(tail -n 1 "$build/$python.log" 2> /dev/null || echo "could not be installed")")
  rm -rf "$environment" # torch alone may take 5 GB
}

mkdir -p "$build"
results=()
has_failed=0
for version in ${VERSIONS:-3.11 3.12 3.13 3.14}; do
  if "python$version" --version > /dev/null 2>&1; then
    run_tests "python$version" env
  elif [ "$(id -u)" = 0 ] && command -v debootstrap > /dev/null; then
    [ -d "$debian" ] || make_debian
    if [ -x "$debian/usr/bin/python$version" ]; then
      run_tests "python$version" in_debian
    else
      results+=("python$version: not available")
    fi
  else
    results+=("python$version: not available")
  fi
done
printf '%s\n' "${results[@]}"
exit "$has_failed"
