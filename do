#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Everything a developer or CI does with Sheaf. `./do` alone lists the commands.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

usage() {
  cat <<'TEXT'
Usage: ./do COMMAND

  quickstart [--keep]      install what is needed, build, and run the main job; --keep leaves its two nodes up until Ctrl-C
  build [TARGET...]        build everything, or some targets, into build/
  test [REGEX]             build and run the tests (REGEX: those whose name matches)
  bench AREA [ARG...]      build and run benchmarks/bench_AREA; --json FILE writes figures, --peer NAME compares, --record
                           writes them into docs/evidence, too
  sanitize [KIND] [REGEX]  run the tests under sanitizers: address (with undefined), thread, or both
  format [--check]         clang-format and ruff over all sources; --check only says what differs
  lint [--hook]            every rule that needs no build, in a minute: formats, ruff, architecture; --hook: before each commit, too;
                           --record: the sizes of the parts into docs/evidence
  tidy [FILE...]           clang-tidy all sources, or some
  python ARG...            run Python with this build of the package sheaf
  peer [AREA[.NAME]...]    the same small programs on Sheaf and, as recorded, on Ray: what differs; --live runs Ray, too; --help
  docs                     all documents and the reference of both APIs as a site in build/docs, with its links checked
  wheel [--portable] [PYTHON...]
                           build a wheel of the package into build/wheel, and try it in a clean environment; with each PYTHON, as
                           python3.13, also the acceptance programs and a training, with NumPy 2 and, where there is one, NumPy 1;
                           --portable: on Debian 12, for Linux as old as Debian 11; first builds four libraries from their sources
  deploy [AREA...]         what stands in deploy/ with the tools that it is for, which are installed: chart (Helm, schemas of Kubernetes),
                           image (built twice and run), units (systemd), scripts (Slurm, SSH), kuberay; results into docs/evidence/deploy.md
  kube                     the chart in a real Kubernetes: API server and controllers, built from their sources (an hour, the first time),
                           etcd, and a node that runs containers as processes; wants root and Go; results into docs/evidence/deploy.md
  monitoring               a real Prometheus over a real cluster: every metric moves, every panel of deploy/grafana has an answer;
                           the boards against Grafana's types; the alerts; figures go into docs/evidence/monitoring.md
  page                     build the dashboard's page (dashboard/web) into dashboard/dist, which is committed; wants Node.js 20 and npm
  browser [CASE]           use the page of a real cluster in Chromium, as people do; its pictures are in build/browser; tour: that of docs/operate.md (--record: and its pictures);
                           --minutes N: how long the page's heap is watched
  soak [ROW...]            the long fault runs and the simulator, all or some rows; their figures go into docs/evidence/soak.md
  fuzz [TARGET] [SECONDS]  fuzz one parser of untrusted bytes for a minute, or all one after the other; with libFuzzer where clang has it
  clean                    remove the build folders

Environment: JOBS=N compiles with N jobs (default: one per core, fewer when memory is short); CI=true installs missing
packages by itself and never asks.
TEXT
}

say() { printf '\n== %s\n' "$*"; }
note() { printf 'do: %s\n' "$*"; }
fail() {
  printf 'do: %s\n' "$*" >&2
  exit 1
}

# Runs one step and names it when it fails.
step() {
  local name=$1 status=0
  shift
  say "$name"
  "$@" || status=$?
  if ((status != 0)); then
    printf '\ndo: FAILED: %s (exit status %d): %s\n' "$name" "$status" "$*" >&2
    exit 1
  fi
}

jobs() {
  if [[ -n ${JOBS:-} ]]; then
    echo "$JOBS"
    return
  fi
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kib / (1500 * 1024)))  # The largest compilations take 1.5 GB.
  ((by_memory < 1)) && by_memory=1
  echo $((by_memory < cores ? by_memory : cores))
}

# --- packages ---------------------------------------------------------------------------------------------------------

have_package() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif [[ ${CI:-} == true ]]; then
    sudo -n "$@"
  else
    sudo "$@"
  fi
}

can_be_root() {
  ((EUID == 0)) && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || [[ -t 0 && ${CI:-} != true ]]
}

# Prints the packages that a build with tests needs.
needed_packages() {
  echo g++ cmake ninja-build pkg-config protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libssl-dev zlib1g-dev \
    libabsl-dev prometheus-cpp-dev libsqlite3-dev libcli11-dev libspdlog-dev libxxhash-dev catch2 python3-dev python3-venv
  # Debian 12 has two Boosts, and only 1.81 is new enough; it excludes the msgpack package, whose headers are unpacked
  # instead (unpack_msgpack). Later systems have one Boost and install both.
  if [[ $(. /etc/os-release && echo "${VERSION_CODENAME:-}") == bookworm ]]; then
    echo libboost1.81-dev
  else
    echo libboost-dev libmsgpack-cxx-dev
  fi
}

# Tests that lack one of these are skipped and say so. `prometheus` and its Alertmanager are unpacked only, so that no daemon starts.
test_packages() { echo spin gcc curl wget clang-19 python3-yaml python3-jsonschema; }

