// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How CUDA and NCCL are found, and what is said when they are not, are old or are something else.
#include "collective/nccl/nccl_library.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "collective/nccl/nccl_communicator.h"
#include "collective/nccl/nccl_rig_for_test.h"

namespace sheaf {
namespace {

using testing::Contains;
using testing::StandIn;

std::string Words(const absl::Status& status) { return status.ToString(); }

TEST_CASE("NCCL that a variable names is used, or its fault is said and nothing else is tried",
          "[nccl]") {
  StandIn stand_in;
  const auto load = [](const std::string& path) {
    setenv("SHEAF_NCCL_LIB", path.c_str(), 1);
    return nccl::Library::Load({std::filesystem::path(SHEAF_FAKE_GPU).parent_path()});
  };
  const auto found = load(SHEAF_FAKE_GPU);
  REQUIRE(found.ok());
  CHECK((*found)->version() == 23203);
  CHECK(Contains((*found)->path(), "libfake_gpu.so' (SHEAF_NCCL_LIB)"));

  const absl::Status nothing = load("/nowhere/libnccl.so.2").status();
  CHECK(absl::IsNotFound(nothing));
  CHECK(Contains(Words(nothing),
                 "no NCCL: '/nowhere/libnccl.so.2' (SHEAF_NCCL_LIB) is no file that can be read: "
                 "want the path of libnccl.so.2, or unset SHEAF_NCCL_LIB"));

  const std::filesystem::path folder = testing::MakeFolder();
  std::ofstream(folder / "libnccl.so.2") << "no library";
  const absl::Status text = load(folder / "libnccl.so.2").status();
  std::filesystem::remove_all(folder);
  CHECK(absl::IsFailedPrecondition(text));
  CHECK(Contains(Words(text), "cannot be loaded: "));

  const absl::Status other = load("/lib/x86_64-linux-gnu/libm.so.6").status();
  if (std::filesystem::exists("/lib/x86_64-linux-gnu/libm.so.6")) {
    CHECK(absl::IsFailedPrecondition(other));
    CHECK(Contains(Words(other),
                   "libm.so.6' (SHEAF_NCCL_LIB) has no symbol ncclGetVersion: want "
                   "NCCL 2.18.0 or later. Install it (pip install nvidia-nccl-cu13"));
  }

  const absl::Status lacking = load(SHEAF_FAKE_WITHOUT_SEND).status();
  CHECK(absl::IsFailedPrecondition(lacking));
  CHECK(Contains(Words(lacking),
                 "libfake_without_send.so' (SHEAF_NCCL_LIB) has no symbol ncclSend: "
                 "want NCCL 2.18.0 or later"));

  const absl::Status old = load(SHEAF_FAKE_OLD).status();
  CHECK(absl::IsFailedPrecondition(old));
  CHECK(Contains(Words(old),
                 "libfake_old.so' (SHEAF_NCCL_LIB) is NCCL 2.10.3: want NCCL 2.18.0 or later"));
}

TEST_CASE("NCCL is looked for in the folders that were named", "[nccl]") {
  StandIn none("", "");
  const std::filesystem::path folder = testing::MakeFolder();
  std::filesystem::create_symlink(SHEAF_FAKE_GPU, folder / "libnccl.so.2");
  const auto found = nccl::Library::Load({"/nowhere", folder});
  REQUIRE(found.ok());
  CHECK((*found)->path() == (folder / "libnccl.so.2").string());
  std::filesystem::remove_all(folder);
}

TEST_CASE("the driver that a variable names is used, or its fault is said", "[nccl]") {
  StandIn stand_in;
  const auto cuda = CudaLibrary::Load();
  REQUIRE(cuda.ok());
  CHECK((*cuda)->version() == 13000);
  CHECK((*cuda)->devices() == 1);
  const absl::Status none = CudaDevice::Open(*cuda, 3).status();
  CHECK(absl::IsInvalidArgument(none));
  CHECK(Contains(Words(none), "there is no CUDA device 3 among 1"));

  const auto device = CudaDevice::Open(*cuda, 0);
  REQUIRE(device.ok());
  CHECK((*device)->name() == "stand-in");
  const auto memory = (*device)->Allocate(100);
  REQUIRE(memory.ok());
  CHECK((*device)->CheckPointer(memory->get() + 99).ok());
  int on_host = 0;
  CHECK(Contains(Words((*device)->CheckPointer(&on_host)),
                 "the array lies in host memory: want memory of CUDA device 0"));
  CHECK(absl::IsResourceExhausted((*device)->Allocate(size_t{1} << 50).status()));

  setenv("SHEAF_CUDA_LIB", "/lib/x86_64-linux-gnu/libm.so.6", 1);
  if (std::filesystem::exists("/lib/x86_64-linux-gnu/libm.so.6")) {
    CHECK(Contains(Words(CudaLibrary::Load().status()),
                   "has no symbol cuInit: want the "
                   "libcuda.so.1 of NVIDIA's driver"));
  }
  setenv("SHEAF_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
  const absl::Status missing = NcclAvailable();
  CHECK(absl::IsNotFound(missing));
  CHECK(Contains(Words(missing), "no CUDA driver: '/nowhere/libcuda.so.1' (SHEAF_CUDA_LIB)"));
}

// The real NCCL, where its wheel is: it loads without a GPU.
TEST_CASE("NCCL's own library loads, has all that is used, and says that there is no GPU",
          "[.][wheel]") {
  StandIn none("", "");
  const std::vector<std::string> folders = testing::WheelFolders();
  const auto found = nccl::Library::Load(folders);
  if (absl::IsNotFound(found.status())) {
    std::cout << "SKIPPED: " << found.status().message() << "\n";
    return;
  }
  REQUIRE(found.ok());
  std::cout << "NCCL " << nccl::VersionText((*found)->version()) << " of " << (*found)->path()
            << "\n";
  CHECK((*found)->version() >= nccl::Library::kOldest);
  nccl::UniqueId id = {};
  CHECK((*found)->StatusOf((**found)->ncclGetUniqueId(&id), "ncclGetUniqueId").ok());
  CHECK(Contains((**found)->ncclGetErrorString(nccl::kInvalidUsage), "invalid usage"));
  const absl::Status available = NcclAvailable(folders);
  if (available.ok()) return;  // There is a GPU.
  INFO(available);
  CHECK(absl::IsNotFound(available));
  CHECK(Contains(Words(available), "GPU"));
  // A program that asks NCCL all the same gets a typed error, not a hang.
  nccl::Comm comm = nullptr;
  nccl::Config config;
  const nccl::Result result = (**found)->ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  const absl::Status status = (*found)->StatusOf(result, "ncclCommInitRankConfig");
  INFO(status);
  CHECK(absl::IsInternal(status));
  CHECK(Contains(Words(status), "ncclCommInitRankConfig: unhandled cuda error"));
}

}  // namespace
}  // namespace sheaf
