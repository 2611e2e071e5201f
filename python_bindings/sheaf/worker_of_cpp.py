# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m sheaf.worker_of_cpp`: a Python worker in the job of a C++ program, which became this
(api/python_worker.cc)."""

from sheaf import worker_main

if __name__ == "__main__":
    worker_main.main({"preload": []})
