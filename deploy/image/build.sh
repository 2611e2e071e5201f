#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Images of Sheaf for containers, without a container engine: Debian 12 by mmdebstrap, put together by buildah.
#
#   build.sh WHEEL FOLDER          FOLDER/sheaf-VERSION.oci.tar: Python 3.11, the package, bash, wget; `ray` is sheaf
#   build.sh --cpp PROGRAM FOLDER  FOLDER/sheaf-VERSION-cpp.oci.tar: the program sheaf alone, for clusters without Python
#
# Beside each lie its digest (.digest) and a list of what is in it (.cdx.json, CycloneDX). The same sources and packages give the
# same bytes, whoever builds them and when: all times are SOURCE_DATE_EPOCH, by default that of the last commit.
# Needs root, and Debian or Ubuntu with mmdebstrap, buildah and Python 3.11.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

fail() {
  echo "build.sh: $*" >&2
  exit 1
}

cpp=
if [[ ${1:-} == --cpp ]]; then
  cpp=yes
  shift
fi
(($# == 2)) || fail "want: build.sh WHEEL FOLDER, or build.sh --cpp PROGRAM FOLDER"
[[ -e $1 ]] || fail "there is no $1"
for tool in mmdebstrap buildah; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install --no-install-recommends mmdebstrap buildah"
done
input=$(readlink -f "$1")
mkdir -p "$2"
output=$(readlink -f "$2")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct)}
suite=${SUITE:-bookworm}
mirror=${MIRROR:-}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/sheaf-image-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
# A storage of its own: it goes with this run, and needs no overlay file system.
image() { buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }

# system VARIANT PACKAGES: Debian's, without what a container does not read.
system() {
  local options=() path
  for path in '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' '/usr/share/info/*' '/usr/share/lintian/*' \
    '/usr/share/bash-completion/*' '/usr/share/zoneinfo/right/*' '/usr/lib/x86_64-linux-gnu/gconv/*'; do
    options+=(--dpkgopt="path-exclude=$path")
  done
  # Without the hook the package usrmerge comes, and all of Perl.
  [[ $1 == extract ]] || options+=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
  mmdebstrap --variant="$1" --include="$2" "${options[@]}" --extract-hook='cp -R "$1/var/cache/apt/archives" '"$work" \
    "$suite" "$root" ${mirror:+"$mirror"} 2>"$work/log" || {
    tail -n 40 "$work/log" >&2
    fail "mmdebstrap does not make the system"
  }
  # Of each package that is only extracted, which dpkg does not know, its name, which has its version, and each of its files.
  local package
  [[ $1 != extract ]] || for package in "$work"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed "s|^\.|$(basename "$package") |"
  done >"$work/files"
  [[ ! -s $root/var/lib/dpkg/status ]] ||
    dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}_${Version}_${Architecture}.deb\n' >"$work/packages"
  # What differs from run to run, and what only package management needs.
  rm -rf "$root"/var/{cache,log,lib/apt,lib/systemd}/* "$root"/etc/{machine-id,resolv.conf,hostname} "$root"/var/cache/ldconfig \
    "$root"/etc/apt/apt.conf.d/* "$root"/tmp/* "$root"/run/*
  rm -rf "$root"/usr/lib/python3.11/{test,idlelib,lib2to3,ensurepip,pydoc_data,distutils/tests} "$root"/usr/lib/python3/dist-packages/lib2to3
  find "$root" -name '*.pyc' -delete
  find "$root" -xdev -perm /6000 -type f -exec chmod a-s {} +
}

user() {
  mkdir -p "$root/etc" "$root/var/lib/sheaf" "$root/tmp"
  echo 'sheaf:x:10001:10001:Sheaf:/tmp:/bin/sh' >>"$root/etc/passwd"
  echo 'sheaf:x:10001:' >>"$root/etc/group"
  chown 10001:10001 "$root/var/lib/sheaf"
  chmod 0700 "$root/var/lib/sheaf"
  chmod 1777 "$root/tmp"
}

python_image() {
  local packages=/usr/local/lib/python3.11/dist-packages python
  python=$(command -v python3.11) || fail "python3.11 is missing"
  system essential python3-minimal,python3,libstdc++6,wget,ca-certificates
  "$python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: --ignore-installed \
    --root-user-action ignore --target "$root$packages" "$input"
  # Programs of other packages, which name the Python of whoever builds this; and where the package came from.
  rm -rf "${root:?}$packages/bin" "$root$packages"/*.dist-info/{direct_url.json,REQUESTED}
  sed -i '/direct_url\.json\|REQUESTED\|\/bin\/\(f2py\|numpy-config\|sheaf\|ray\)/d' "$root$packages"/*.dist-info/RECORD
  find "$root$packages" -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} +
  mkdir -p "$root/usr/local/bin"
  ln -sf "$packages/sheaf/bin/sheaf" "$root/usr/local/bin/sheaf"
  ln -sf sheaf "$root/usr/local/bin/ray"
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
  # A read-only root cannot keep what Python compiles; these do not ask for the times of their sources.
  "$python" -m compileall -q -j "$(nproc)" --invalidation-mode unchecked-hash -s "$root" -p / "$root/usr/lib/python3.11" "$root/usr/lib/python3" \
    "$root$packages" || true  # Templates of other packages that are no Python.
}

cpp_image() {
  system extract libc6,libstdc++6,libgcc-s1,libssl3,zlib1g,libc-ares2,libprometheus-cpp-core1.0,ca-certificates,dash,base-files
  mkdir -p "$root/usr/local/bin"
  install -m 0755 "$input" "$root/usr/local/bin/sheaf"
  strip --strip-all "$root/usr/local/bin/sheaf"
  # Libraries that it is linked with. One that comes from elsewhere would be in no list of what is in the image.
  local needed name place
  needed=$(ldd "$input" /bin/dash | awk '$2 == "=>" {print $1}' | sort -u)
  for name in $needed; do
    place=$(awk -v end="/$name" 'substr($2, length($2) - length(end) + 1) == end {print $2; exit}' "$work/files")
    [[ $place ]] || fail "$input needs $name, which none of the packages of the image has: name its package in cpp_image"
    readlink -e "$root$place"
  done >"$work/kept"
  # One file, as update-ca-certificates makes it.
  local certificate bundle=/etc/ssl/certs/ca-certificates.crt
  mkdir -p "$root/etc/ssl/certs"
  for certificate in "$root"/usr/share/ca-certificates/mozilla/*.crt; do
    sed '$a\' "$certificate"
  done >"$root$bundle"
  # Of what came with them a shell stays, and how names are looked up.
  rm -rf "${root:?}"/usr/{share,libexec} "$root"/var/lib/dpkg \
    "$root"/etc/{alternatives,apt,cron.daily,debconf.conf,dpkg,logrotate.d,rmt,ssl/openssl.cnf,update-motd.d}
  find "$root"/{bin,sbin,usr/bin,usr/sbin} -not -type d -not -name sh -not -name dash -delete
  local library
  find "$root/lib" "$root/usr/lib" -not -type d -print | while read -r library; do
    case $(basename "$library") in
      ld-linux* | libnss_files* | libnss_dns* | libresolv* | os-release) ;;
      *) grep -q "/$(basename "$(readlink -f "$library")")\$" "$work/kept" || rm "$library" ;;
    esac
  done
  mkdir -p "$root/usr/lib/ssl"
  ln -s "$bundle" "$root/usr/lib/ssl/cert.pem"  # Where OpenSSL looks.
  # Packages of which nothing is left are not listed.
  echo "$(sed -n 's/^\(ca-certificates_[^ ]*\) .*/\1/p; T; q' "$work/files") $bundle" >>"$work/files"
  while read -r name place; do
    [[ $place == */ || ! -e $root$place ]] || echo "$name"
  done <"$work/files" | sort -u >"$work/packages"
}

