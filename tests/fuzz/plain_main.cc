// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without clang: mutates its seeds by a seeded generator for a while, or replays
// files.
//   TARGET_fuzz [--seconds N] [--seed N] [FILE...]      FUZZ_SEED=N is the same as --seed N
// An input that ends the process lies in the file that is named before it is tried only when it
// crashes: the last one is written from a signal handler.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "tests/fuzz/fuzz_target.h"

namespace {

const std::string* current = nullptr;

// Keeps the input, then lets the signal do what it does.
void KeepInput(int number) {
  const char name[] = "crash-input";
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0 && current != nullptr && write(fd, current->data(), current->size()) >= 0) {
    const char words[] = "\nthe input is in ./crash-input; replay: TARGET_fuzz crash-input\n";
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) _exit(1);
  }
  signal(number, SIG_DFL);
  raise(number);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed), seeds_(fuzz::Seeds()) {}

  std::string Next() {
    if (seeds_.empty() || Below(16) == 0) return Noise(Below(600));
    std::string input = seeds_[Below(seeds_.size())];
    if (Below(4) == 0) input += seeds_[Below(seeds_.size())];
    for (uint64_t changes = Below(8); changes > 0 && !input.empty(); --changes) Change(input);
    return input;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  std::string Noise(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  void Change(std::string& input) {
    const size_t at = Below(input.size());
    switch (Below(8)) {
      case 0:
        input[at] = static_cast<char>(random_());
        return;
      case 1:
        input[at] = static_cast<char>(input[at] ^ (1 << Below(8)));
        return;
      case 2:
        input.resize(at);
        return;
      case 3:
        input.insert(at, Noise(1 + Below(16)));
        return;
      case 4:
        input.erase(at, 1 + Below(16));
        return;
      case 5:
        input.insert(at, input.substr(Below(input.size()), Below(64)));
        return;
      case 6: {  // A number at its edge.
        static constexpr uint64_t kEdges[] = {0,
                                              1,
                                              0x7f,
                                              0x80,
                                              0xff,
                                              0x7fff,
                                              0xffff,
                                              0x7fffffff,
                                              0x80000000,
                                              0xffffffff,
                                              0x7fffffffffffffff,
                                              0x8000000000000000,
                                              0xffffffffffffffff};
        const uint64_t edge = kEdges[Below(std::size(kEdges))];
        for (size_t i = 0; i < (size_t{1} << Below(4)) && at + i < input.size(); ++i) {
          input[at + i] = static_cast<char>(edge >> (8 * i));
        }
        return;
      }
      default:
        input[at] = static_cast<char>(input[at] + 1);
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string> seeds_;
};

void Try(const std::string& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  current = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 2;
  const char* text = std::getenv("FUZZ_SEED");
  uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (word == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      files.push_back(word);
    }
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) signal(number, KeepInput);
  for (const std::string& name : files) {
    std::ifstream file(name, std::ios::binary);
    Try(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
    std::cout << name << ": survived" << std::endl;
  }
  if (!files.empty()) return 0;
  std::cout << "FUZZ_SEED=" << seed << std::endl;
  for (const std::string& input : fuzz::Seeds()) Try(input);
  Mutator mutator(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t inputs = 0;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 16; ++i, ++inputs) Try(mutator.Next());
  }
  std::cout << inputs << " inputs survived" << std::endl;
  return 0;
}
