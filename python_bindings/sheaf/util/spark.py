# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A cluster inside of Spark: not in Sheaf; the names exist, and say so when they are used."""

from sheaf._internal import absent

setup_ray_cluster = absent.function("util.spark.setup_ray_cluster")
shutdown_ray_cluster = absent.function("util.spark.shutdown_ray_cluster")
setup_global_ray_cluster = absent.function("util.spark.setup_global_ray_cluster")
