#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Makes what a wheel for older Linux is linked with (`./do wheel --portable`), below FOLDER:
#
#   sysroot/  the C library of Debian 11 (glibc 2.31): what is linked with it asks for no newer symbols
#   lib/      position-independent static libraries of what Debian has only as shared ones, or as ones for programs alone, from its
#             sources: shared ones would need the glibc and the libstdc++ that they were built with
#
#   portable_libraries.sh FOLDER [JOBS]
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
jobs=${2:-2}
oldest=bullseye
flags="-O2 -g0 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections"
here=$(. /etc/os-release && echo "$VERSION_CODENAME")

# Where the system itself has its packages from.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)
[[ -n $mirror ]] || { echo "portable_libraries.sh: apt knows no Debian archive: see /etc/apt/sources.list.d" >&2; exit 1; }

# An apt of its own, so that the system's lists stay as they are.
export APT_CONFIG=$folder/apt.conf
mkdir -p "$folder"/{lists/partial,source,sysroot,lib}
source_line() { echo "$1 [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main"; }
{
  source_line deb "$oldest"
  source_line deb-src "$here"
} >"$folder/sources.list"
cat >"$APT_CONFIG" <<TEXT
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "root";
TEXT
apt-get update -qq

unpack_sysroot() {
  local package
  for package in libc6 libc6-dev libgcc-s1; do
    (cd "$folder/source" && apt-get download -qq "$package/$oldest" && dpkg-deb -x "$package"_*.deb "$folder/sysroot")
  done
  # Links to /lib would lead to the system's own.
  find "$folder/sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfr "$folder/sysroot$(readlink "$link")" "$link"
  done
}

# fetch PACKAGE: its source, of this system's version.
fetch() {
  [[ -d $folder/source/$1 ]] && return
  rm -rf "$folder/source/$1.part"
  mkdir "$folder/source/$1.part"
  (
    cd "$folder/source/$1.part"
    apt-get source -qq --download-only "$1/$here" >/dev/null
    dpkg-source --no-check -x ./*.dsc "../$1" >/dev/null
  )
}

# build PACKAGE PATTERN CMAKE_ARG...: the static libraries that match PATTERN go to lib/.
build() {
  local package=$1 pattern=$2
  shift 2
  printf 'portable_libraries: %s\n' "$package"
  cmake -S "$folder/source/$package" -B "$folder/build/$package" -G Ninja -DCMAKE_BUILD_TYPE=None -DBUILD_SHARED_LIBS=OFF \
    -DBUILD_TESTING=OFF -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_CXX_STANDARD=17 \
    -DCMAKE_PREFIX_PATH="$folder" -DCMAKE_INSTALL_PREFIX="$folder" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" "$@" >"$folder/$package.log"
  ninja -C "$folder/build/$package" -j "$jobs" ${targets:-} >>"$folder/$package.log" || {
    tail -n 30 "$folder/$package.log" >&2
    exit 1
  }
  find "$folder/build/$package" -name "$pattern" -exec cp {} "$folder/lib" \;
}

unpack_sysroot
for package in abseil protobuf prometheus-cpp; do
  fetch "$package"
done

build abseil 'libabsl_*.a'
targets=libprotobuf-lite build protobuf libprotobuf-lite.a -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF
build prometheus-cpp libprometheus-cpp-core.a -DENABLE_TESTING=OFF -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_COMPRESSION=OFF

cc -O2 -fPIC -Wall -c "$tools/old_glibc.c" -o "$folder/lib/old_glibc.o"
touch "$folder/.made"
