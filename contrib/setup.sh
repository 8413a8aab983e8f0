# SPDX-License-Identifier: BSD-3-Clause
# What quickstart and check share: install what is missing, configure, build, look at the machine. Sourced by bash.
# Callers set `me` (the name in messages) and may set BFO_BUILD, BFO_CONFIGURE (extra configure arguments), JOBS.

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BFO_BUILD:-$source_root/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
jobs=${JOBS:-$(nproc)}

say() { printf '%s\n' "$me: $*"; }
die() {
  printf '%s\n' "$me: $*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }
have_header() {
  local dir
  for dir in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
    [ -e "$dir/$1" ] && return 0
  done
  return 1
}
have_openmpi_headers() {
  have ompi_info || return 1
  local dir
  dir=$(ompi_info --parsable --path pkgincludedir 2>/dev/null | sed -n 's/^path:pkgincludedir://p')
  [ -e "$dir/ompi/mca/pml/pml.h" ]
}
# From 5.0 on internal headers need <pmix.h>, which libopenmpi-dev does not always bring.
have_pmix_header() {
  have ompi_info || return 0
  local dir
  dir=$(ompi_info --parsable --path pkgincludedir 2>/dev/null | sed -n 's/^path:pkgincludedir://p')
  [ ! -e "$dir/opal/mca/pmix/pmix-internal.h" ] || have_header pmix.h ||
    [ -e "/usr/lib/$(uname -m)-linux-gnu/pmix2/include/pmix.h" ] || [ -e "${dir%/openmpi}/pmix.h" ]
}
have_python() { /usr/bin/python3 -c "import $1" >/dev/null 2>&1; }

# Takes the options that quickstart and check share from the arguments of the script; anything else ends it.
install=yes
kernel=no # of check alone, as the next one
releases=4.1
others=no
take_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --no-install) install=no ;;
      --openmpi | --openmpi=*)
        [ "$me" = check ] || die "--openmpi is an option of contrib/check"
        case $1 in
          *=*) releases=${1#*=} ;;
          *)
            [ $# -gt 1 ] || die "--openmpi needs a release: 4.1, 5.0, 6.0 or all"
            releases=$2
            shift
            ;;
        esac
        ;;
      --kernel) if [ "$me" = check ]; then kernel=yes; else die "--kernel is an option of contrib/check"; fi ;;
      --releases) if [ "$me" = check ]; then others=yes; else die "--releases is an option of contrib/check"; fi ;;
      *) die "unknown argument '$1'; there are --no-install (name what is missing instead of installing it) and, for contrib/check, --kernel (get what its tests on a kernel need), --openmpi=4.1, 5.0, 6.0 or all (the release of Open MPI) and --releases (the one of this machine whole, and a few tests with 5.0 and 6.0). BFO_BUILD, JOBS and BFO_CONFIGURE in the environment change the rest" ;;
    esac
    shift
  done
}

# Prints the Debian packages that are missing. $1: build (enough for quickstart) or test (everything contrib/check uses).
missing_packages() {
  local own_openmpi=no compiler
  case " ${BFO_CONFIGURE:-} " in *" --with-openmpi="*) own_openmpi=yes ;; esac
  {
    read -r compiler _ <<<"${CXX:-g++}" # CXX may be a command with arguments
    { have "$compiler" && have gcc; } || echo g++
    have make || echo make
    have autoconf || echo autoconf
    have automake || echo automake
    have libtoolize || echo libtool
    if [ $own_openmpi = no ]; then
      { have ompi_info && have mpirun; } || echo openmpi-bin
      have_openmpi_headers || echo libopenmpi-dev
      have_pmix_header || echo libpmix-dev
    fi
    have_header infiniband/verbs.h || echo libibverbs-dev
    have_header hwloc.h || echo libhwloc-dev
    have_header event2/thread.h || echo libevent-dev
    have_header gtest/gtest.h || echo libgtest-dev
    have_header benchmark/benchmark.h || echo libbenchmark-dev
    { [ -x /usr/bin/python3 ] && have_python ctypes; } || echo python3
    if [ "$1" = test ]; then
      have clang-format || echo clang-format
      have ibv_rc_pingpong || echo ibverbs-utils
      have ib_send_bw || echo perftest
      have NPopenmpi || echo netpipe-openmpi
      have hpcc || echo hpcc
      have_python mpi4py || echo python3-mpi4py
      have_python numpy || echo python3-numpy
      have_python pyverbs || echo python3-pyverbs
      have ucx_info || echo ucx-utils
      have valgrind || echo valgrind
      have ps || echo procps
      have file || echo file
      # Without it the other releases are skipped: no reason to end a check that may install nothing.
      [ $others = no ] || [ $install = no ] || have debootstrap || echo debootstrap
    fi
  } | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Prints the list of what is missing and installs it, with root or passwordless sudo. Without them, or after