missing_packages() {
  local package
  for package in "$@"; do
    have_package "$package" || printf '%s ' "$package"
  done
}

apt_install() {
  local line="apt-get install --no-install-recommends -y $*"
  if ! can_be_root; then
    fail "these packages are missing, and installing them needs root. Run as root:
    apt-get update && $line"
  fi
  note "installing: $*"
  # A fresh container has no package lists, and old lists name files that are gone: update and try again.
  as_root env DEBIAN_FRONTEND=noninteractive $line -qq >/dev/null 2>&1 || {
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive $line -qq
  }
}

# Unpacks PACKAGE into FOLDER without installing it, unless FILE is already there. Needs no root.
unpack_package() {
  local package=$1 folder=$2 file=$3 scratch status=0
  [[ -e $folder/$file ]] && return
  note "unpacking the package $package into $folder"
  scratch=$(mktemp -d)
  (
    cd "$scratch"
    apt-get download -qq -o APT::Sandbox::User=root "$package" >/dev/null 2>&1 || {
      can_be_root && as_root apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root "$package"
    }
  ) || status=$?
  if ((status == 0)); then
    mkdir -p "$folder"
    dpkg-deb -x "$scratch"/*.deb "$folder" || status=$?
  fi
  rm -rf "$scratch"
  return "$status"
}

unpack_msgpack() {
  [[ -e /usr/include/msgpack.hpp || -e /usr/local/include/msgpack.hpp ]] && return
  unpack_package libmsgpack-cxx-dev build/msgpack usr/include/msgpack.hpp ||
    fail "the msgpack headers could not be fetched. Put them below build/msgpack/usr/include (msgpack.hpp)."
}

# ensure_packages install: installs what is missing. ensure_packages ask: in CI the same, elsewhere says what is missing.
ensure_packages() {
  local missing extra
  if ! command -v apt-get >/dev/null; then
    note "no apt-get here: I trust that what CMake looks for is installed"
    return
  fi
  missing=$(missing_packages $(needed_packages))
  if [[ -n $missing ]]; then
    if [[ $1 == install || ${CI:-} == true ]]; then
      apt_install $missing
    else
      fail "missing packages. Run './do quickstart', or as root:
    apt-get install --no-install-recommends $missing"
    fi
  fi
  unpack_msgpack
}

ensure_test_packages() {
  command -v apt-get >/dev/null || return 0
  local missing
  missing=$(missing_packages $(test_packages))
  if [[ ${CI:-} == true ]]; then
    # Not fatal: a test that lacks its tool is skipped, with the reason.
    [[ -z $missing ]] || (apt_install $missing) || note "could not install: $missing"
    command -v prometheus >/dev/null || unpack_package prometheus build/prometheus usr/bin/promtool ||
      note "could not fetch prometheus"
    command -v amtool >/dev/null || unpack_package prometheus-alertmanager build/prometheus usr/bin/amtool ||
      note "could not fetch prometheus-alertmanager"
    return 0
  fi
  command -v prometheus >/dev/null || [[ -e build/prometheus/usr/bin/promtool ]] || missing+="prometheus"
  [[ -z $missing ]] || note "some tests will be skipped: not installed: $missing"
}

# What `bench collective` is compared with; a peer that is not installed is left out.
peer_packages() { echo libgloo-dev libopenmpi-dev openmpi-bin; }

ensure_peer_packages() {
  command -v apt-get >/dev/null || return 0
  local missing
  missing=$(missing_packages $(peer_packages))
  [[ -n $missing ]] || return 0
  if can_be_root; then
    (apt_install $missing) || note "could not install: $missing"
    rm -f build/.configured  # A build that was configured without them looks again.
  else
    note "left out of the comparison: not installed: $missing"
  fi
}

# What the Python package is built, tested and run with, from PyPI: in a virtual environment, since Debian 12 refuses pip elsewhere.
python_packages() { echo nanobind==3.1.0 nanobind-backend==1.0.0 scikit-build-core==1.1.2 cloudpickle==3.1.3 numpy pytest \
    opentelemetry-sdk==1.45.2 opentelemetry-proto==1.45.2; }

# Makes build/venv, where the system has a Python that the package supports.
ensure_venv() {
  local wanted
  wanted=$(python_packages)
  [[ -e build/venv/.installed && $(<build/venv/.installed) == "$wanted" ]] && return
  local python
  for python in /usr/bin/python3 python3; do
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    python=
  done
  if [[ -z $python ]]; then
    note "no Python 3.11 with venv: the Python package is not built"
    return
  fi
  note "installing into build/venv: $wanted"
  mkdir -p build
  "$python" -m venv build/venv || fail "no virtual environment: apt-get install python3-venv"
  build/venv/bin/pip install --quiet --disable-pip-version-check $wanted || fail "pip could not install: $wanted"
  echo "$wanted" >build/venv/.installed
  # A build that was configured without it looks again.
  rm -f build/.configured
}

# What the tests of sheaf.data need beside the package's own, in a folder of its own: all else is tested without them. 250 MB; not
# fatal: without it they are skipped.
data_packages() { echo pyarrow==26.0.1 pandas==3.1.1 pillow==13.0.0 fsspec==2026.9.0 python-dateutil==4.0.0 duckdb==2.0.1 fastavro==1.13.1; }

fetch_data_packages() {
  local wanted
  wanted=$(data_packages)
  [[ -x build/venv/bin/pip ]] || return 0
  [[ -e build/data/.installed && $(<build/data/.installed) == "$wanted" ]] && return
  rm -rf build/data build/data.part
  build/venv/bin/pip install --quiet --disable-pip-version-check --retries 1 --no-deps --no-compile --target build/data.part $wanted \
    >build/data.log 2>&1 || { rm -rf build/data.part && return; }
  build/venv/bin/python -m compileall -q -j "$(jobs)" build/data.part >>build/data.log 2>&1 || true  # pip does it with one process.
  mv build/data.part build/data && echo "$wanted" >build/data/.installed
}

# NCCL's own library, which its tests load without a GPU. 300 MB; not fatal: without it they are skipped.
nccl_wheel() { echo nvidia-nccl-cu13==2.32.3; }

# Unpacks it into build/nccl.
fetch_nccl_wheel() {
  local wanted
  wanted=$(nccl_wheel)
  [[ -x build/venv/bin/pip ]] || return 0
  [[ -e build/nccl/.installed && $(<build/nccl/.installed) == "$wanted" ]] && return
  rm -rf build/nccl build/nccl.part
  build/venv/bin/pip install --quiet --disable-pip-version-check --retries 1 --no-deps --no-compile --target build/nccl.part "$wanted" \
    >build/nccl.log 2>&1 && mv build/nccl.part build/nccl && echo "$wanted" >build/nccl/.installed || rm -rf build/nccl.part
}

# What `./do format` and `./do lint` run, from PyPI: Debian 12 has neither in a version that agrees with others.
lint_tools() { echo clang-format==19.1.7 ruff==0.17.6; }

# Makes build/lint, unless it is there. Its programs are build/lint/bin/{clang-format,ruff}.
ensure_lint_tools() {
  local wanted
  wanted=$(lint_tools)
  [[ -e build/lint/.installed && $(<build/lint/.installed) == "$wanted" ]] && return
  note "installing into build/lint: $wanted"
  mkdir -p build
  python3 -m venv build/lint || fail "no virtual environment: apt-get install python3-venv"
  build/lint/bin/pip install --quiet --disable-pip-version-check $wanted || fail "pip could not install: $wanted"
  echo "$wanted" >build/lint/.installed
}

# What `./do docs` is made with, from PyPI, beside Doxygen.
docs_tools() { echo pdoc==16.0.0 markdown-it-py==4.3.0; }

ensure_docs_tools() {
  local wanted
  if ! command -v doxygen >/dev/null; then
    command -v apt-get >/dev/null || fail "doxygen is missing"
    apt_install doxygen
  fi
  wanted=$(docs_tools)
  [[ -e build/docs-tools/.installed && $(<build/docs-tools/.installed) == "$wanted" ]] && return
  note "installing into build/docs-tools: $wanted"
  mkdir -p build
  python3 -m venv build/docs-tools || fail "no virtual environment: apt-get install python3-venv"
  build/docs-tools/bin/pip install --quiet --disable-pip-version-check $wanted || fail "pip could not install: $wanted"
  echo "$wanted" >build/docs-tools/.installed
}

# --- commands ---------------------------------------------------------------------------------------------------------

# configure FOLDER [CMAKE_ARG...]: only when it was never done, or not to its end; ninja repeats it when a CMakeLists changes.
configure() {
  local folder=$1
  shift
  [[ -e $folder/build.ninja && -e $folder/.configured ]] && return
  cmake -S . -B "$folder" -G Ninja "$@" && touch "$folder/.configured"
}

build_into() {
  local folder=$1
  shift
  ninja -C "$folder" -j "$(jobs)" "$@"
}

# Runs ctest in FOLDER and ends with "N passed, N failed, N skipped".
run_tests() {
  local folder=$1 regex=${2:-} status=0 report=$1/test-results.xml
  rm -f "$report"
  say "test"
  # One more than there are cores: tests wait more than they compute.
  (cd "$folder" && ctest --output-on-failure --no-tests=error --timeout 600 -j "$(($(jobs) + 1))" \
    --output-junit test-results.xml ${regex:+-R "$regex"}) || status=$?
  [[ -e $report ]] || fail "ctest wrote no report (exit status $status)"
  python3 tools/test_results.py "$report" "$status"
}

quickstart() {
  local started=$SECONDS targets=(sheaf examples/main_job)
  step "packages" ensure_packages install
  (step "venv" ensure_venv) || note "the training in Python is left out"
  step "configure" configure build
  [[ ! -e build/venv/.installed ]] || targets+=(sheaf_python)
  step "build" build_into build "${targets[@]}"
  note "built after $((SECONDS - started)) s"
  step "main job" examples/main_job.sh build "$@"
  say "done in $((SECONDS - started)) s. Next: ./do test, or read README.md"
}

build() {
  step "packages" ensure_packages ask
  step "venv" ensure_venv
  step "configure" configure build
  step "build" build_into build "$@"
}

run_all_tests() {
  step "packages" ensure_packages ask
  ensure_test_packages
  step "venv" ensure_venv
  { fetch_data_packages; fetch_nccl_wheel; } &  # Beside the build, which the network does not slow down.
  local wheel=$!
  step "configure" configure build
  step "build" build_into build
  wait "$wheel" || true
  [[ -e build/data/.installed ]] || note "$(data_packages): could not be fetched (build/data.log): the tests of sheaf.data are skipped"
  [[ -e build/nccl/.installed ]] || note "the wheel $(nccl_wheel) could not be fetched (build/nccl.log): its tests are skipped"
  run_tests build "$@"
}

bench() {
  local area=${1:-}
  if [[ -z $area || $area == -* ]]; then
    fail "which area? There are: $(ls benchmarks | sed -n 's/^bench_\([a-z_]*\)\.\(cc\|py\)$/\1/p' | tr '\n' ' ')"
  fi
  shift
  local argument record=
  for argument; do
    shift
    if [[ $argument == --record ]]; then
      record=build/bench_$area.json
      set -- "$@" --json "$record"
    else
      set -- "$@" "$argument"
    fi
  done
  if [[ -e benchmarks/bench_$area.py ]]; then
    if [[ $area == looking ]]; then  # Its C++ side.
      step "packages" ensure_packages ask
      step "configure" configure build
      step "build" build_into build looking_driver
    elif [[ $area == dashboard ]]; then
      command -v chromium >/dev/null || fail "the page is shown in Chromium: apt-get install chromium"
      step "packages" ensure_web_packages
      step "packages" ensure_packages ask
      step "configure" configure build
      step "build" build_into build sheaf synthetic_cluster
    elif [[ $area == data ]]; then
      step "packages" ensure_packages ask
      step "venv" ensure_venv
      fetch_data_packages
      local -x PYTHONPATH=$PWD/build/data${PYTHONPATH:+:$PYTHONPATH}
    fi
    (python_package "benchmarks/bench_$area.py" "$@")
    [[ -z $record ]] || python3 tools/evidence.py bench "$area" "$record"
    return
  fi
  step "packages" ensure_packages ask
  if [[ $area == collective ]]; then
    step "peers" ensure_peer_packages
  fi
  step "configure" configure build
  grep -q "^build bench_$area:" build/build.ninja || fail "there is no benchmarks/bench_$area"
  step "build" build_into build "bench_$area"
  step "bench $area" "build/benchmarks/bench_$area" "$@"
  [[ -z $record ]] || python3 tools/evidence.py bench "$area" "$record"
}

# Builds everything but the Python package and runs all tests: an interpreter without the sanitizer cannot load a module
# that has it. Whole runs (no REGEX) leave a line in docs/evidence/sanitizers.md.
sanitize() {
  local kinds=(address thread) kind folder status=0 began result
  case ${1:-} in
    address | thread)
      kinds=("$1")
      shift
      ;;
    "") ;;
    *) fail "sanitize '$1': want address or thread" ;;
  esac
  step "packages" ensure_packages ask
  for kind in "${kinds[@]}"; do
    folder=build-$([[ $kind == address ]] && echo asan || echo tsan)
    step "configure ($kind)" configure "$folder" -DSHEAF_SANITIZE="$kind"
    step "build ($kind)" build_into "$folder"
    began=$SECONDS
    result=0
    # Workers fork from a template that has threads by then, which ThreadSanitizer would refuse.
    ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=1:detect_leaks=1} \
    UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1} \
    TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$PWD/cmake/thread_sanitizer.supp} \
      run_tests "$folder" "$@" | tee "$folder/sanitize.log" || result=1
    ((result == 0)) || status=1
    if (($# == 0)); then
      echo "| $kind | $((SECONDS - began)) s | $(tail -n 1 "$folder/sanitize.log") | $( ((result == 0)) && echo passed || echo FAILED) |" |
        python3 tools/evidence.py sanitizers.md sanitizers
    fi
  done
  return "$status"
}

sources() { git ls-files -co --exclude-standard -- '*.cc' '*.h' | while read -r file; do [[ -e $file ]] && echo "$file"; done; }

# check_format: says what differs, and fails if anything does.
check_format() {
  local status=0
  sources | xargs -r -P "$(jobs)" -n 50 build/lint/bin/clang-format --dry-run -Werror || status=1
  build/lint/bin/ruff format --quiet --diff . || status=1
  ((status == 0)) || note "formats differ: ./do format"
  return "$status"
}

format() {
  ensure_lint_tools
  case ${1:-} in
    --check) check_format || exit 1 ;;
    "")
      sources | xargs -r -P "$(jobs)" -n 50 build/lint/bin/clang-format -i
      build/lint/bin/ruff check --quiet --select I --fix .
      build/lint/bin/ruff format --quiet .
      ;;
    *) fail "format '$1': want --check or nothing" ;;
  esac
}

# Every rule that needs no build. All of them run, so that one look shows everything.
lint() {
  case ${1:-} in
    --hook)
      local hook
      hook=$(git rev-parse --git-path hooks/pre-commit)
      [[ ! -e $hook ]] || grep -q 'do lint' "$hook" || fail "there is a hook already: add './do lint' to $hook"
      mkdir -p "$(dirname "$hook")"
      printf '#!/bin/sh\nexec "$(git rev-parse --show-toplevel)/do" lint\n' >"$hook"
      chmod +x "$hook"
      note "before each commit './do lint' runs ($hook); git commit --no-verify leaves it out"
      return
      ;;
    --record)
      python3 tests/architecture/structure.py
      note "the sizes of the parts are in docs/evidence/structure.md"
      return
      ;;
    "") ;;
    *) fail "lint '$1': want --hook, --record or nothing" ;;
  esac
  local status=0 began=$SECONDS
  ensure_lint_tools
  say "formats"
  check_format || status=1
  say "ruff"
  build/lint/bin/ruff check . || status=1
  say "architecture, ratchets, documents"
  python3 -m unittest discover -q -s tests/architecture -p '*_test.py' || status=1
  say "scripts"
  git ls-files -- do '*.sh' .ci/run | xargs -n 1 bash -n || status=1
  ((status == 0)) || fail "lint: see above"
  say "nothing found in $((SECONDS - began)) s"
}

tidy_tool() {
  command -v clang-tidy-19 || command -v clang-tidy || fail "clang-tidy-19 is missing: apt-get install clang-tidy-19"
}

tidy() {
  local tool
  tool=$(tidy_tool) || exit 1
  step "packages" ensure_packages ask
  step "configure" configure build
  step "build" build_into build
  if (($# == 0)); then
    mapfile -t files < <(sources | grep '\.cc$' | grep -v '_test\.cc$')
    set -- "${files[@]}"
  fi
  say "clang-tidy ($# files)"
  printf '%s\n' "$@" | xargs -P "$(jobs)" -n 4 "$tool" -p build --quiet || fail "clang-tidy found something"
}

# Runs Python with the package as it was last built; builds it first. Only the program's own words go to stdout.
python_package() {
  {
    step "packages" ensure_packages ask
    step "venv" ensure_venv
    step "configure" configure build
    step "build" build_into build sheaf_python
  } >&2
  PYTHONPATH=$PWD/build/python${PYTHONPATH:+:$PYTHONPATH} exec build/venv/bin/python "$@"
}

# Ray is installed into build/peers/ray, or $SHEAF_PEERS/ray, by what needs it (--live, --record).
peer() { PYTHONPATH=$PWD/build/data${PYTHONPATH:+:$PYTHONPATH} python_package tests/peer/peer.py "$@"; }

# The guide and all other documents, the C++ reference by Doxygen, the Python reference by pdoc from the package of this build.
docs() {
  local python=build/docs-tools/bin/python
  step "packages" ensure_packages install
  step "tools" ensure_docs_tools
  step "venv" ensure_venv
  step "configure" configure build
  step "build" build_into build sheaf_python
  rm -rf build/docs
  mkdir -p build/docs
  step "C++ API" doxygen tools/docs/Doxyfile
  # pdoc imports the package, and that NumPy and cloudpickle.
  PYTHONPATH=build/python:$(build/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
    step "Python API" "$python" tools/docs/python_reference.py build/docs/python
  step "documents" "$python" tools/docs/site.py build/docs
  step "links" python3 tools/docs/check_links.py build/docs
  say "done: $PWD/build/docs/index.html"
}

# Packs what is built into a wheel, then runs its test on it. wheel PYTHON...: and the whole of it with each of them.
# --portable: what the wheel holds is linked for Linux as old as tools/portable_libraries.sh has a C library of.
wheel() {
  local python numpy status portable=
  if [[ ${1:-} == --portable ]]; then
    portable=$PWD/build/portable
    shift
  fi
  for python; do
    command -v "$python" >/dev/null || fail "wheel: there is no '$python'"
  done
  step "packages" ensure_packages ask
  step "venv" ensure_venv
  [[ -x build/venv/bin/python ]] || fail "no build/venv to build the wheel with"
  step "configure" configure build
  [[ -z $portable || -e $portable/.made ]] || step "libraries" tools/portable_libraries.sh "$portable" "$(jobs)"
  grep -q "^SHEAF_PORTABLE:PATH=$portable\$" build/CMakeCache.txt || step "configure" cmake -S . -B build -DSHEAF_PORTABLE="$portable"
  step "build" build_into build sheaf_python
  rm -rf build/wheel
  step "wheel" build/venv/bin/python tests/packaging/assemble.py build build/wheel
  step "name" build/venv/bin/python tests/packaging/platform_tag.py build/wheel/*.whl
  say "try"
  # 77: what the wheel requires could not be fetched; it is built all the same.
  build/venv/bin/python tests/packaging/wheel_test.py --wheel build/wheel/*.whl || (($? == 77)) || fail "the wheel does not work"
  for python; do
    for numpy in 'numpy>=2' 'numpy<2'; do
      say "try with $python and $numpy"
      status=0
      "$python" tests/packaging/wheel_test.py --wheel build/wheel/*.whl --programs --numpy "$numpy" || status=$?
      ((status == 0 || status == 77)) || fail "the wheel does not work with $python and $numpy"
    done
  done
  note "$(ls -sh build/wheel/*.whl)"
}

# What `./do deploy` checks with, beside test_packages.
deploy_packages() { echo mmdebstrap buildah openssh-server openssh-client python3-yaml python3-jsonschema wget; }
# Go programs, into build/deploy/bin. Debian has neither.
deploy_programs() { echo github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0 helm.sh/helm/v3/cmd/helm@v3.22.0; }
# The schemas of Kubernetes' objects, from PyPI, into build/deploy/schemas.
deploy_schemas() { echo kubernetes-validate==1.37.0; }

ensure_deploy_program() {
  local folder=$PWD/build/deploy/bin name
  name=$(basename "${1%@*}")
  [[ -x $folder/$name && $(cat "$folder/.$name" 2>/dev/null) == "$1" ]] && return
  note "building $1"
  command -v go >/dev/null || fail "go is missing, which builds $name; or put $name into build/deploy/bin, and $1 into .$name there"
  mkdir -p "$folder"
  GOBIN=$folder go install -p "$(jobs)" "$1" || fail "$1 could not be built"
  echo "$1" >"$folder/.$name"
}

ensure_deploy_tools() {
  local missing program version folder=$PWD/build/deploy
  if command -v apt-get >/dev/null; then
    missing=$(missing_packages $(deploy_packages))
    [[ -z $missing ]] || (apt_install $missing) || note "could not install: $missing"
  fi
  for program in $(deploy_programs); do
    ensure_deploy_program "$program"
  done
  [[ $(cat "$folder/schemas/.installed" 2>/dev/null) == "$(deploy_schemas)" ]] && return
  rm -rf "$folder/schemas"
  build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$folder/schemas" $(deploy_schemas) ||
    fail "deploy: pip could not install: $(deploy_schemas)"
  # They refer to each other by paths below a server; kubeconform reads files.
  for version in "$folder"/schemas/kubernetes_validate/kubernetes-json-schema/*-local-strict; do
    sed -i "s|\"/api/_definitions.json#|\"file://$version/_definitions.json#|" "$version"/*.json
  done
  deploy_schemas >"$folder/schemas/.installed"
}

# check_deploy AREA: runs its tests.
check_deploy() {
  local folder=$PWD/build/deploy
  case $1 in
    chart) python3 tests/deploy/chart_test.py --helm "$folder/bin/helm" --kubeconform "$folder/bin/kubeconform" \
      --schemas "$folder/schemas/kubernetes_validate/kubernetes-json-schema" ;;
    units) python3 tests/deploy/units_test.py build/cli/sheaf --long ;;
    scripts) python3 tests/deploy/scripts_test.py build/cli/sheaf --long ;;
    kuberay) PYTHONPATH=$PWD/build/python:$PWD/tests/python build/venv/bin/python -m pytest -q -p no:cacheprovider tests/python/test_kuberay.py ;;
    image)
      rm -rf build/wheel
      build/venv/bin/python tests/packaging/assemble.py build build/wheel &&
        build/venv/bin/python tests/packaging/platform_tag.py build/wheel/*.whl &&
        python3 tests/deploy/image_test.py build/wheel/*.whl build/cli/sheaf "$folder/image"
      ;;
    *) fail "deploy '$1': want chart, image, units, scripts or kuberay" ;;
  esac
}

deploy() {
  local area began result status=0 log
  (($# > 0)) || set -- chart units scripts kuberay image
  step "packages" ensure_packages ask
  step "venv" ensure_venv
  step "tools" ensure_deploy_tools
  step "configure" configure build
  step "build" build_into build sheaf sheaf_python
  for area; do
    say "deploy $area"
    began=$SECONDS
    result=0
    log=$(mktemp)
    check_deploy "$area" 2>&1 | tee "$log" || result=$?
    ((result == 0)) || status=1
    ((result != 0)) || grep -qE '^(Ran [1-9]|[0-9]+ passed)' "$log" || result=77
    record_deploy "$area" "$began" "$result" "$log"
  done
  return "$status"
}

# What `./do kube` runs beside what `./do deploy` needs.
kube_packages() { echo etcd-server iproute2 openssl; }
kubernetes_version() { echo v1.34.2; }

# Kubernetes' API server and controller manager, into build/kube/bin.
ensure_control_plane() {
  local folder=$PWD/build/kube
  local wanted="$(kubernetes_version) $(cat tests/kube/go/* | sha256sum)"
  [[ -x $folder/bin/control_plane && $(cat "$folder/bin/.control_plane" 2>/dev/null) == "$wanted" ]] && return
  note "building Kubernetes' control plane from its sources, once; that takes up to an hour"
  tests/kube/go/build.sh "$(kubernetes_version)" "$folder" "$(jobs)" || return 1
  echo "$wanted" >"$folder/bin/.control_plane"
}

kube() {
  local missing began result=0 log
  ((EUID == 0)) || fail "kube: pods get networks and users of their own, which root alone can give them: sudo ./do kube"
  step "packages" ensure_packages ask
  missing=$(missing_packages $(kube_packages))
  [[ -z $missing ]] || step "packages" apt_install $missing
  step "venv" ensure_venv
  step "helm" ensure_deploy_program "$(deploy_programs | tr ' ' '\n' | grep /helm@)"
  step "control plane" ensure_control_plane
  step "configure" configure build
  step "build" build_into build sheaf sheaf_python
  say "kube"
  began=$SECONDS
  log=$(mktemp)
  # A network and processes of its own: nothing of it is left, whatever happens.
  unshare --net --mount --pid --fork --kill-child --mount-proc python3 tests/kube/kube_test.py \
    build/kube/bin/control_plane build/deploy/bin/helm build/kube/run -v 2>&1 | tee "$log" || result=$?
  record_deploy kube "$began" "$result" "$log"
  return "$result"
}

# record_deploy AREA BEGAN RESULT LOG: the row of docs/evidence/deploy.md.
record_deploy() {
  echo "| $1 | $((SECONDS - $2)) s | $(deploy_figure "$4") | $(if (($3 == 0)); then echo passed; elif (($3 == 77)); then echo skipped; else echo FAILED; fi) |" |
    python3 tools/evidence.py deploy.md deploy
  rm -f "$4"
  note "the results are in docs/evidence/deploy.md"
}

# What a run says of itself: how many tests, and the sizes of images.
deploy_figure() {
  sed -n 's/^Ran \([0-9]* tests\).*/\1/p; s/^\([0-9]*\) passed\(, [0-9]* skipped\)*.*/\1 tests\2/p
    s/^OK (skipped=\([0-9]*\))/\1 skipped/p; s/^\([0-9]* skipped\).*/\1/p; s/^.*\/\(sheaf-[^ ]*\)\.oci\.tar: .*, \([0-9]* MB\) compressed/\1 \2/p' "$1" |
    sort -u | paste -sd ',' | sed 's/, */, /g'
}

