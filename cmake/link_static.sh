#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Runs a link command with the static library in place of each shared one that has a static twin: those named by their
# path (Abseil, protobuf, spdlog, fmt and SQLite), and gRPC, which is named as -lgrpc++ -lgrpc -lgpr. CMake's imported
# targets of Debian name the shared ones, which suits libsheaf.so (Debian's static Abseil is not position-independent)
# but costs the `sheaf` command its start time: 7-11 ms with gRPC and the fifty libraries that it needs. OpenSSL and
# c-ares stay shared, so that the system's security updates reach them.
#
# link_static.sh --portable FOLDER COMMAND...: what goes into a wheel for older Linux. FOLDER is what
# tools/portable_libraries.sh made; all libraries are static, libstdc++ too, and the C library is that of FOLDER/sysroot.
portable=
if [ "$1" = --portable ]; then
  portable=$2
  shift 2
fi
grpc=$("$1" -print-file-name=libgrpc++.a)
[ -e "$grpc" ] || grpc=
system=$(dirname "$grpc")
if [ -n "$portable" ]; then
  absl=$portable/lib system_libraries="$system/libcares.a $system/libz.a -ldl"
else
  absl=$system system_libraries="-lcares -lz -ldl"
fi

# Prints the static twin of the shared library $1, where it is there and shall be taken.
twin() {
  name=${1##*/}
  if [ -n "$portable" ] && [ -e "$portable/lib/${name%%.so*}.a" ]; then
    echo "$portable/lib/${name%%.so*}.a"
    return
  fi
  case $name in
    libabsl_* | libspdlog.* | libfmt.* | libsqlite3.* | libprotobuf-lite.*) ;;
    *) [ -n "$portable" ] || return ;;
  esac
  [ ! -e "${1%.so*}.a" ] || echo "${1%.so*}.a"
}

for argument; do
  shift
  case $argument in
    -lgrpc++)
      if [ -n "$grpc" ]; then
        # What gRPC's archives need of Abseil is more than what CMake names.
        set -- "$@" -Wl,--start-group "$grpc" "$system"/libgrpc.a "$system"/libgpr.a "$system"/libaddress_sorting.a \
          "$system"/libre2.a "$system"/libupb.a "$absl"/libabsl_*.a -Wl,--end-group $system_libraries
        argument=-lpthread
      fi
      ;;
    -lgrpc | -lgpr) [ -n "$grpc" ] && argument=-lpthread ;;
    -*) ;;
    */lib*.so | */lib*.so.*)
      static=$(twin "$argument")
      argument=${static:-$argument}
      ;;
  esac
  set -- "$@" "$argument"
done
if [ -n "$portable" ]; then
  # The static libraries of Debian were made for its newer glibc. The linker finds out whether the older one has what they ask for.
  # The compiler looks into its own system first, and --sysroot is no word about that.
  root=$portable/sysroot libraries=lib/$("$1" -print-multiarch)
  set -- "$@" "$portable"/lib/old_glibc.o --sysroot="$root" -B "$root/usr/$libraries/" -L "$root/usr/$libraries" -L "$root/$libraries" \
    -static-libstdc++ -Wl,--gc-sections -Wl,--as-needed -Wl,--exclude-libs,ALL -lpthread -ldl -lrt
fi
exec "$@"
