// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Compares tables with what is alive, a slice at a time, so that whatever some path of clean-up
// missed leaks for seconds only. It must never find anything: what it repairs is counted, and tests
// look at the count. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sheaf {

class Sweeper {
 public:
  // Each entry is looked at once in this time, as long as Tick is called at least each 100 ms.
  static constexpr Nanos kPass = 4 * kSecond;

  explicit Sweeper(Clock& clock) : clock_(clock) {}

  // A table to sweep. `keys` lists its entries when a pass begins; `check` repairs one of them that
  // is wrong and says so, and finds entries gone that were listed.
  template <class Key>
  void Add(std::string name, std::function<std::vector<Key>()> keys,
           std::function<bool(Key)> check) {
    tables_.push_back(
        std::make_unique<KeyedTable<Key>>(std::move(name), std::move(keys), std::move(check)));
  }
  // Does the share of the pass that is due.
  void Tick();

  uint64_t repaired() const { return repaired_; }
  uint64_t passes() const { return passes_; }
  // Of the table whose entry was repaired last; empty: none ever was.
  const std::string& last_repaired() const { return last_repaired_; }

 private:
  struct Table {
    explicit Table(std::string n) : name(std::move(n)) {}
    virtual ~Table() = default;
    virtual size_t List() = 0;
    virtual bool Check(size_t index) = 0;
    const std::string name;
    size_t size = 0;
    size_t done = 0;
  };
  template <class Key>
  struct KeyedTable final : Table {
    KeyedTable(std::string n, std::function<std::vector<Key>()> k, std::function<bool(Key)> c)
        : Table(std::move(n)), keys(std::move(k)), check(std::move(c)) {}
    size_t List() override {
      listed = keys();
      return listed.size();
    }
    bool Check(size_t index) override { return check(listed[index]); }
    const std::function<std::vector<Key>()> keys;
    const std::function<bool(Key)> check;
    std::vector<Key> listed;
  };

  void Begin();

  Clock& clock_;
  std::vector<std::unique_ptr<Table>> tables_;
  Nanos began_at_ = -1;  // -1: no pass has begun yet.
  size_t total_ = 0;
  size_t done_ = 0;
  uint64_t repaired_ = 0;
  uint64_t passes_ = 0;
  std::string last_repaired_;
};

}  // namespace sheaf
