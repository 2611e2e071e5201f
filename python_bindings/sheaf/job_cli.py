# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf job`, with the options that `ray job` has."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pprint
import re
import shlex
import sys
import time
from typing import Any

from sheaf._internal import fields_file
from sheaf.job_submission import JobStatus, JobSubmissionClient

NO_NODE = 3  # Exit code, as of `sheaf`.
_HEADERS_VARIABLE = "RAY_JOB_HEADERS"
_STOP_PERIOD_S = 0.5


def _json_of(name: str) -> Any:
    def parse(text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"--{name} is not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise argparse.ArgumentTypeError(f"--{name} is no JSON object: {text}")
        return value

    return parse


def _verify(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("sheaf job", description="Jobs: commands that a cluster runs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, help: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help, description=help)
        one.add_argument(
            "--address",
            help="http://HOST:PORT of a dashboard, or a session directory (default: "
            "RAY_API_SERVER_ADDRESS, RAY_ADDRESS, SHEAF_ADDRESS, else the newest node here)",
        )
        one.add_argument("--headers", help="JSON object of headers to send")
        one.add_argument(
            "--verify",
            type=_verify,
            default=True,
            help="true, false, or the path of the authorities to check the server's certificate",
        )
        one.add_argument("--log-style", help=argparse.SUPPRESS)
        one.add_argument("--log-color", help=argparse.SUPPRESS)
        one.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
        return one

    submit = add("submit", "Submit a command, and show what it prints until it ends")
    submit.add_argument("--job-id", help=argparse.SUPPRESS)
    submit.add_argument("--submission-id", help="names the job (default: a new name)")
    submit.add_argument("--runtime-env", help="path of a file with the environment, YAML or JSON")
    submit.add_argument(
        "--runtime-env-json", type=_json_of("runtime-env-json"), help="the environment as JSON"
    )
    submit.add_argument("--working-dir", help="directory that the job runs in, or the URI of a zip")
    submit.add_argument("--metadata-json", type=_json_of("metadata-json"), help="texts to keep")
    submit.add_argument("--entrypoint-num-cpus", type=float, help="CPUs that the command holds")
    submit.add_argument("--entrypoint-num-gpus", type=float, help="GPUs that it holds")
    submit.add_argument("--entrypoint-memory", type=int, help="bytes of memory that it holds")
    submit.add_argument(
        "--entrypoint-resources", type=_json_of("entrypoint-resources"), help="further amounts"
    )
    submit.add_argument(
        "--entrypoint-label-selector",
        type=_json_of("entrypoint-label-selector"),
        help="which nodes it may run on",
    )
    submit.add_argument("--no-wait", action="store_true", help="return at once")
    submit.add_argument("entrypoint", nargs=argparse.REMAINDER, help="the command, behind --")
    for name, help in (
        ("status", "Show how a job is"),
        ("stop", "End a job"),
        ("delete", "Forget a job that has ended"),
        ("logs", "Show what a job has printed"),
    ):
        one = add(name, help)
        one.add_argument("job_id", metavar="JOB_ID")
        if name == "stop":
            one.add_argument("--no-wait", action="store_true", help="return at once")
        if name == "logs":
            one.add_argument("-f", "--follow", action="store_true", help="until it ends")
    add("list", "List all jobs")
    return parser


def _client(options: argparse.Namespace) -> JobSubmissionClient:
    text = options.headers or os.environ.get(_HEADERS_VARIABLE)
    headers = None
    if text is not None:
        try:
            headers = json.loads(text)
        except ValueError as error:
            raise ValueError(
                "Failed to parse headers into JSON. "
                f'Expected format: {{"KEY": "VALUE"}}, got {text}, {error}'
            ) from None
    client = JobSubmissionClient(
        options.address, options.command == "submit", headers=headers, verify=options.verify
    )
    shown = re.sub(r"(https?://[^:/@]*):[^@/]*@", r"\1:<redacted>@", client.get_address())
    if options.command != "logs" or options.verbose:
        _say(f"Job submission server address: {shown}")
    return client


def _say(words: str) -> None:
    print(words, flush=True)


def _say_large(words: str) -> None:
    line = "-" * len(words)
    _say(f"\n{line}\n{words}\n{line}\n")


def _runtime_env(options: argparse.Namespace) -> dict[str, Any]:
    if options.runtime_env and options.runtime_env_json:
        raise ValueError("Only one of --runtime-env and --runtime-env-json can be provided.")
    fields: dict[str, Any] = dict(options.runtime_env_json or {})
    if options.runtime_env:
        fields = fields_file.read(options.runtime_env)
    if options.working_dir:
        fields["working_dir"] = options.working_dir
    return fields


def _show_status(client: JobSubmissionClient, job_id: str) -> JobStatus:
    info = client.get_job_info(job_id)
    if info.status == JobStatus.SUCCEEDED:
        _say_large(f"Job '{job_id}' succeeded")
    elif info.status == JobStatus.STOPPED:
        _say(f"Job '{job_id}' was stopped")
    elif info.status == JobStatus.FAILED:
        _say_large(f"Job '{job_id}' failed")
        _say(f"Status message: {info.message}")
    else:
        _say(f"Status for job '{job_id}': {info.status}")
        _say(f"Status message: {info.message}")
    return info.status


def _follow(client: JobSubmissionClient, job_id: str) -> JobStatus:
    async def show() -> None:
        async for lines in client.tail_job_logs(job_id):
            print(lines, end="", flush=True)

    asyncio.run(show())
    return _show_status(client, job_id)


def _submit(options: argparse.Namespace) -> int:
    entrypoint = options.entrypoint
    if entrypoint and entrypoint[0] == "--":
        entrypoint = entrypoint[1:]
    if not entrypoint:
        print("sheaf job submit: which command? As: -- python main.py", file=sys.stderr)
        return 2
    runtime_env = _runtime_env(options)
    client = _client(options)
    job_id = client.submit_job(
        entrypoint=shlex.join(entrypoint),
        submission_id=options.submission_id or options.job_id,
        runtime_env=runtime_env,
        metadata=options.metadata_json,
        entrypoint_num_cpus=options.entrypoint_num_cpus,
        entrypoint_num_gpus=options.entrypoint_num_gpus,
        entrypoint_memory=options.entrypoint_memory,
        entrypoint_resources=options.entrypoint_resources,
        entrypoint_label_selector=options.entrypoint_label_selector,
    )
    _say_large(f"Job '{job_id}' submitted successfully")
    _say("Next steps")
    _say(f"  Query the logs of the job:\n    sheaf job logs {job_id}")
    _say(f"  Query the status of the job:\n    sheaf job status {job_id}")
    _say(f"  Request the job to be stopped:\n    sheaf job stop {job_id}\n")
    if options.no_wait:
        return 0
    _say("Tailing logs until the job exits (disable with --no-wait):")
    return 1 if _follow(client, job_id) == JobStatus.FAILED else 0


def _stop(options: argparse.Namespace) -> int:
    client = _client(options)
    _say(f"Attempting to stop job '{options.job_id}'")
    client.stop_job(options.job_id)
    if options.no_wait:
        return 0
    _say(f"Waiting for job '{options.job_id}' to exit (disable with --no-wait):")
    while not (status := client.get_job_status(options.job_id)).is_terminal():
        _say(f"Job has not exited yet. Status: {status}")
        time.sleep(_STOP_PERIOD_S)
    _show_status(client, options.job_id)
    return 0


def _logs(options: argparse.Namespace) -> int:
    client = _client(options)
    if options.follow:
        _follow(client, options.job_id)
    else:
        print(client.get_job_logs(options.job_id), end="")
    return 0


def _delete(options: argparse.Namespace) -> int:
    _client(options).delete_job(options.job_id)
    _say(f"Job '{options.job_id}' deleted successfully")
    return 0


def _status(options: argparse.Namespace) -> int:
    _show_status(_client(options), options.job_id)
    return 0


def _list(options: argparse.Namespace) -> int:
    _say(pprint.pformat(_client(options).list_jobs()))
    return 0


_RUN = {
    "submit": _submit,
    "stop": _stop,
    "logs": _logs,
    "delete": _delete,
    "status": _status,
    "list": _list,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: those of the command line; None: this process's.

    Returns:
        The exit status: 0 done, 1 it failed or the job has, 2 the command line means nothing, 3 no
        node runs.
    """
    options = _parser().parse_args(arguments)
    try:
        return _RUN[options.command](options)
    except ConnectionError as error:
        print(f"sheaf job: {error}", file=sys.stderr)
        return NO_NODE
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        print(f"sheaf job: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
