// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Programs between two nodes: the store of one, the server of the other, and a source of blocks
// that the test bends.
#include "raylet/host/program_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "raylet/host/program_server.h"
#include "raylet/objects/fake_block_source.h"

namespace sheaf {
namespace program_store_test {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = 1000;
constexpr ProcessId kDriver{7, 3};

std::string Bytes(size_t size, char salt) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 256 + salt);
  return bytes;
}

std::string ReadAll(int fd) { return *ReadProgram(fd, 0, uint64_t{1} << 20); }

// The driver's node has its program at `there`; the asking node looks at `here`.
struct Fixture : BlockSource {
  Fixture() {
    fs::create_directories(root / "there");
    fs::create_directories(root / "here");
  }

  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string there() const { return root / "there/program"; }
  std::string here() const { return root / "here/program"; }
  std::string kept() const { return root / "programs"; }

  ProgramStoreOptions Options() const {
    ProgramStoreOptions options;
    options.directory = kept();
    options.block_bytes = kBlock;
    return options;
  }
  absl::StatusOr<UniqueFd> Find(ProgramStore& store) {
    std::promise<absl::StatusOr<UniqueFd>> found;
    store.Find(kDriver, here(),
               [&](absl::StatusOr<UniqueFd> program) { found.set_value(std::move(program)); });
    return found.get_future().get();
  }
  size_t files() const {
    if (!fs::exists(kept())) return 0;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(kept()), fs::directory_iterator()));
  }

  void Fetch(NodeNumber node, std::string body, Nanos, Done done) override {
    CHECK(node == kDriver.node);
    proto::BlockRequest request;
    REQUIRE(request.ParseFromString(body));
    REQUIRE(ProgramServer::IsFor(request));
    if (request.length() != 0) ++blocks;
    if (silent) {
      unanswered = std::move(done);
      ++silent_asked;
      return;
    }
    server.OnFetch(request, [&](absl::StatusOr<Block> block) {
      if (!block.ok()) return done(block.status());
      std::string bytes(block->bytes.data(), block->bytes.size());
      const uint32_t crc = Crc32c(bytes);
      if (!bytes.empty() && spoiled > 0) {
        --spoiled;
        bytes[bytes.size() / 2] ^= 1;
      }
      done(std::make_unique<OwnedBlock>(block->head, bytes, /*is_cut=*/false, crc));
    });
  }

  ScratchDirectory root;
  InlineExecutor files_thread;
  ProgramServer server{files_thread, [this](ProcessId driver) -> absl::StatusOr<UniqueFd> {
                         UniqueFd fd(open(there().c_str(), O_RDONLY | O_CLOEXEC));
                         if (driver != kDriver || !fd.valid()) return absl::NotFoundError("none");
                         return fd;
                       }};
  int blocks = 0;
  int spoiled = 0;  // Blocks that will arrive with a flipped bit.
  bool silent = false;
  std::atomic<int> silent_asked{0};
  Done unanswered;
};

TEST_CASE_METHOD(Fixture, "the very same file is used where it is", "[programs]") {
  Write(there(), Bytes(2500, 1));
  fs::create_hard_link(there(), here());
  ProgramStore store(Options(), *this);
  const absl::StatusOr<UniqueFd> program = Find(store);
  REQUIRE(program.ok());
  CHECK(ReadAll(program->get()) == Bytes(2500, 1));
  CHECK(blocks == 0);
  CHECK(files() == 0);
}

TEST_CASE_METHOD(Fixture, "another file with the same bytes is used as well", "[programs]") {
  Write(there(), Bytes(2500, 1));
  Write(here(), Bytes(2500, 1));
  ProgramStore store(Options(), *this);
  REQUIRE(Find(store).ok());
  CHECK(blocks == 0);
  CHECK(files() == 0);
}

