#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# build.sh VERSION FOLDER [JOBS]: Kubernetes' API server and controller manager of VERSION (v1.34.2) from the Go module
# k8s.io/kubernetes, into FOLDER/bin/control_plane. Half an hour to an hour of two cores; what Go has compiled it keeps.
set -euo pipefail
version=$1 folder=$2 jobs=${3:-1}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
staging=v0.${version#v1.}
command -v go >/dev/null || {
  echo "build.sh: go is missing, 1.21 or newer, which fetches a newer one if need be: apt-get install golang-go, on Debian 12 from bookworm-backports" >&2
  exit 1
}

mkdir -p "$folder/source" "$folder/bin"
cp "$here/main.go" "$folder/source/"
cd "$folder/source"
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
kubernetes=$(go mod download -json "k8s.io/kubernetes@$version" | field Dir)

# Its go.mod takes the parts that it is made of from folders that are no part of the module; they are published, too.
{
  sed -n '/^go /p; /^godebug /p' "$kubernetes/go.mod"
  echo "module sheaf.test/control_plane"
  echo "require k8s.io/kubernetes $version"
  sed -n '/^require (/,/^)/p' "$kubernetes/go.mod" | sed "s/ v0\.0\.0\( \|$\)/ $staging\1/"
  echo "replace ("
  sed -n "s|^\s*\(k8s.io/[^ ]*\) => ./staging/.*|\1 => \1 $staging|p" "$kubernetes/go.mod"
  echo ")"
} >go.mod
cp "$kubernetes/go.sum" go.sum
go mod tidy

numbers=${version#v}
minor=${numbers#*.}
stamp=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  stamp+=" -X $package.gitVersion=$version -X $package.gitMajor=${numbers%%.*} -X $package.gitMinor=${minor%%.*}"
done
# One package after the other, a small heap, no symbols: the largest packages and the link take 2 GB as it is.
GOGC=${GOGC:-50} GOMAXPROCS=$((jobs > 2 ? jobs : 2)) \
  go build -p "$jobs" -tags grpcnotrace -ldflags "-s -w$stamp" -o "$folder/bin/control_plane.new" .
mv "$folder/bin/control_plane.new" "$folder/bin/control_plane"
