// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a call carries that is too large for a frame, on its way into the object store.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/limits.h"
#include "worker/owner/argument_codec.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

constexpr size_t kSmallArgument = 4 * 1024;  // Moved to the store only together with others.
constexpr size_t kReferenceBytes = sizeof(ArgumentHead) + sizeof(StoreArgument);  // In a frame.

// What cannot be made smaller: a place for each argument, and the references inside the values.
absl::Status CheckCounts(const ArgumentList& arguments) {
  if (arguments.count() > kMaxArguments) {
    return absl::InvalidArgumentError(absl::StrCat("a call has ", arguments.count(),
                                                   " arguments, at most ", kMaxArguments,
                                                   "; pass them as one list"));
  }
  return CheckNested(ArgumentCodec::Nested(arguments).size());
}

}  // namespace

void ArgumentList::AddValue(std::string_view bytes, std::span<const ObjectHandle> nested) {
  if (!nested.empty()) {
    holders_.push_back(
        {static_cast<uint32_t>(encoded_.size()), static_cast<uint32_t>(nested.size())});
    nested_.insert(nested_.end(), nested.begin(), nested.end());
  }
  char* to = AddValueInPlace(bytes.size());
  std::memcpy(to, bytes.data(), bytes.size());
}

char* ArgumentList::AddValueInPlace(size_t size) {
  const size_t padded = Aligned8(size);
  char* at = encoded_.Extend(sizeof(ArgumentHead) + padded);
  const ArgumentHead head{ArgumentKind::kValue, static_cast<uint32_t>(size)};
  std::memcpy(at, &head, sizeof head);
  // What is padding travels as zeros.
  if (padded != size) std::memset(at + sizeof head + padded - 8, 0, 8);
  ++count_;
  return at + sizeof head;
}

void ArgumentList::AddReference(const ObjectHandle& object) {
  references_.push_back({object, static_cast<uint32_t>(encoded_.size())});
  const ArgumentHead head{ArgumentKind::kValue, 0};  // Replaced when the call is pushed.
  encoded_.append(AsBytes(head));
  ++count_;
}

// Values that are too large for a frame travel as objects of the store: each by itself, and many
// small ones that stand side by side as one. Without the lock.
absl::Status RuntimeImpl::MoveLargeArguments(ArgumentList* arguments) {
  if (arguments->bytes() <= kInlineValue) [[likely]]
    return absl::OkStatus();
  if (absl::Status few = CheckCounts(*arguments); !few.ok()) return few;
  const auto moves = [](std::string_view bytes, std::span<const ObjectHandle> nested) {
    return bytes.size() > kSmallArgument || nested.size_bytes() > kSmallArgument;
  };
  const auto ignore = [](const ObjectHandle&) { return absl::OkStatus(); };
  size_t small = 0;  // Bytes that would stay.
  ArgumentCodec::Visit(
      *arguments,
      [&](std::string_view bytes, std::span<const ObjectHandle> nested) {
        if (!moves(bytes, nested)) small += sizeof(ArgumentHead) + Aligned8(bytes.size());
        return absl::OkStatus();
      },
      ignore)
      .IgnoreError();
  const bool packs = small > kInlineSum;
  ArgumentList moved;
  ArgumentList run;  // Small values that stand side by side.
  const auto end_run = [&]() -> absl::Status {
    if (run.count() == 0) return absl::OkStatus();
    const std::string_view bytes = ArgumentCodec::Bytes(run);
    if (bytes.size() <= kReferenceBytes) {
      const auto add = [&](std::string_view value, std::span<const ObjectHandle>) {
        moved.AddValue(value);
        return absl::OkStatus();
      };
      ArgumentCodec::Visit(run, add, ignore).IgnoreError();
    } else {
      absl::StatusOr<ObjectHandle> stored = PutInStore(*this, bytes, {});
      if (!stored.ok()) return stored.status();
      ArgumentCodec::AddPack(moved, *stored, run.count());
    }
    run = {};
    return absl::OkStatus();
  };
  absl::Status status = ArgumentCodec::Visit(
      *arguments,
      [&](std::string_view bytes, std::span<const ObjectHandle> nested) -> absl::Status {
        if (packs && nested.empty() && !moves(bytes, nested)) {
          run.AddValue(bytes);
          return absl::OkStatus();
        }
        if (absl::Status ended = end_run(); !ended.ok()) return ended;
        if (!moves(bytes, nested)) {
          moved.AddValue(bytes, nested);
          return absl::OkStatus();
        }
        absl::StatusOr<ObjectHandle> stored = PutInStore(*this, bytes, nested);
        if (stored.ok()) moved.AddReference(*stored);
        return stored.status();
      },
      [&](const ObjectHandle& object) -> absl::Status {
        if (absl::Status ended = end_run(); !ended.ok()) return ended;
        moved.AddReference(object);
        return absl::OkStatus();
      });
  if (status.ok()) status = end_run();
  if (!status.ok()) return status;
  *arguments = std::move(moved);
  return absl::OkStatus();
}

// As values, whatever they were given as: the GCS keeps them for the actor's restarts. Waits for
// objects that are not ready. Without the lock.
absl::StatusOr<ArgumentList> RuntimeImpl::ValuesOf(const ArgumentList& arguments) {
  ArgumentList values;
  const auto add = [&](std::string_view bytes,
                       std::span<const ObjectHandle> nested) -> absl::Status {
    const size_t size = values.bytes() + bytes.size();
    if (size > kMaxDetachedArguments) {
      return TooLarge("what the constructor of a detached actor takes", size, kMaxDetachedArguments,
                      "the GCS keeps it for the actor's restarts: pass a reference inside a list, "
                      "which lives as long as this process or the actor, or let the constructor "
                      "load it");
    }
    values.AddValue(bytes, nested);
    return absl::OkStatus();
  };
  const absl::Status status =
      ArgumentCodec::Visit(arguments, add, [&](const ObjectHandle& object) -> absl::Status {
        std::vector<ObjectView> views;
        if (absl::Status got = Get({&object, 1}, kForever, &views); !got.ok()) return got;
        const ObjectView& view = views.front();
        if (view.error != nullptr) {
          return absl::FailedPreconditionError(
              absl::StrCat("an argument of the constructor failed: ", view.error->message));
        }
        return add(view.bytes, view.nested);
      });
  if (!status.ok()) return status;
  if (absl::Status few = CheckCounts(values); !few.ok()) return few;
  return values;
}

}  // namespace sheaf
