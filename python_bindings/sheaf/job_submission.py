# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Submits commands to a cluster and follows them, over HTTP: by the classes of this module, or as
`sheaf job`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from sheaf._internal import job_server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class JobStatus(str, enum.Enum):  # noqa: UP042 (str() is as Ray has it)
    """The state of a submitted job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def __str__(self) -> str:
        return self.value

    def is_terminal(self) -> bool:
        """Returns whether the job has ended."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class JobErrorType(str, enum.Enum):  # noqa: UP042
    """Why a job has failed."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
    JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE = "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE"
    JOB_SUPERVISOR_ACTOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


class JobType(str, enum.Enum):  # noqa: UP042
    """What a job is: a submitted command, or a driver that joined by itself."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


@dataclasses.dataclass
class DriverInfo:
    """The driver of a job.

    Args:
        id: of its job, in hexadecimal.
        node_ip_address: where it runs.
        pid: of its process.
    """

    id: str
    node_ip_address: str
    pid: str


@dataclasses.dataclass
class JobInfo:
    """How a submitted job is.

    Args:
        status: its state.
        entrypoint: its command.
        message: the state in words.
        error_type: why it failed, a JobErrorType.
        start_time: when it was accepted, in milliseconds since 1970.
        end_time: when it ended.
        metadata: texts of who submitted it, by name.
        runtime_env: its environment.
        driver_agent_http_address: always None.
        driver_node_id: the node that it runs on, in hexadecimal.
        driver_exit_code: of the command.
    """

    status: JobStatus
    entrypoint: str
    message: str | None = None
    error_type: JobErrorType | str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def __post_init__(self) -> None:
        self.status = JobStatus(self.status)


