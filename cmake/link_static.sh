#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Runs a link command with the static library in place of each shared one that has a static twin: those named by their
# path (Abseil, protobuf, spdlog, fmt and SQLite), and gRPC, which is named as -lgrpc++ -lgrpc -lgpr. CMake's imported
# targets of Debian name the shared ones, which suits libsheaf.so (Debian's static Abseil is not position-independent)
# but costs the `sheaf` command its start time: 7-11 ms with gRPC and the fifty libraries that it needs. OpenSSL and
# c-ares stay shared, so that the system's security updates reach them.
grpc=$("$1" -print-file-name=libgrpc++.a)
[ -e "$grpc" ] || grpc=
for argument; do
  shift
  case $argument in
    */libabsl_*.so* | */libspdlog.so* | */libfmt.so* | */libsqlite3.so* | */libprotobuf-lite.so*)
      static=${argument%.so*}.a
      [ -e "$static" ] && argument=$static
      ;;
    -lgrpc++)
      if [ -n "$grpc" ]; then
        # What gRPC's archives need of Abseil is more than what CMake names.
        set -- "$@" -Wl,-Bstatic -Wl,--start-group -lgrpc++ -lgrpc -lgpr -laddress_sorting -lre2 -lupb \
          "$(dirname "$grpc")"/libabsl_*.a -Wl,--end-group -Wl,-Bdynamic -lcares -lz -ldl
        argument=-lpthread
      fi
      ;;
    -lgrpc | -lgpr) [ -n "$grpc" ] && argument=-lpthread ;;
  esac
  set -- "$@" "$argument"
done
exec "$@"
