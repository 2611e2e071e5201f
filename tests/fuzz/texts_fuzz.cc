// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Texts from people, from the environment and from peers: resources, sizes, ids, failpoints,
// runtime environments.
#include "base/config.h"
#include "base/environment.h"
#include "base/failpoint.h"
#include "base/ids.h"
#include "base/resources.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

std::vector<std::string> fuzz::Seeds() {
  return {"0CPU:2,GPU:0.5,apple:1e9",
          "11.5GiB",
          "2" + std::string(32, 'a'),
          "3store.seal:kill@3,gcs.commit:error@1,x:sleep(200)%0.01:4711",
          "4" + std::string("@dir=/data\0A=1\0ZONE=b\0", 23),
          "5CPU:1"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t which = input.Byte();
  const std::string text = input.Rest();
  switch (which % 8) {
    case 0:
      if (const auto resources = ParseResources(text); resources.ok()) {
        FUZZ_CHECK(!resources->ToString().empty());
        resources->ForEach([](std::string_view name, Amount amount) {
          FUZZ_CHECK(Resources::CheckAmount(name, amount).ok());
        });
      }
      break;
    case 1:
      (void)ParseBytes(text);
      break;
    case 2:
      if (const auto id = ObjectId::FromHex(text); id.ok())
        FUZZ_CHECK(ObjectId::FromHex(id->ToHex()).value() == *id);
      break;
    case 3:
      (void)ArmFailpoints(text, 1);
      (void)ArmFailpoints("", 1);
      break;
    case 4:
      if (const auto environment = DecodeEnvironment(text); environment.ok()) {
        FUZZ_CHECK(EncodeEnvironment(*environment).value() == text);
      }
      break;
    case 5: {
      const Environment all = [&](const char*) { return std::optional<std::string>(text); };
      (void)LoadSettings(all, {text});
      break;
    }
    case 6:
      (void)ObjectId::FromBinary(text);
      break;
    default:
      (void)MergeEnvironments(text.substr(0, text.size() / 2), text.substr(text.size() / 2));
  }
  return 0;
}
