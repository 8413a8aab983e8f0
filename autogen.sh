#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Creates ./configure from configure.ac. Needs autoconf, automake and libtool.
set -e
cd "$(dirname "$0")"
missing=
for tool in autoconf automake libtoolize; do
  command -v "$tool" >/dev/null 2>&1 || case $tool in
    libtoolize) missing="$missing libtool" ;;
    *) missing="$missing $tool" ;;
  esac
done
if [ -n "$missing" ]; then
  echo "autogen.sh: missing$missing; install with: apt-get install$missing" >&2
  exit 1
fi
mkdir -p m4 config
exec autoreconf --install --force "$@"
