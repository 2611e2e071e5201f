# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The structure of Sheaf as tables, and a check of a source tree against them.

A row here is changed together with the reason for it in ARCHITECTURE.md or docs/design/.
"""

import dataclasses
import fnmatch
import pathlib
import re

# Folder -> the folders whose headers it may include and whose targets it may link. Only downwards,
# never sideways.
MAY_USE = {
    "base": "",
    "proto": "",
    "arrow": "base",
    "shm": "base",
    "http": "base",
    "metrics": "base http shm",
    "telemetry": "base proto shm",
    "rpc": "base proto metrics",
    "object_store": "base shm metrics",
    "collective": "base shm metrics",
    "scheduling": "base proto",
    "gcs": "base proto metrics rpc scheduling",
    "raylet": "base proto shm metrics telemetry rpc object_store scheduling",
    "worker": "base proto shm metrics telemetry object_store collective",
    "api": "base shm worker object_store collective telemetry",
    "python_bindings": "api worker object_store collective telemetry arrow base",
    "dashboard": "base proto http telemetry",
    "cli": "base proto shm http dashboard rpc metrics telemetry object_store gcs raylet",
    "examples": "api",
}
MAY_USE = {folder: set(names.split()) for folder, names in MAY_USE.items()}
# Folder below one of these -> what of the same top folder it may include besides itself: folders or
# single headers. What is not named here lies at the top and may include all of its own.
SUBFOLDERS = {
    "api/sampling": "",
    "collective/shm": "collective",
    "collective/net": "collective collective/shm",
    "collective/nccl": "collective collective/net",
    "dashboard/logs": "dashboard/asker.h dashboard/gcs_question.h dashboard/job_server.h"
    " dashboard/process_names.h dashboard/state_rows.h dashboard/state_table.h",
    "dashboard/observe": "dashboard/asker.h dashboard/process_names.h",
    "dashboard/page": "dashboard/observe",
    "dashboard/tables": "dashboard/asker.h dashboard/gcs_question.h",  # What changes an actor.
    "gcs/actors": "gcs/command_pipeline.h gcs/gcs_options.h gcs/job_table.h gcs/node_table.h"
    " gcs/placement_groups gcs/publisher.h gcs/reply.h",
    "gcs/events": "",
    "gcs/placement_groups": "gcs/command_pipeline.h gcs/gcs_options.h gcs/node_table.h gcs/reply.h",
    "gcs/storage": "",
    "gcs/submissions": "gcs/actors gcs/command_pipeline.h gcs/gcs_options.h gcs/node_table.h gcs/reply.h",
    "object_store/arena": "object_store/layout.h object_store/machine_memory.h"
    " object_store/messages.h",
    "object_store/server": "object_store/layout.h object_store/messages.h object_store/arena",
    "raylet/cluster": "raylet/death_register.h raylet/node_tables.h raylet/raylet_options.h"
    " raylet/scheduling",
    "raylet/jobs": "raylet/cluster raylet/death_register.h raylet/host/worker_variables.h"
    " raylet/logs"
    " raylet/node_tables.h raylet/objects/argument_admission.h raylet/raylet_options.h"
    " raylet/scheduling raylet/workers",
    "raylet/entrypoints": "raylet/host raylet/logs raylet/workers",
    "raylet/scheduling": "",
    "raylet/workers": "",
    "raylet/objects": "raylet/death_register.h",
    "raylet/logs": "",
    "raylet/queries": "raylet/cluster/gcs_link.h raylet/node_tables.h raylet/raylet_options.h"
    " raylet/logs raylet/objects raylet/scheduling raylet/workers",
    "raylet/host": "raylet/logs raylet/objects raylet/workers",
    "raylet/inspect": "raylet/host raylet/workers",
    "python_bindings/arrow": "python_bindings/core/process.h python_bindings/core/python.h",
    "python_bindings/core": "python_bindings/arrow/kernels.h",  # The module binds them.
    "rpc/security": "",
    "rpc/blocks": "rpc/fetch_session.h rpc/links.h rpc/listen_address.h rpc/security",
    "worker/owner": "worker/describe_death.h worker/limits.h worker/runtime.h worker/wire.h",
    "worker/executor": "worker/limits.h worker/runtime.h worker/wire.h worker/owner",
    "worker/core": "worker/describe_death.h worker/limits.h worker/owner_state.h worker/runtime.h"
    " worker/wire.h"
    " worker/executor worker/owner",
}
SUBFOLDERS = {folder: set(names.split()) for folder, names in SUBFOLDERS.items()}
# Folder of the Python package -> what of the package its modules may import besides itself: folders;
# "." stands for the modules at the top, which are what programs import, "_core" for the extension.
PYTHON_FOLDERS = {
    ".": "_core _internal util",
    "_internal": "_core",  # What the public modules are made of.
    "_worker": "_core _internal .",  # The extension calls it, by name.
    "_pyinstaller": "_worker",  # A frozen program becomes a worker there.
    "_ray": "_core _internal . util",  # Names that only programs written for Ray know.
    "cloudpickle": "",
    "experimental": "_core _internal . util",
    "util": "_core _internal .",
    "air": ".",  # What the libraries below have in common.
    "arrow": "_core",  # The extension's kernels over tables; needs no cluster.
    "integrations": ".",  # Into programs that know nothing of Sheaf.
    "train": ". air util",  # As a library of a user's own would: no _core, no _internal.
    "data": ". air arrow cloudpickle experimental util",  # Where a block lies is in experimental.
    "tune": ". air cloudpickle util",  # No library imports another.
}
PYTHON_FOLDERS = {folder: set(names.split()) for folder, names in PYTHON_FOLDERS.items()}
USES_EVERYTHING = {"tests", "benchmarks"}  # And nothing uses them.


@dataclasses.dataclass(frozen=True)
class WorldRule:
    """Which files may touch one part of the world. All others run unchanged in tests/sim."""

    what: str
    pattern: str  # On code without comments and string contents.
    files: str  # Globs, relative to the root.


# A name that is called as a plain function: not a method, not of a namespace other than the global
# one and std.
def _call(names: str, spaces: str = "std::|::") -> str:
    return rf"(?<![\w.>:~])(?:{spaces})?(?:{names})\s*\("


WORLD = [
    # The last two: wall time as a label.
    WorldRule(
        "the clock",
        r"clock_gettime|gettimeofday|(?:steady|system|high_resolution)_clock::now|" + _call("time"),
        "base/clock.* base/log.* raylet/host/worker_observer.* cli/node_plan.*",
    ),
    WorldRule(
        "sleeping",
        r"this_thread::sleep|absl::SleepFor|" + _call("nanosleep|clock_nanosleep|usleep|sleep"),
        "base/clock.* base/executor.* raylet/host/process_launcher* raylet/entrypoints/entrypoint_processes.* "
        "raylet/raylet_process.* api/embedded_node.* cli/drain.* cli/logs/command.* "
        "base/session_directory.*",
    ),
    # The system's resolver can be neither bounded nor broken off. A runtime has one background thread,
    # the threads of its actor's groups, and those of
    # callbacks; parallel_copy borrows idle cores; a blocking_call may have to be left alone.
    WorldRule(
        "threads",
        r"std::(?:j?thread|async)\b|" + _call("pthread_create"),
        "base/executor.* http/host_lookup.* http/server.* telemetry/task_collector.* worker/runtime_* "
        "worker/callback_runner.* object_store/parallel_copy.* collective/nccl/blocking_call.*",
    ),
    # The last: between nodes.
    WorldRule(
        "sockets",
        _call("socket|socketpair|accept|accept4|listen|bind|connect|sendmsg|recvmsg", "::"),
        "base/unix_socket.* rpc/grpc_* rpc/route_address.* http/peer_user.* cli/dashboard/child.* "
        "cli/service/service_notifier.* "
        "collective/net/node_socket.* rpc/blocks/block_socket.*",
    ),
    # The last asks the kernel what it can.
    WorldRule(
        "memory mappings",
        r"mapped_region|"
        + _call("mmap|mmap64|munmap|mremap|mprotect|madvise|memfd_create|shm_open"),
        "shm/segment.* shm/child_mapping.* raylet/host/machine.* arrow/memory.*",
    ),
    WorldRule("futexes", r"\bFUTEX_|SYS_futex", "shm/doorbell.*"),
    # Two become Python; the last waits for its GCS.
    WorldRule(
        "processes",
        _call(
            "fork|vfork|clone|clone3|posix_spawn|posix_spawnp|exec[lv]p?e?|fexecve|waitpid|waitid|daemon"
        ),
        "raylet/host/process_launcher* raylet/host/spawn.* raylet/host/stray_hunter.* "
        "raylet/entrypoints/entrypoint_* "
        "base/worker_template.* api/embedded_node.* api/python_worker.* "
        "cli/start.* cli/run.* cli/gcs_child.* cli/dashboard/child.*",
    ),
    # A driver's environment, whole, goes to its workers on its own node
    # (raylet/host/worker_variables.h); `sheaf run` adds to Python's search path.
    WorldRule(
        "the environment",
        r"extern char\s*\*\*\s*environ|" + _call("getenv|secure_getenv|setenv|putenv|unsetenv"),
        "base/config.* worker/runtime_attach.* api/embedded_node.* api/python_worker.* cli/run.*",
    ),
    WorldRule(
        "randomness",
        r"std::random_device|std::mt19937|" + _call("rand|srand|random|getrandom|getentropy"),
        "base/random.* base/session_directory.*",
    ),
    # worker/driver, worker/runtime_*: the lock of a process passes from function to function.
    WorldRule(
        "mutexes that clang cannot check",
        r"std::(?:recursive_|shared_|timed_)?mutex|std::condition_variable|"
        r"std::(?:lock_guard|unique_lock|scoped_lock)",
        "base/mutex.h worker/driver.* worker/runtime_* api/compile_fail/*",
    ),
    WorldRule("xxHash", r"xxhash\.h|XXH3_", "arrow/hash.cc"),
    WorldRule("SQLite", r"sqlite3", "gcs/storage/sqlite_storage*"),
    WorldRule("gRPC", r"grpc(?:pp)?/|grpc::", "rpc/grpc_* rpc/security/grpc_*"),
    WorldRule(
        "OpenSSL",
        r"openssl/",
        "rpc/security/hmac.* rpc/security/certificates.* rpc/security/tls_stream.* http/authenticator.* http/certificate_for_test.h",
    ),
    WorldRule(
        "the plain comparison of secrets",  # SameSecret takes the same time for all.
        r"(?:std::equal|memcmp)\([^;]*\b(?:proof|challenge|answer|token|secret|mac)s?_?\b|"
        r"[!=]= *(?:[\w.]+(?:\.|->))?(?:proof|challenge|token|secret|mac)s?_?(?:\[|;|\)| *[&|?])",
        "base/text/same_secret.h",
    ),
    WorldRule("Boost.Beast and Asio", r"boost/(?:beast|asio)", "http/*"),
    WorldRule("NCCL", r"\bnccl[A-Z]", "collective/nccl/*"),
    WorldRule(
        "CLI11, which takes 12 s to compile",
        r"CLI/CLI|CLI::",
        "cli/main.cc cli/flags/* cli/observe/commands.*",
    ),
    WorldRule("spdlog, which takes 6 s to compile", r"spdlog", "base/log.cc"),
    WorldRule(
        "prometheus-cpp", r"prometheus/|prometheus::", "metrics/* cli/node_metrics.* cli/metrics/*"
    ),
]

# `Type name(...)` and `: name(...)`, `, name(...)` of a constructor declare or initialise something
# of that name.
_DECLARES = re.compile(r"(?:(?<!return)(?<!else)(?<!co_await)(?<=[\w>])|[:,])\s+$")


def _touches(rule: WorldRule, line: str) -> bool:
    return any(
        not _DECLARES.search(line[: match.start()]) for match in re.finditer(rule.pattern, line)
    )


VAGUE_NAMES = {"util", "utils", "common", "misc", "manager", "helper", "helpers"}
LICENCE = "Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0"


def strip(text: str) -> str:
    """`text` without comments and without what stands in string literals; line numbers stay."""
    # An #include keeps its path, since the path is what the rules look at.
    pattern = (
        r"(^[ \t]*#[ "
        r'\t]*include[^\n]*)|//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    )

    def keep(match: re.Match) -> str:
        if match.group(1) is not None:
            return match.group(1)
        return ("" if match.group(0).startswith("/") else '""') + "\n" * match.group(0).count("\n")

    return re.sub(pattern, keep, text, flags=re.S | re.M)


def is_test(path: pathlib.PurePath) -> bool:
    return path.name.endswith(("_test.cc", "_for_test.h")) or path.parts[0] in USES_EVERYTHING


def sources(root: pathlib.Path) -> list[pathlib.PurePath]:
    found = []
    for folder in sorted(MAY_USE.keys() | USES_EVERYTHING):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".h") and path.is_file():
                found.append(path.relative_to(root))
    return found


def _folder_of_include(include: str) -> str | None:
    first = include.split("/")[0]
    if first == "sheaf":  # The public headers lie in api/include/sheaf.
        return "api"
    return first if "/" in include and first in MAY_USE.keys() | USES_EVERYTHING else None


def _may_include_beside(path: pathlib.PurePath, include: str) -> bool:
    """Whether a file of a folder in SUBFOLDERS may include this, if it is of its own top folder."""
    allowed = SUBFOLDERS.get(str(path.parent))
    if allowed is None or include.split("/")[0] != path.parts[0]:
        return True
    folder = include.rpartition("/")[0]
    return folder == str(path.parent) or bool({folder, include} & allowed)


def _cmake_words(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)


def _declared(root: pathlib.Path) -> tuple[dict[str, str], dict[str, set[str]], list[str]]:
    """Target -> folder, folder -> targets it names as dependencies, and where CMake folders are
    unknown."""
    owner, names, strange = {}, {}, []
    texts = {}
    for folder in sorted(MAY_USE):
        texts[folder] = ""
        for path in sorted((root / folder).rglob("CMakeLists.txt")):
            texts[folder] += _cmake_words(path.read_text()) + "\n"
        for name in re.findall(r"sheaf_library\(\s*(\w+)", texts[folder]):
            owner[name] = folder
        if "sheaf_proto(" in texts[folder]:
            owner["proto"] = folder
    for folder, text in texts.items():
        used = set()
        # Of the library itself: its unit test may link more.
        for call in re.findall(r"sheaf_library\((.*?)\)", text, flags=re.S):
            depends = re.search(r"\bDEPENDS\b(.*?)(?:\bLINK\b|\bSOURCES\b|$)", call, flags=re.S)
            used |= set(depends.group(1).split()) if depends else set()
        # Never a library of a folder that the row does not have, whoever links it.
        used |= (
            set(
                re.findall(
                    r"\bsheaf_(\w+)",
                    re.sub(r"\bsheaf_(?:library|test|proto|catch_main)\b", "", text),
                )
            )
            & owner.keys()
        )
        for name in sorted(used):
            if name not in owner:
                strange.append(
                    f"{folder}/CMakeLists.txt: DEPENDS {name}: no folder has a library of this name"
                )
        names[folder] = {name for name in used if name in owner}
    return owner, names, strange


def check(root: pathlib.Path) -> list[str]:
    """What in the tree below `root` breaks a rule: one line each, with the place."""
    found = []
    owner, names, strange = _declared(root)
    found += strange
    linked = {folder: {owner[name] for name in used} - {folder} for folder, used in names.items()}
    for folder, folders in sorted(linked.items()):
        for other in sorted(folders - MAY_USE[folder]):
            found.append(f"{folder}/CMakeLists.txt: {folder} may not depend on {other}")

    for path in sources(root):
        text = (root / path).read_text()
        lines = text.splitlines()
        folder = path.parts[0]
        if not lines or LICENCE not in lines[0]:
            found.append(f"{path}:1: the first line is not the licence line")
        if VAGUE_NAMES & set(path.stem.split("_")):
            found.append(f"{path}:1: a name that says nothing about its purpose")
        stripped = strip(text)
        code = stripped.splitlines()
        # Most files touch nothing, which one look at the whole file tells.
        world = [
            rule
            for rule in WORLD
            if re.search(rule.pattern, stripped)
            and not any(fnmatch.fnmatch(str(path), glob) for glob in rule.files.split())
        ]
        for number, line in enumerate(code, 1):
            include = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line) if "#" in line else None
            other = _folder_of_include(include.group(1)) if include else None
            if other is not None and other != folder and folder not in USES_EVERYTHING:
                if other not in MAY_USE[folder]:
                    found.append(f"{path}:{number}: {folder} may not include {other}")
                elif other not in linked[folder] and not is_test(path) and folder != "examples":
                    found.append(
                        f"{path}:{number}: includes {other}, which DEPENDS in "
                        f"{folder}/CMakeLists.txt does not name"
                    )
            if is_test(path) or folder == "examples":
                continue
            if include is not None and not _may_include_beside(path, include.group(1)):
                found.append(f"{path}:{number}: {path.parent} may not include {include.group(1)}")
            for rule in world:
                if _touches(rule, line):
                    found.append(
                        f"{path}:{number}: touches {rule.what}, which only "
                        f"{rule.files} may: {lines[number - 1].strip()}"
                    )
    return found
