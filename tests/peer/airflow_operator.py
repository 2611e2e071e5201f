# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Run by jobs.py with a Python that has Airflow: Sheaf's operator runs, fails, attaches, waits in a
trigger, and is killed, against a real job server.

    PYTHON airflow_operator.py URL
"""

import asyncio
import sys
import types

from airflow.exceptions import AirflowException, TaskDeferred
from sheaf.integrations.airflow import SheafJobOperator, SheafJobTrigger, submission_id
from sheaf.job_submission import JobStatus, JobSubmissionClient

URL = sys.argv[1]
CLIENT = JobSubmissionClient(URL)


def context(run, try_number=1):
    ti = types.SimpleNamespace(
        dag_id="a dag", run_id=run, task_id="a.task", map_index=-1, try_number=try_number
    )
    return {"ti": ti}


def operator(entrypoint, **options):
    return SheafJobOperator(task_id="a_task", entrypoint=entrypoint, address=URL, **options)


def name_of(run, try_number=1):
    return submission_id("a dag", run, "a.task", -1, try_number)


def test_names():
    long = submission_id("d" * 300, "manual__2026-11-26T13:00:00+00:00", "t" * 300, -1, 1)
    assert len(long) <= 128 and name_of("r") == name_of("r")
    assert len({name_of("r"), name_of("s"), name_of("r", 2)}) == 3


def test_it_runs_and_gives_the_name():
    job = operator("echo hello; echo there").execute(context("one"))
    assert job == name_of("one")
    assert CLIENT.get_job_logs(job) == "hello\nthere\n"


def test_the_same_try_attaches():
    before = len(CLIENT.list_jobs())
    operator("echo never").execute(context("one"))
    assert len(CLIENT.list_jobs()) == before


def test_a_failure_is_one_and_a_retry_runs_anew():
    try:
        operator("echo why; exit 3").execute(context("two"))
    except AirflowException as error:
        assert "FAILED" in str(error) and "why" in str(error), error
    else:
        raise AssertionError("it did not fail")
    assert operator("true").execute(context("two", 2)) == name_of("two", 2)


def test_a_retry_attaches_to_what_still_runs():
    CLIENT.submit_job(submission_id=name_of("three"), entrypoint="sleep 2; echo done")
    assert operator("echo never").execute(context("three", 2)) == name_of("three")


def test_it_waits_in_a_trigger():
    task = operator("sleep 1; echo done", deferrable=True)
    try:
        task.execute(context("four"))
    except TaskDeferred as deferred:
        path, fields = deferred.trigger.serialize()
        assert path == "sheaf.integrations.airflow.SheafJobTrigger"
        assert deferred.method_name == "execute_complete"
    else:
        raise AssertionError("it did not defer")

    async def fire():
        return [event async for event in SheafJobTrigger(**fields).run()]

    (event,) = asyncio.run(fire())
    assert task.execute_complete({}, event.payload) == name_of("four")
    (event,) = asyncio.run(_fire("no-such-job"))
    try:
        task.execute_complete({}, event.payload)
    except AirflowException as error:
        assert "does not exist" in str(error), error
    else:
        raise AssertionError("a job that is not there succeeded")


async def _fire(job):
    return [event async for event in SheafJobTrigger(job, URL).run()]


def test_a_task_that_is_killed_stops_its_job():
    task = operator("sleep 1000", deferrable=True)
    try:
        task.execute(context("five"))
    except TaskDeferred:
        task.on_kill()
    (event,) = asyncio.run(_fire(name_of("five")))
    assert event.payload == {"job": name_of("five")}
    assert CLIENT.get_job_status(name_of("five")) == JobStatus.STOPPED


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print("SheafJobOperator in Airflow")