# The sources of the page and, beside them, the packages that its lock names: npm writes into build/ alone.
ensure_web_packages() {
  command -v node >/dev/null && command -v npm >/dev/null || fail "the page is built by Node.js 20 and npm: apt-get install nodejs npm"
  mkdir -p build/web
  rm -rf build/web/src
  cp -R dashboard/web/. build/web/
  cmp -s dashboard/web/package-lock.json build/web/.installed && return
  (cd build/web && npm ci --no-audit --no-fund --ignore-scripts) || fail "npm could not install the packages of dashboard/web/package-lock.json"
  cp dashboard/web/package-lock.json build/web/.installed
}

page() {
  step "packages" ensure_web_packages
  step "types" build/web/node_modules/.bin/tsc --noEmit -p build/web
  step "page" env -C build/web node build.mjs "$PWD/dashboard/dist"
  note "$(cat dashboard/dist/* | gzip -9 | wc -c) bytes, compressed"
}

browser() {
  command -v chromium >/dev/null || fail "the page is tried in Chromium: apt-get install chromium"
  step "packages" ensure_web_packages
  {
    step "packages" ensure_packages ask
    step "venv" ensure_venv
    step "configure" configure build
    step "build" build_into build sheaf sheaf_python
  }
  say "browser"
  PYTHONPATH=$PWD/build/python:$PWD/tests/python build/venv/bin/python tests/dashboard/browser.py build/web/node_modules build/browser "$@"
}

