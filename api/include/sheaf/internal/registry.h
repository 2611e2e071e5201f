// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The functions, constructors and methods that can be called from other processes. Filled before
// main by SHEAF_REMOTE and SHEAF_ACTOR, in every process of a job alike, read-only from Init on.
// Those of Python are records too (sheaf/python.h), which are not in the table.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "sheaf/internal/export.h"

namespace sheaf::inline v1::internal {

class Call;

// How the key of a function begins that another language names: then its name, without types.
inline constexpr std::string_view kNamedPrefix = "name:";

struct FunctionRecord {
  enum class Kind : uint8_t { kFunction, kConstructor, kMethod };
  Kind kind = Kind::kFunction;
  std::string key;        // What other processes name it by.
  std::string name;       // For people.
  std::string class_key;  // Constructors and methods: of the class, for GetActor to compare.
  void (*invoke)(Call& call) = nullptr;
  size_t parameters = 0;
  bool python = false;     // It runs in a Python worker.
  bool streaming = false;  // Returns a Generator.
  bool is_async = false;   // Constructors: some method of the class is a coroutine.
  std::string group;       // Methods: its concurrency group.
  mutable std::atomic<const void*> prepared{
      nullptr};  // The runtime's template for default options.
};

// Must outlive the process's use of Sheaf. The same record may come again; another one with its key
// is reported by Init.
SHEAF_API void Register(const FunctionRecord* record);

// By function or method pointer: one list for each pointer type (and class), so the lists are
// short.
template <class Pointer>
struct PointerNode {
  Pointer pointer;
  const FunctionRecord* record;
  const PointerNode* next = nullptr;
};
template <class Pointer, class Class = void>
struct PointerList {
  static inline std::atomic<const PointerNode<Pointer>*> head{nullptr};

  static void Add(PointerNode<Pointer>* node) {
    node->next = head.load(std::memory_order_relaxed);
    while (!head.compare_exchange_weak(node->next, node, std::memory_order_release)) {
    }
  }
  static const FunctionRecord* Find(Pointer pointer) {
    const PointerNode<Pointer>* node = head.load(std::memory_order_acquire);
    while (node != nullptr && node->pointer != pointer) node = node->next;
    return node == nullptr ? nullptr : node->record;
  }
};

}  // namespace sheaf::inline v1::internal