@dataclasses.dataclass
class JobDetails(JobInfo):
    """The same of any job, with what names it.

    Args:
        type: a submission or a driver.
        job_id: of its (last) driver, in hexadecimal.
        submission_id: of a submission.
        driver_info: its (last) driver.
    """

    type: JobType = JobType.SUBMISSION
    job_id: str | None = None
    submission_id: str | None = None
    driver_info: DriverInfo | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.type = JobType(self.type)
        if isinstance(self.driver_info, dict):
            self.driver_info = DriverInfo(**self.driver_info)

    def dict(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return dataclasses.asdict(self)


def _details(row: dict[str, Any]) -> JobDetails:
    known = {field.name for field in dataclasses.fields(JobDetails)}
    return JobDetails(**{name: value for name, value in row.items() if name in known})


class JobSubmissionClient:
    """Speaks to a cluster's job server. Thread-safe.

    Args:
        address: "http://host:port" or "https://..." of a dashboard; a session directory, "auto", or
            None (RAY_API_SERVER_ADDRESS, RAY_ADDRESS, SHEAF_ADDRESS, else the newest node of this
            machine): the dashboard of that node.
        create_cluster_if_needed: without effect.
        cookies: sent with each request, by name.
        metadata: added to that of each job.
        headers: sent with each request, by name.
        verify: whether the server's certificate is checked, or the path of the authorities (a file
            or a folder) to check it with.

    Raises:
        ConnectionError: nobody answers there.
        RuntimeError: who answers is no such server.
        TypeError: an argument has the wrong type.
    """

    def __init__(
        self,
        address: str | None = None,
        create_cluster_if_needed: bool = False,
        cookies: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        verify: str | bool | None = True,
    ):
        if address is not None and not isinstance(address, str):
            raise TypeError(f"address must be a string, got {type(address)}")
        if not isinstance(create_cluster_if_needed, bool):
            raise TypeError(
                f"create_cluster_if_needed must be a bool, got {type(create_cluster_if_needed)}"
            )
        for name, given in (("cookies", cookies), ("metadata", metadata), ("headers", headers)):
            if given is not None and not isinstance(given, dict):
                raise TypeError(f"{name} must be a dict, got {type(given)}")
        if not isinstance(verify, (str, bool)):
            raise TypeError(f"verify must be a str or bool, got {type(verify)}")
        self._metadata = dict(metadata or {})
        self._server = job_server.Server(address, cookies or {}, headers or {}, verify)
        self._server.ask("GET", "/api/version")

    def get_address(self) -> str:
        """Returns the URL of the server."""
        return self._server.url

    def get_version(self) -> str:
        """Returns the version of the job server's protocol.

        Raises:
            RuntimeError: the server refuses.
        """
        return str(self._server.ask("GET", "/api/version")["version"])

    def submit_job(
        self,
        *,
        entrypoint: str,
        job_id: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
        submission_id: str | None = None,
        entrypoint_num_cpus: float | None = None,
        entrypoint_num_gpus: float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: dict[str, float] | None = None,
        entrypoint_label_selector: dict[str, str] | None = None,
    ) -> str:
        """Submits a command, which then runs once, and returns at once.

        A request whose answer is lost is repeated, and counts once.

        Args:
            entrypoint: the command, for `sh -c`.
            job_id: the old name of `submission_id`.
            runtime_env: its environment, and that of its drivers; local directories are uploaded.
            metadata: texts to keep with it, by name.
            submission_id: names it; None: a name is made.
            entrypoint_num_cpus: CPUs that the command itself holds.
            entrypoint_num_gpus: GPUs that it holds.
            entrypoint_memory: bytes of memory that it holds.
            entrypoint_resources: further amounts, by name.
            entrypoint_label_selector: which nodes it may run on.

        Returns:
            The submission id.

        Raises:
            RuntimeError: the server refuses: the id is used, or a field is wrong.
            ValueError: a directory of the environment is not there, or too large.
        """
        if job_server.refuses_hook(runtime_env):
            raise ValueError(
                "Invalid type for `worker_process_setup_hook`. When a job submission API is used, "
                "`worker_process_setup_hook` only allows a string type (module name)."
            )
        wanted = {
            "entrypoint": entrypoint,
            "submission_id": submission_id or job_id or job_server.new_submission_id(),
            "runtime_env": self._server.upload(runtime_env or {}),
            "metadata": {**(metadata or {}), **self._metadata},
            "entrypoint_num_cpus": entrypoint_num_cpus,
            "entrypoint_num_gpus": entrypoint_num_gpus,
            "entrypoint_memory": entrypoint_memory,
            "entrypoint_resources": entrypoint_resources,
            "entrypoint_label_selector": entrypoint_label_selector,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        return str(self._server.ask("POST", "/api/jobs/", body, repeats=True)["submission_id"])

    def stop_job(self, job_id: str) -> bool:
        """Tells a job to end: its processes are asked to, and killed 3 s later.

        Args:
            job_id: its submission id, or the id of a driver of it.

        Returns:
            Whether it ran.

        Raises:
            RuntimeError: there is no such job.
        """
        path = f"/api/jobs/{job_server.quoted(job_id)}/stop"
        return bool(self._server.ask("POST", path, repeats=True)["stopped"])

    def delete_job(self, job_id: str) -> bool:
        """Forgets a job that has ended; its log stays.

        Args:
            job_id: as stop_job takes it.

        Returns:
            True.

        Raises:
            RuntimeError: there is no such job, or it has not ended.
        """
        path = f"/api/jobs/{job_server.quoted(job_id)}"
        return bool(self._server.ask("DELETE", path)["deleted"])

    def get_job_info(self, job_id: str) -> JobDetails:
        """Returns how a job is.

        Args:
            job_id: as stop_job takes it, or a driver's.

        Raises:
            RuntimeError: there is no such job.
        """
        return _details(self._server.ask("GET", f"/api/jobs/{job_server.quoted(job_id)}"))

    def list_jobs(self) -> list[JobDetails]:
        """Returns all jobs: submissions, the newest first, then drivers.

        Raises:
            RuntimeError: the server refuses.
        """
        return [_details(row) for row in self._server.ask("GET", "/api/jobs/")]

    def get_job_status(self, job_id: str) -> JobStatus:
        """Returns the state of a job.

        Args:
            job_id: as get_job_info takes it.

        Raises:
            RuntimeError: there is no such job.
        """
        return self.get_job_info(job_id).status

    def get_job_logs(self, job_id: str) -> str:
        """Returns what a job has printed so far; of a long log the last 64 MiB.

        Args:
            job_id: as stop_job takes it.

        Raises:
            RuntimeError: there is no such job, or it was not submitted.
        """
        return str(self._server.ask("GET", f"/api/jobs/{job_server.quoted(job_id)}/logs")["logs"])

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Follows what a job prints, from the beginning to its end, whatever becomes of the
        connection meanwhile.

        Args:
            job_id: as stop_job takes it.

        Yields:
            Pieces of its output.

        Raises:
            RuntimeError: there is no such job.
            ConnectionError: nobody has answered for a minute.
        """
        import asyncio

        pieces = self._server.follow(f"/api/sheaf/jobs/{job_server.quoted(job_id)}/logs")
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
