# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A task of Airflow (2.10 and later, 3) that is a job of a Sheaf cluster.

    SheafJobOperator(task_id="train", address="http://head:8265", entrypoint="python train.py",
                     runtime_env={"working_dir": "/opt/train"}, deferrable=True)

The job's name is made of the names of DAG, run and task and of the try. So what runs a try again,
after a scheduler or a worker of Airflow was lost, attaches to the job that is there; and a retry
while the job of an earlier try still runs attaches to that one instead of running the work twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

try:
    from airflow.sdk import BaseOperator
except ImportError:
    from airflow.models import BaseOperator  # Airflow 2.
from airflow.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sheaf.job_submission import JobDetails, JobStatus, JobSubmissionClient

_LONGEST_ID = 128
_FIELDS = (
    "entrypoint",
    "runtime_env",
    "metadata",
    "entrypoint_num_cpus",
    "entrypoint_num_gpus",
    "entrypoint_memory",
    "entrypoint_resources",
    "entrypoint_label_selector",
)


def submission_id(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Returns the name of the job of a try: equal for equal arguments, different for others.

    Args:
        dag_id: of the task.
        run_id: of the run of its DAG.
        task_id: of the task.
        map_index: of a mapped task; -1 of others.
        try_number: from 1.
    """
    parts = [dag_id, run_id, task_id, str(map_index), str(try_number)]
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    words = re.sub(r"[^A-Za-z0-9_.-]", "_", f"airflow-{dag_id}-{task_id}")
    return f"{words[: _LONGEST_ID - 30]}-{try_number}-{mark}"


class SheafJobOperator(BaseOperator):  # type: ignore[misc]
    """Runs a command as a job of a cluster, shows what it prints in the task's log, and fails when
    it fails. A task that is killed stops its job.

    Args:
        entrypoint: the command, for `sh -c`.
        address: "http://HOST:PORT" of a dashboard; None: as JobSubmissionClient finds one.
        runtime_env: the job's environment.
        metadata: texts to keep with it.
        entrypoint_num_cpus: CPUs that the command itself holds; so are the next ones.
        entrypoint_num_gpus: GPUs.
        entrypoint_memory: bytes.
        entrypoint_resources: further amounts, by name.
        entrypoint_label_selector: which nodes it may run on.
        headers: sent with each request, as {"Authorization": "Bearer TOKEN"}.
        verify: of the server's certificate, as JobSubmissionClient has it.
        deferrable: whether the task waits in the triggerer instead of holding a worker's slot.
        others: of BaseOperator.
    """

    template_fields: Sequence[str] = ("address", "headers", *_FIELDS)

    def __init__(
        self,
        *,
        entrypoint: str,
        address: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
        entrypoint_num_cpus: float | None = None,
        entrypoint_num_gpus: float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: dict[str, float] | None = None,
        entrypoint_label_selector: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        verify: str | bool = True,
        deferrable: bool = False,
        **others: Any,
    ):
        super().__init__(**others)
        self.entrypoint = entrypoint
        self.address = address
        self.runtime_env = runtime_env
        self.metadata = metadata
        self.entrypoint_num_cpus = entrypoint_num_cpus
        self.entrypoint_num_gpus = entrypoint_num_gpus
        self.entrypoint_memory = entrypoint_memory
        self.entrypoint_resources = entrypoint_resources
        self.entrypoint_label_selector = entrypoint_label_selector
        self.headers = headers
        self.verify = verify
        self.deferrable = deferrable
        self._job: str | None = None

    def _client(self) -> JobSubmissionClient:
        return JobSubmissionClient(self.address, headers=self.headers, verify=self.verify)

    def _attach(self, client: JobSubmissionClient, context: Any) -> str:
        """The job of this try, or one of an earlier try that has not ended; submits none twice."""
        ti = context["ti"]
        names = [
            submission_id(ti.dag_id, ti.run_id, ti.task_id, ti.map_index, number)
            for number in range(ti.try_number, 0, -1)
        ]
        for name in names:
            known = _known(client, name)
            if known is not None and (name == names[0] or not known.status.is_terminal()):
                self.log.info("Attaching to job %s, which is %s", name, known.status)
                return name
        wanted = {field: getattr(self, field) for field in _FIELDS}
        job = client.submit_job(submission_id=names[0], **wanted)
        self.log.info("Submitted job %s to %s", job, client.get_address())
        return job

    def execute(self, context: Any) -> str:
        """Runs the job, or waits for it in the triggerer.

        Args:
            context: of Airflow.

        Returns:
            The submission id.

        Raises:
            AirflowException: the job failed, or was stopped.
        """
        client = self._client()
        self._job = self._attach(client, context)
        if self.deferrable:
            self.defer(
                trigger=SheafJobTrigger(self._job, self.address, self.headers, self.verify),
                method_name="execute_complete",
            )
        asyncio.run(self._follow(client, self._job))
        return _judged(client.get_job_info(self._job), self._job)

    async def _follow(self, client: JobSubmissionClient, job: str) -> None:
        async for line in _lines(client, job):
            self.log.info("%s", line)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> str:
        """Goes on when the trigger has fired.

        Args:
            context: of Airflow.
            event: of the trigger.

        Returns:
            The submission id.

        Raises:
            AirflowException: the job failed, or was stopped, or its cluster does not answer.
        """
        del context
        self._job = event["job"]
        if event.get("error"):
            raise AirflowException(f"job {event['job']}: {event['error']}")
        return _judged(self._client().get_job_info(event["job"]), event["job"])

    def on_kill(self) -> None:
        """Stops the job."""
        if self._job is not None:
            self.log.info("Stopping job %s", self._job)
            self._client().stop_job(self._job)


class SheafJobTrigger(BaseTrigger):  # type: ignore[misc]
    """Follows a job to its end, with what it prints in the trigger's log.

    Args:
        job: its submission id.
        address: as SheafJobOperator has it; so are the next ones.
        headers: sent with each request.
        verify: of the server's certificate.
    """

    def __init__(
        self,
        job: str,
        address: str | None = None,
        headers: dict[str, str] | None = None,
        verify: str | bool = True,
    ):
        super().__init__()
        self.job = job
        self.address = address
        self.headers = headers
        self.verify = verify

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns what makes an equal trigger."""
        return f"{__name__}.SheafJobTrigger", {
            "job": self.job,
            "address": self.address,
            "headers": self.headers,
            "verify": self.verify,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields one event when the job has ended, or cannot be followed any more."""
        try:
            client = await asyncio.to_thread(
                JobSubmissionClient, self.address, headers=self.headers, verify=self.verify
            )
            async for line in _lines(client, self.job):
                self.log.info("%s", line)
        except (RuntimeError, OSError) as error:
            yield TriggerEvent({"job": self.job, "error": str(error)})
            return
        yield TriggerEvent({"job": self.job})


async def _lines(client: JobSubmissionClient, job: str) -> AsyncIterator[str]:
    """Each line of what a job prints, without its end."""
    rest = ""
    async for piece in client.tail_job_logs(job):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def _known(client: JobSubmissionClient, job: str) -> JobDetails | None:
    try:
        return client.get_job_info(job)
    except RuntimeError as error:
        if "does not exist" in str(error):
            return None
        raise


def _judged(info: JobDetails, job: str) -> str:
    if info.status != JobStatus.SUCCEEDED:
        raise AirflowException(f"job {job} is {info.status}: {info.message}")
    return job
