// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Sets of certificates in a directory of their own, which goes with this.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/testing/scratch_directory_for_test.h"
#include "rpc/security/credentials.h"

namespace sheaf {

class TlsDirectory {
 public:
  std::string PathOf(const std::string& set) const { return directory_ / set; }
  void Make(const std::string& set, int64_t seconds_valid = kTenYears) const {
    REQUIRE(MakeCertificateSet(PathOf(set), {}, seconds_valid).ToString() == "OK");
  }
  // By the authority of another one.
  void MakeNode(const std::string& set, const std::string& authority,
                const std::vector<std::string>& hosts = {}) const {
    REQUIRE(MakeNodeCertificate(PathOf(authority), PathOf(set), hosts).ToString() == "OK");
  }
  Credentials Load(const std::string& set, const std::string& peer_name = "") const {
    const auto loaded = LoadCertificates(PathOf(set), peer_name);
    REQUIRE(loaded.status().ToString() == "OK");
    return *loaded;
  }
  std::string Read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(PathOf(file)).rdbuf();
    return text.str();
  }
  // In place of the file, in one step.
  void Replace(const std::string& file, const std::string& text) const {
    const std::string draft = PathOf(file) + ".draft";
    std::ofstream(draft) << text;
    std::filesystem::permissions(
        draft, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(draft, PathOf(file));
  }
  // All files that a node needs, one after the other.
  void ReplaceSet(const std::string& set, const std::string& by) const {
    for (const char* name : {"/ca.pem", "/node.pem", "/node.key"}) {
      Replace(set + name, Read(by + name));
    }
  }

 private:
  ScratchDirectory directory_;
};

}  // namespace sheaf