soak() {
  step "packages" ensure_packages ask
  step "venv" ensure_venv
  [[ -x build/venv/bin/python ]] || fail "no build/venv: the rows of several nodes need the Python package"
  step "configure" configure build
  step "build" build_into build fault_test disk_shim sheaf sheaf_python sim strange_peer examples/{word_count,counter,digits,train_digits}
  step "soak" build/venv/bin/python tests/integration/faults/soak.py build/tests/integration/faults/fault_test build/cli/sheaf "$@"
}

# What `./do monitoring` needs beyond the build; the boards' types come from npm.
monitoring_tools() { echo promtool prometheus amtool npm; }

monitoring() {
  local name rows=build/monitoring.rows
  step "packages" ensure_packages ask
  ensure_test_packages
  for name in $(monitoring_tools); do
    command -v "$name" >/dev/null || [[ -x build/prometheus/usr/bin/$name ]] ||
      fail "$name is missing: apt-get install --no-install-recommends prometheus prometheus-alertmanager npm"
  done
  step "venv" ensure_venv
  [[ -x build/venv/bin/python ]] || fail "no build/venv: the workload is in Python"
  step "configure" configure build
  step "build" build_into build sheaf sheaf_python
  step "what is shipped" python3 tests/monitoring/shipped_test.py build/prometheus/usr/bin
  : >"$rows"
  step "types" python3 tests/monitoring/board_types.py build/board-types | tee -a "$rows"
  PYTHONPATH=$PWD/build/python step "cluster" build/venv/bin/python tests/monitoring/cluster_check.py build/cli/sheaf | tee -a "$rows"
  python3 tools/evidence.py monitoring.md monitoring <"$rows"
}

