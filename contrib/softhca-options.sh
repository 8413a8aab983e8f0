# SPDX-License-Identifier: BSD-3-Clause
# The options that mpirun-softhca and softhca-run share, as SOFTHCA_* environment. Sourced by bash.
# Callers set `me` and `most_rails`, then call softhca_locate_build, softhca_parse_options "$@" (fills `rest`), softhca_export.

# "make install" fills this in; empty means: run from the source tree, with what is in build/ or $BFO_BUILD.
installed=
if [ -n "$installed" ]; then
  build=$installed
  build_env=$installed/build-env
  softhca_lib=$installed/softhca
  softhcactl=$installed/softhca/softhcactl-bin
else
  source_root=${source_root:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
  build=${BFO_BUILD:-$source_root/build}
  case $build in /*) ;; *) build=$PWD/$build ;; esac
  build_env=$build/contrib/build-env
  softhca_lib=$build/contrib/softhca/lib
  softhcactl=$build/contrib/softhca/softhcactl-bin
fi

die() {
  printf '%s\n' "$me: $*" >&2
  exit "${exit_code:-1}"
}

softhca_options_help="  --rails N        devices softhca0..softhca<N-1>, port 1 each, at most $most_rails (default 2)
  --rate MB/s      10^6 bytes per second, per port and direction (default: unlimited)
  --latency US     one-way latency in microseconds (default 0)
  --faults FILE    fault script, see contrib/softhca/README.md and contrib/softhca/examples/
  --counters FILE  counters and trace, written at exit and at each fault
  --fabric NAME    share a fabric between commands (default: a fresh one)
  --version        the version of this build
  --nodes WHICH    per-rank: each process has HCAs of its own (default); shared: all processes on one node"

# Reads what configure found; the software HCA must be there.
softhca_locate_build() {
  softhca_require "$build_env" "$softhca_lib/libibverbs.so.1" "$softhca_lib/libsofthca-shim.so"
  # shellcheck disable=SC1090
  [ -r "$build_env" ] && . "$build_env" && [ -n "${OMPI_COMPONENT_DIR-}" ] || die "$build_env is damaged: configure again, or run make install again"
  components=${BFO_COMPONENT_DIR:-$build/components}
  local runtime
  for runtime in ${SANITIZER_RUNTIME//:/ }; do
    [ -e "$runtime" ] || die "$build was built with a sanitizer whose runtime $runtime is gone: configure it again"
  done
}

# Of the build that is used, not of these scripts.
softhca_version() {
  local text
  text=$("$softhcactl" --version) || die "$softhcactl does not run"
  printf '%s\n' "$me${text#softhcactl}"
}

softhca_require() {
  local file
  for file in "$@"; do
    [ -e "$file" ] && continue
    [ -n "$installed" ] && die "$file is missing: run make install again"
    die "nothing built in $build (${file#"$build/"} is missing): run contrib/quickstart, or set BFO_BUILD to a finished build"
  done
}

absolute() {
  case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$PWD/$1" ;; esac
}

is_number() { [[ $1 =~ ^([0-9]+(\.[0-9]*)?|\.[0-9]+)$ ]]; }

# A file we shall write: its folder exists and is writable.
check_output_file() {
  [ -d "$(dirname "$2")" ] || die "$1: there is no folder $(dirname "$2")"
  if [ -L "$2" ]; then die "$1: $2 is a symbolic link; name the file itself"; fi
  if [ -e "$2" ] && [ ! -f "$2" ]; then die "$1: cannot write $2: it is not a regular file"; fi
  if [ -f "$2" ] && [ "$(stat -c %h "$2")" -gt 1 ]; then die "$1: $2 is a hard link, and what it names has another name"; fi
  if { [ -e "$2" ] && [ ! -w "$2" ]; } || { [ ! -e "$2" ] && [ ! -w "$(dirname "$2")" ]; }; then
    die "$1: cannot write $2"
  fi
}

# Empties a file, which gets mode 0600 when it is new. Never through a link, and it never waits for a FIFO.
empty_output_file() {
  (umask 077 && dd if=/dev/null of="$1" oflag=nofollow,nonblock status=none)
}

# Handles one option: sets `taken` to the number of arguments used, 0 when it is not ours.
softhca_option() {
  local name=$1 value=${2-} glued=no
  case $name in --*=*)
    value=${name#*=}
    name=${name%%=*}
    glued=yes
    ;;
  esac
  case $name in
    --rails | --rate | --latency | --faults | --counters | --fabric | --nodes) ;;
    *)
      taken=0
      return
      ;;
  esac
  if [ $glued = yes ]; then taken=1; else
    taken=2
    [ $# -ge 2 ] && [ "$2" != -- ] || die "$name needs a value (try --help)"
  fi
  case $name in
    --rails)
      [[ $value =~ ^[0-9]{1,3}$ ]] && [ "$((10#$value))" -ge 1 ] && [ "$((10#$value))" -le "$most_rails" ] ||
        die "--rails $value: give a number of rails from 1 to $most_rails"
      SOFTHCA_RAILS=$((10#$value))
      ;;
    --rate)
      is_number "$value" && [[ $value =~ [1-9] ]] || die "--rate $value: give a number above 0, in 10^6 bytes per second"
      SOFTHCA_RATE=$value
      ;;
    --latency)
      is_number "$value" || die "--latency $value: give a number of microseconds"
      SOFTHCA_LATENCY=$value
      ;;
    --faults)
      [ -f "$value" ] && [ -r "$value" ] || die "--faults $value: no such readable file"
      SOFTHCA_FAULTS=$(absolute "$value")
      ;;
    --counters)
      check_output_file --counters "$value"
      SOFTHCA_COUNTERS=$(absolute "$value")
      ;;
    --fabric)
      [[ $value =~ ^[A-Za-z0-9._-]{1,64}$ ]] && [[ $value != .* ]] ||
        die "--fabric $value: give a name of letters, digits, - and _ (at most 64)"
      SOFTHCA_FABRIC=$value
      ;;
    --nodes)
      case $value in per-rank | shared) SOFTHCA_NODES=$value ;; *) die "--nodes $value: give per-rank or shared" ;; esac
      ;;
  esac
}

# Completes, exports and checks the environment. Prints nothing but what is wrong.
softhca_export() {
  own_fabric=no
  if [ -z "${SOFTHCA_FABRIC:-}" ]; then
    SOFTHCA_FABRIC=job-$$-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
    own_fabric=yes
  fi
  SOFTHCA_RAILS=${SOFTHCA_RAILS:-2}
  SOFTHCA_NODES=${SOFTHCA_NODES:-per-rank}
  softhca_variables="SOFTHCA_FABRIC SOFTHCA_RAILS SOFTHCA_NODES"
  local name
  for name in SOFTHCA_RATE SOFTHCA_LATENCY SOFTHCA_FAULTS SOFTHCA_TIMESCALE SOFTHCA_SPIN SOFTHCA_STRICT_PAGES SOFTHCA_COUNTERS SOFTHCA_NODE SOFTHCA_PORTS SOFTHCA_DIR SOFTHCA_GIDS SOFTHCA_PATH_SL SOFTHCA_LMC; do
    [ -z "${!name:-}" ] || softhca_variables="$softhca_variables $name"
  done
  # shellcheck disable=SC2086
  export $softhca_variables
  # The library reads them in the same way, in every rank.
  if [ -x "$softhcactl" ]; then "$softhcactl" environment || exit 1; fi
  if [ -n "${SOFTHCA_COUNTERS:-}" ]; then
    check_output_file SOFTHCA_COUNTERS "$SOFTHCA_COUNTERS"
    empty_output_file "$SOFTHCA_COUNTERS" || exit 1
  fi
  # A sanitizer runtime must come first, the caller's own libraries come last.
  softhca_preload=${SANITIZER_RUNTIME:+$SANITIZER_RUNTIME:}$softhca_lib/libibverbs.so.1
  softhca_preload=$softhca_preload:$softhca_lib/libsofthca-shim.so${LD_PRELOAD:+:$LD_PRELOAD}
}

# The file of a fabric nobody else can know: the last process removes it, unless it was killed.
softhca_remove_fabric() {
  rm -f "${SOFTHCA_DIR:-/dev/shm/softhca-$(id -u)}/$SOFTHCA_FABRIC"
  [ -n "${SOFTHCA_DIR:-}" ] || [ -z "${XDG_RUNTIME_DIR:-}" ] || rm -f "$XDG_RUNTIME_DIR/softhca/$SOFTHCA_FABRIC"
}

# shellcheck disable=SC2034 # who sources this file asks: a part of it would not do
softhca_options_read=yes