version=$(sed -n 's/^project(Sheaf VERSION \([0-9.]*\).*/\1/p' "$here/../../CMakeLists.txt")
if [[ $cpp ]]; then
  name=sheaf-$version-cpp
  cpp_image
else
  name=sheaf-$version
  python_image
fi
user
python3 "$here/contents.py" "$root" "$work/packages" "$name" >"$output/$name.cdx.json"

container=$(image from scratch)
environment=(PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp SHEAF_DIR=/var/lib/sheaf LANG=C.UTF-8)
# In this image `import ray` means sheaf.
[[ $cpp ]] || environment+=(PYTHONPATH=/usr/local/lib/python3.11/dist-packages/sheaf/_ray/_alias)
# Not by buildah's copy, which makes root the owner of all.
cp -a "$root/." "$(image mount "$container")/"
image umount "$container" >/dev/null
image config --user 10001:10001 --workingdir /tmp --port 6379/tcp --port 8265/tcp \
  "${environment[@]/#/--env=}" \
  --label org.opencontainers.image.title=sheaf --label "org.opencontainers.image.version=$version" \
  --cmd 'sheaf --help' --created-by deploy/image/build.sh "$container"
rm -f "$output/$name.oci.tar"
image commit --quiet --disable-compression=false --timestamp "$SOURCE_DATE_EPOCH" --iidfile "$work/id" "$container" "oci-archive:$output/$name.oci.tar:sheaf:${name#sheaf-}" >/dev/null
tar -xOf "$output/$name.oci.tar" index.json | sed 's/.*"digest":"\([^"]*\)".*/\1/' >"$output/$name.digest"
echo "$output/$name.oci.tar: $(<"$output/$name.digest"), $(($(stat -c %s "$output/$name.oci.tar") / 1000000)) MB compressed"
