// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/router.h"

#include <catch2/catch.hpp>

#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"
#include "proto/gcs.pb.h"

namespace sheaf {
namespace router_test {

constexpr ProcessId kDriver{1, 5};

SCENARIO("a request to the GCS carries its true sender, whatever the sender claimed") {
  RecordingTransport transport;
  Router router(1, transport);
  proto::GcsRequest request;
  if (GENERATE(false, true)) request.set_client(ProcessId{1, 9}.packed());
  request.set_sequence(3);
  request.mutable_kv_put()->set_key(std::string("k\0y", 3));
  REQUIRE(router.ToGcs(kDriver, request.SerializeAsString()));
  const auto sent = transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].client() == kDriver.packed());
  CHECK(sent[0].sequence() == 3);
  CHECK(sent[0].kv_put().key() == request.kv_put().key());
}

SCENARIO("a request whose end would swallow what is appended is not sent on") {
  RecordingTransport transport;
  Router router(1, transport);
  proto::GcsRequest request;
  request.set_client(ProcessId{1, 9}.packed());
  // A field of ten bytes that are not there: the appended sender would become a part of it.
  const std::string body = request.SerializeAsString() + std::string("\x82\x05\x0a", 3);
  CHECK_FALSE(router.ToGcs(kDriver, body));
  CHECK(transport.Take(kGcs).empty());
}

SCENARIO("an answer goes to the process that it names, if it is of this node") {
  RecordingTransport transport;
  Router router(1, transport);
  proto::GcsReply reply;
  reply.set_message("text first, so that the address is not at the beginning");
  reply.set_client(kDriver.packed());
  CHECK(router.Addressee(reply.SerializeAsString()) == kDriver);
  reply.set_client(ProcessId{2, 5}.packed());
  CHECK_FALSE(router.Addressee(reply.SerializeAsString()).has_value());
  CHECK_FALSE(router.Addressee("\x07").has_value());
}

SCENARIO("what protobuf reads, the router reads alike; random bytes end nothing") {
  SeededRandom random(4711);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random.Below(40), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next());
    const auto found = FindVarintField(bytes, 1);
    proto::GcsReply reply;
    if (found.has_value() && reply.ParseFromString(bytes + EncodeVarintField(1, 77))) {
      CHECK(reply.client() == 77);
    }
  }
}

}  // namespace router_test
}  // namespace sheaf
