# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Prints which tests were skipped or failed, the end of what these said, and how many passed.

Usage: test_results.py JUNIT_FILE EXIT_STATUS_OF_CTEST. The exit status is 0 when all passed.
"""

import sys
import xml.etree.ElementTree as xml

_LAST_LINES = 60  # Of a failed test, printed last, where one looks first: the whole is far above.


def main(arguments: list[str]) -> int:
    report, ctest_status = arguments
    passed, failed, skipped = [], {}, []
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
            failed[name] = (case.findtext("system-out") or "").strip().splitlines()[-_LAST_LINES:]
            print(f"FAILED: {name}{': ' + message if message else ''}")
    for name, lines in failed.items():
        print(f"--- the end of {name}", *lines, "---", sep="\n")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if not failed and passed and ctest_status == "0" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
