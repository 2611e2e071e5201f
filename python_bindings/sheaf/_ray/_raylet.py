# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries import from `ray._raylet`: ids, references and generators."""

from sheaf import ObjectRef
from sheaf._internal import absent
from sheaf.cross_language import Language
from sheaf.ids import (
    ActorClassID,
    ActorID,
    BaseID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from sheaf.object_ref import DynamicObjectRefGenerator, ObjectRefGenerator

__all__ = [
    "ActorClassID",
    "ActorID",
    "BaseID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "GcsClient",
    "JobID",
    "Language",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "StreamingObjectRefGenerator",
    "TaskID",
    "UniqueID",
    "WorkerID",
]

ObjectID = ObjectRef
StreamingObjectRefGenerator = ObjectRefGenerator
GcsClient = absent.a_class("_raylet.GcsClient", "ask sheaf.nodes() and sheaf.util.state")
