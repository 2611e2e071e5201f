// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/template_table.h"

#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace template_table_test {

struct TemplatesTest : Fixture {
  static proto::TaskTemplate Spec(int number, const std::string& call_name = {}) {
    proto::TaskTemplate spec;
    spec.set_name("square");
    spec.set_function(absl::StrCat("f:", number));
    spec.set_num_returns(1);
    spec.set_call_name(call_name);
    // Each asks for a lease of its own.
    (*spec.mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] = 10'000 + number;
    return spec;
  }
  TemplateHandle Make(int number, const std::string& call_name = {}) {
    return owner.templates.Make(Spec(number, call_name));
  }
  // Runs a call of `spec` on kWorker, which then dies: its lease is as gone as the call.
  void Run(const TemplateHandle& spec, uint64_t key) {
    const ObjectHandle result = Submit(*spec);
    proto::LeaseGrant grant;
    grant.set_key(key);
    grant.set_lease(key);
    grant.set_worker(kWorker.packed());
    owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
    Reply(TakePush(), "1");
    clock.Advance(kSecond);
    owner.Tick();  // The idle lease goes back.
  }
};

SCENARIO("templates that nothing needs go, however many; those that something needs stay") {
  TemplatesTest t;
  const TemplateHandle held = t.Make(0);
  const ObjectHandle pending = t.Submit(*t.Make(1));
  for (int i = 2; i < 20'000; ++i) t.Make(i);
  CHECK(t.owner.templates.size() < 3'000);
  CHECK(t.Make(0) == held);
  CHECK(t.Make(1)->calls == 1);
}

SCENARIO("whoever has a template hears that it is gone before its number means another") {
  TemplatesTest t;
  t.Run(t.Make(0), 1);
  proto::TaskTemplate sent;
  REQUIRE(sent.ParseFromString(t.transport.Take(FrameKind::kTemplate).body));
  const uint32_t number = sent.number();
  const size_t demands = t.transport.Count(FrameKind::kLeaseDemand);
  for (int i = 1; t.transport.Count(FrameKind::kTemplate) == 0; ++i) {
    REQUIRE(i < 20'000);
    t.Make(i);
  }
  const Sent frame = t.transport.Take(FrameKind::kTemplate);
  CHECK(frame.to == kWorker);
  CHECK(frame.lane == Lane::kWork);
  REQUIRE(sent.ParseFromString(frame.body));
  CHECK(sent.gone());
  CHECK(sent.number() == number);
  // The raylet forgets the kind of lease as well.
  CHECK(t.transport.Count(FrameKind::kLeaseDemand) == demands + 1);
  THEN("its number serves again") {
    bool again = false;
    std::vector<TemplateHandle> kept;
    for (int i = 0; i < 5'000 && !again; ++i) {
      kept.push_back(t.Make(30'000 + i));
      again = kept.back()->spec.number() == number;
    }
    CHECK(again);
  }
}

SCENARIO("calls with names of their own share a template, and carry the name") {
  TemplatesTest t;
  const TemplateHandle plain = t.Make(0);
  for (int i = 0; i < 10'000; ++i) CHECK(t.Make(0, absl::StrCat("req-", i))->base == plain);
  CHECK(t.owner.templates.size() == 1);
  const ObjectHandle result = t.Submit(*t.Make(0, "req-7"));
  CHECK(t.owner.tasks.Describe(*result.entry()->task).find("req-7 (task ") == 0);
  t.Grant();
  proto::TaskTemplate sent;
  REQUIRE(sent.ParseFromString(t.transport.Take(FrameKind::kTemplate).body));
  CHECK(sent.name() == "square");
  CHECK(sent.call_name().empty());
  const Sent push = t.transport.Take(FrameKind::kPushTask);
  CHECK(push.body.ends_with(std::string("req-7\0\0\0", 8)));
}

}  // namespace template_table_test
}  // namespace sheaf
