#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Runs a link command with the static library in place of each shared one that has a static twin and is named by its
# path: Abseil, protobuf, spdlog, fmt and SQLite. CMake's imported targets of Debian name the shared ones, which suits
# libsheaf.so (Debian's static Abseil is not position-independent) but costs the `sheaf` command its start time.
for argument; do
  shift
  case $argument in
    */libabsl_*.so* | */libspdlog.so* | */libfmt.so* | */libsqlite3.so* | */libprotobuf-lite.so*)
      static=${argument%.so*}.a
      [ -e "$static" ] && argument=$static
      ;;
  esac
  set -- "$@" "$argument"
done
exec "$@"