fuzz_targets() { (cd tests/fuzz && ls ./*_fuzz.cc | sed 's|./||; s/_fuzz.cc//'); }

# What libFuzzer needs beyond g++; without it inputs are mutated by chance alone.
fuzz_packages() { echo clang-19 libclang-rt-19-dev; }

# fuzz: all targets for a minute each, the results into docs/evidence/fuzz.md. fuzz TARGET [SECONDS] [LIBFUZZER_FLAG...]: one.
fuzz() {
  local target=${1:-} seconds=${2:-} compiler targets status=0 rows='' began guided=yes
  if [[ -n $target && $target != all ]]; then
    [[ -e tests/fuzz/${target}_fuzz.cc ]] || fail "fuzz '$target': want one of $(fuzz_targets | tr '\n' ' ')"
    targets=$target
    seconds=${seconds:-60}
  else
    targets=$(fuzz_targets)
    seconds=${seconds:-60}
  fi
  [[ $seconds =~ ^[0-9]+$ ]] || fail "fuzz for '$seconds' seconds: want a number"
  step "packages" ensure_packages ask
  if command -v apt-get >/dev/null && can_be_root; then
    local missing
    missing=$(missing_packages $(fuzz_packages))
    [[ -z $missing ]] || (apt_install $missing) || note "could not install: $missing"
  fi
  compiler=$(command -v clang++-19 || command -v clang++ || true)
  if [[ -n $compiler ]] && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$compiler" -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
    step "configure" configure build-fuzz -DCMAKE_CXX_COMPILER="$compiler" -DSHEAF_SANITIZE=address -DSHEAF_FUZZ=ON
    step "build" build_into build-fuzz $(printf '%s_fuzz ' $targets)
  else
    note "no clang with libFuzzer here (apt-get install $(fuzz_packages)): inputs are mutated by chance alone"
    guided=no
    step "configure" configure build
    step "build" build_into build $(printf '%s_fuzz ' $targets)
  fi
  for target in $targets; do
    local log result=0
    log=$(mktemp)
    began=$SECONDS
    say "fuzz $target"
    if [[ $guided == yes ]]; then
      mkdir -p "build-fuzz/corpus/$target"
      "build-fuzz/tests/fuzz/${target}_fuzz" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/${target}-" "${@:3}" "build-fuzz/corpus/$target" 2>&1 | tee "$log" | tail -n 25 || result=1
    else
      "build/tests/fuzz/${target}_fuzz" --seconds "$seconds" 2>&1 | tee "$log" | tail -n 25 || result=1
    fi
    ((result == 0)) || status=1
    rows+="| $target | $((SECONDS - began)) s | $guided | $(fuzz_figure "$log") | $( ((result == 0)) && echo none || echo FOUND) |"$'\n'
    rm -f "$log"
  done
  if [[ ${1:-all} == all ]]; then
    printf '%s' "$rows" | python3 tools/evidence.py fuzz.md fuzz
    note "the results are in docs/evidence/fuzz.md"
  fi
  return "$status"
}

# The number of inputs that a run of either main tried.
fuzz_figure() { sed -n 's/.*number_of_executed_units: *\([0-9]*\).*/\1/p; s/^\([0-9]*\) inputs.*/\1/p' "$1" | tail -n 1; }

main() {
  local command=${1:-}
  (($# > 0)) && shift
  case $command in
    quickstart) quickstart "$@" ;;
    build) build "$@" ;;
    test) run_all_tests "$@" ;;
    bench) bench "$@" ;;
    sanitize) sanitize "$@" ;;
    format) format "$@" ;;
    lint) lint "$@" ;;
    tidy) tidy "$@" ;;
    python) python_package "$@" ;;
    docs) docs ;;
    wheel) wheel "$@" ;;
    peer) peer "$@" ;;
    deploy) deploy "$@" ;;
    kube) kube ;;
    monitoring) monitoring ;;
    page) page ;;
    browser) browser "$@" ;;
    soak) soak "$@" ;;
    fuzz) fuzz "$@" ;;
    clean) rm -rf build build-asan build-tsan build-fuzz ;;
    "" | help | --help | -h) usage ;;
    *)
      printf 'do: there is no command "%s".\n\n' "$command" >&2
      usage >&2
      exit 2
      ;;
  esac
}

main "$@"