# --no-install, prints the line to run and exits 1.
install_missing() {
  local packages run=()
  packages=$(missing_packages "$1")
  [ -z "$packages" ] && return 0
  local line="apt-get install -y --no-install-recommends $packages"
  [ $install = yes ] || die "missing here: $packages. Nothing was installed (--no-install). Run: sudo $line"
  have apt-get || die "missing here: $packages (names of Debian packages; this machine has no apt-get). Install their equivalents and run $me again."
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "missing packages, and neither root nor passwordless sudo to install them. Run: sudo $line"
    run=(sudo -n)
  fi
  say "missing here, to be installed now with apt-get (--no-install prevents it):"
  # shellcheck disable=SC2086
  printf '  %s\n' $packages
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086  # the list is meant to be split
  if ! { "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update &&
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive $line; } >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    die "could not install the missing packages (no network?). Run: $line"
  fi
  rm -f "$log"
  packages=$(missing_packages "$1")
  [ -z "$packages" ] || die "installed, but still not found: $packages"
}

# install_if_possible PACKAGE...: what saves time, and nobody needs.
install_if_possible() {
  local run=()
  [ $install = yes ] && have apt-get || return
  [ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && run=(sudo -n); } || return
  say "installing with apt-get, if it can be: $*"
  { "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update &&
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >/dev/null 2>&1 </dev/null
}

# run_logged LOG COMMAND...: quiet on success, the end of the log on failure.
run_logged() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    grep -E 'error|Error|\* ' "$log" | head -n 20 >&2
    tail -n 15 "$log" >&2
    die "failed: $* (whole output: $log)"
  fi
}

# configure and libtool are long shell scripts, and libtool runs for every file: dash takes two thirds of the time bash does.
config_shell=${CONFIG_SHELL:-$(command -v dash || echo /bin/sh)}

# dependency_files DIR: the files of dependencies that config.status would make in DIR. It calls three programs for each of more
# than five hundred, which takes longer than all it finds out about the machine.
dependency_files() {
  # shellcheck disable=SC2016
  sed -n 's|^@AMDEP_TRUE@@am__include@ @am__quote@\(.*\)\$(DEPDIR)/\(.*\)@am__quote@ # am--include-marker$|\1 .deps/\2|p' \
    "$source_root/Makefile.in" 2>/dev/null | sed 's/ //' >"$1/.dependency-files"
  (cd "$1" && sed 's|/[^/]*$||' .dependency-files | sort -u | xargs -r mkdir -p && xargs -r touch <.dependency-files && rm -f .dependency-files)
}

build_target=all
# configure_and_make BUILD-DIR CONFIGURE-ARGS...
configure_and_make() {
  local dir=$1
  shift
  mkdir -p "$dir" || die "cannot write to $dir"
  if [ ! -x "$source_root/configure" ] || [ -n "$(find "$source_root/configure.ac" "$source_root/Makefile.am" \
    $(cd "$source_root" && find . -name Makefile.inc | sed "s|^\.|$source_root|") -newer "$source_root/configure" 2>/dev/null)" ]; then
    [ -e "$source_root/autogen.sh" ] && { (cd "$source_root" && run_logged "$dir/autogen.log" ./autogen.sh) || exit 1; }
  fi
  if [ ! -e "$dir/Makefile" ] || [ "$source_root/configure" -nt "$dir/config.status" ] ||
    [ "$(cat "$dir/.configure-args" 2>/dev/null)" != "$*" ]; then
    say "configuring $dir"
    dependency_files "$dir"
    # shellcheck disable=SC2086
    (cd "$dir" && rm -f config.cache && CONFIG_SHELL=$config_shell run_logged configure.log "$config_shell" "$source_root/configure" -C "$@") || exit 1
    printf '%s' "$*" >"$dir/.configure-args"
  fi
  say "building $dir (-j$jobs)"
  run_logged "$dir/make.log" make -C "$dir" -j"$jobs" "$build_target"
}

# One sentence and exit 1 when the software HCA cannot work on this machine.
require_machine() {
  /usr/bin/env python3 "$source_root/contrib/machine-ok" || exit 1
}

# shellcheck disable=SC2034 # who sources this file asks: a part of it would not do
setup_read=yes
