# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m sheaf._worker.of_cpp`: a Python worker in the job of a C++ program, which became this
(api/python_worker.cc)."""

from sheaf._worker import main

if __name__ == "__main__":
    main.main({"preload": []})
