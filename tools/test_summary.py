# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ends a run of tests with "N passed, N failed, N skipped", and names what failed or was skipped.

Usage: test_summary.py REPORT STATUS

REPORT is what `ctest --output-junit` wrote, STATUS what ctest exited with. Exits with 1 where a
test has failed, where none has passed, and where STATUS is not 0.
"""

import sys
import xml.etree.ElementTree as xml


def main(report: str, status: str) -> int:
    passed, failed, skipped = [], [], []
    for case in xml.parse(report).getroot().iter("testcase"):
        name = case.get("name")
        reason = case.find("skipped")
        message = reason.get("message", "") if reason is not None else ""
        if case.get("status") == "run":
            passed.append(name)
        elif case.get("status") == "disabled" or "SKIP" in message:
            # ctest: SKIP_RETURN_CODE=4, SKIP_REGULAR_EXPRESSION_MATCHED
            skipped.append(name)
            output = (case.findtext("system-out") or "").strip().splitlines()
            said = [line for line in output if "skip" in line.lower()] or output[-1:]
            print(f"skipped: {name}: {said[-1].strip() if said else 'disabled'}")
        else:  # "fail", or "notrun" for want of its program.
            failed.append(name)
            print(f"FAILED: {name}{': ' + message if message else ''}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if passed and not failed and status == "0" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