TEST_CASE_METHOD(Fixture, "a program that is missing here is fetched once, and can be executed",
                 "[programs]") {
  const size_t size = GENERATE(0, 1, 999, 1000, 1001, 2500);
  Write(there(), Bytes(size, 1));
  {
    ProgramStore store(Options(), *this);
    const absl::StatusOr<UniqueFd> program = Find(store);
    REQUIRE(program.ok());
    CHECK(ReadAll(program->get()) == Bytes(size, 1));
    struct stat info{};
    REQUIRE(fstat(program->get(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    CHECK(blocks == static_cast<int>((size + kBlock - 1) / kBlock));
    REQUIRE(Find(store).ok());
  }
  ProgramStore later(Options(), *this);  // The node's next run in this session.
  REQUIRE(Find(later).ok());
  CHECK(blocks == static_cast<int>((size + kBlock - 1) / kBlock));
  CHECK(files() == 1);
}

TEST_CASE_METHOD(Fixture, "another build at the same path is not taken for the program",
                 "[programs]") {
  Write(there(), Bytes(2500, 1));
  Write(here(), Bytes(2500, 2));
  ProgramStore store(Options(), *this);
  const absl::StatusOr<UniqueFd> program = Find(store);
  REQUIRE(program.ok());
  CHECK(ReadAll(program->get()) == Bytes(2500, 1));
  CHECK(blocks == 3);
}

TEST_CASE_METHOD(Fixture, "a block that arrives damaged is asked for again", "[programs]") {
  Write(there(), Bytes(2500, 1));
  ProgramStore store(Options(), *this);
  spoiled = 2;
  const absl::StatusOr<UniqueFd> program = Find(store);
  REQUIRE(program.ok());
  CHECK(ReadAll(program->get()) == Bytes(2500, 1));
  CHECK(blocks == 5);
}

TEST_CASE_METHOD(Fixture, "what cannot be fetched is an error that names program and node",
                 "[programs]") {
  ProgramStore store(Options(), *this);
  SECTION("the job is over there") {
    const absl::Status why = Find(store).status();
    CHECK(absl::IsNotFound(why));
    CHECK(why.message().find(here()) != std::string::npos);
    CHECK(why.message().find("node 7") != std::string::npos);
  }
  SECTION("every block is damaged, and nothing is left of it") {
    Write(there(), Bytes(2500, 1));
    spoiled = 100;
    CHECK(absl::IsDataLoss(Find(store).status()));
    CHECK(files() == 0);
    spoiled = 0;
    CHECK(Find(store).ok());  // The next try is a new one.
  }
  SECTION("there is no place for it") {
    Write(there(), Bytes(2500, 1));
    Write(kept(), "a file where the directory should be");
    const absl::Status why = Find(store).status();
    CHECK_FALSE(why.ok());
    CHECK(why.message().find(kept()) != std::string::npos);
  }
}

TEST_CASE_METHOD(Fixture, "a detached actor's program is what lies here, if its driver is gone",
                 "[programs]") {
  Write(here(), Bytes(2500, 2));  // Nothing is there: the driver's node has forgotten the job.
  ProgramStore store(Options(), *this);
  const absl::StatusOr<UniqueFd> program = Find(store);
  REQUIRE(program.ok());
  CHECK(ReadAll(program->get()) == Bytes(2500, 2));
}

TEST_CASE_METHOD(Fixture, "programs that are kept stay within their room; one in use stays usable",
                 "[programs]") {
  ProgramStoreOptions options = Options();
  options.max_bytes = 6000;
  ProgramStore store(options, *this);
  absl::StatusOr<UniqueFd> first;
  for (char build = 1; build <= 4; ++build) {
    Write(there(), Bytes(2500, build));
    absl::StatusOr<UniqueFd> program = Find(store);
    REQUIRE(program.ok());
    CHECK(files() <= 2);
    if (build == 1) first = std::move(program);
  }
  CHECK(ReadAll(first->get()) == Bytes(2500, 1));
  Write(there(), Bytes(6001, 9));
  CHECK(absl::IsResourceExhausted(Find(store).status()));
}

TEST_CASE_METHOD(Fixture, "a node that ends does not wait for an answer", "[programs]") {
  silent = true;
  auto store = std::make_unique<ProgramStore>(Options(), *this);
  bool called = false;
  store->Find(kDriver, here(), [&](absl::StatusOr<UniqueFd>) { called = true; });
  REQUIRE(WaitUntil(30 * kSecond, [&] { return silent_asked != 0; }));
  store.reset();
  CHECK_FALSE(called);
  unanswered(absl::UnavailableError("late"));  // Harms nobody.
}

}  // namespace program_store_test
}  // namespace sheaf
