# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Prints which tests of a run were skipped or failed, and "N passed, N failed, N skipped".

Usage: test_results.py JUNIT_FILE EXIT_STATUS_OF_CTEST. The exit status is 0 when all passed.
"""

import sys
import xml.etree.ElementTree as xml


def main(arguments: list[str]) -> int:
    report, ctest_status = arguments
    passed, failed, skipped = [], [], []
    for case in xml.parse(report).getroot().iter("testcase"):
        status, name = case.get("status"), case.get("name")
        reason = case.find("skipped")
        message = reason.get("message", "") if reason is not None else ""
        if status == "run":
            passed.append(name)
        # ctest: SKIP_RETURN_CODE=4, SKIP_REGULAR_EXPRESSION_MATCHED
        elif status == "disabled" or "SKIP" in message:
            skipped.append(name)
            output = (case.findtext("system-out") or "").strip().splitlines()
            said = [line for line in output if "skip" in line.lower()] or output[-1:]
            print(f"skipped: {name}: {said[-1].strip() if said else 'disabled'}")
        else:  # "fail", or "notrun" for want of its program.
            failed.append(name)
            print(f"FAILED: {name}{': ' + message if message else ''}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if not failed and passed and ctest_status == "0" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
