# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Submitting jobs; not there yet."""

import enum

from sheaf._internal import absent


class JobStatus(str, enum.Enum):  # noqa: UP042 (str() is as Ray has it)
    """The state of a submitted job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


_INSTEAD = "run the driver where it shall run, with `sheaf.init(address=...)`"
JobSubmissionClient = absent.a_class("job_submission.JobSubmissionClient", _INSTEAD)
JobInfo = absent.a_class("job_submission.JobInfo", _INSTEAD)
DriverInfo = absent.a_class("job_submission.DriverInfo", _INSTEAD)
JobDetails = absent.a_class("job_submission.JobDetails", _INSTEAD)
