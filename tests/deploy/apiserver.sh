#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Builds Kubernetes' API server from its Go module: apiserver.sh v1.34.2 FOLDER makes FOLDER/kube-apiserver. Some 1,900 packages
# are compiled, one at a time and below all other work: half an hour to an hour, once.
set -euo pipefail
version=$1
mkdir -p "$2"
cd "$2"

cat >main.go <<'GO'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
GO
rm -f go.mod go.sum
sources=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
printf 'module kube\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$version" >go.mod
# Its own modules lie beside it in its repository; here they are those that were released with it.
sed -n 's|^\t\(k8s\.io/[a-z-]*\) => ./staging/.*|\1|p' "$sources/go.mod" |
  while read -r module; do echo "	$module => $module v0.${version#v1.}"; done >>go.mod
echo ')' >>go.mod
go mod tidy
nice -n 19 go build -p 1 -o kube-apiserver .
