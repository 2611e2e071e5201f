// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The caller's side: arguments, tasks, actors.
#include "api/core.h"
#include "api/failures.h"
#include "api/process.h"
#include "api/templates.h"
#include "sheaf/actor.h"

namespace sheaf::inline v1::internal {
namespace {

static_assert(sizeof(ArgumentList) <= Arguments::kStorageBytes && alignof(ArgumentList) <= 16);

ArgumentList& ListOf(Arguments& arguments) {
  return *static_cast<ArgumentList*>(arguments.storage());
}

void GiveResults(absl::StatusOr<std::vector<ObjectHandle>> handles, std::span<Handle> results) {
  std::vector<ObjectHandle> given = ValueOrThrow(std::move(handles), ErrorKind::kPendingCallsLimit);
  if (given.size() != results.size())
    throw SystemError("a call gave another number of references than it has results");
  for (size_t i = 0; i < given.size(); ++i) results[i] = PublicHandle(std::move(given[i]));
}

}  // namespace

Arguments::Arguments() { new (storage_) ArgumentList; }
Arguments::~Arguments() { std::destroy_at(&ListOf(*this)); }

char* Arguments::AddInPlace(size_t bytes) { return ListOf(*this).AddValueInPlace(bytes); }

void Arguments::Add(const Encoder& value) {
  const size_t size = value.size();
  if (size > kSmallValueBytes) {
    AddReference(PutValue(value));
  } else if (value.nested().empty()) {
    value.CopyTo(ListOf(*this).AddValueInPlace(size));
  } else {
    std::string bytes(size, '\0');
    value.CopyTo(bytes.data());
    ListOf(*this).AddValue(bytes, CoreHandles(value.nested()));
  }
}

void Arguments::AddReference(const Handle& object) {
  RequireHandle(object);
  ListOf(*this).AddReference(CoreHandle(object));
}

Handle SubmitTask(const FunctionRecord& function, OptionHolder& options, Arguments& arguments) {
  const TemplateHandle& spec = TemplateOf(function, options, 1);
  if (function.streaming) {
    Handle stream;
    GiveResults(TheRuntime().Submit(spec, std::move(ListOf(arguments))), {&stream, 1});
    return stream;
  }
  return PublicHandle(ValueOrThrow(TheRuntime().SubmitOne(spec, std::move(ListOf(arguments))),
                                   ErrorKind::kPendingCallsLimit));
}

void SubmitTask(const FunctionRecord& function, OptionHolder& options, Arguments& arguments,
                std::span<Handle> results) {
  const TemplateHandle& spec = TemplateOf(function, options, static_cast<uint32_t>(results.size()));
  GiveResults(TheRuntime().Submit(spec, std::move(ListOf(arguments))), results);
}

Handle SubmitCall(const Handle& actor, const FunctionRecord& method, OptionHolder& options,
                  Arguments& arguments) {
  RequireHandle(actor);
  const TemplateHandle& spec = TemplateOf(method, options, 1);
  if (method.streaming) {
    Handle stream;
    GiveResults(TheRuntime().SubmitToActor(CoreHandle(actor), spec, std::move(ListOf(arguments))),
                {&stream, 1});
    return stream;
  }
  return PublicHandle(ValueOrThrow(
      TheRuntime().SubmitOneToActor(CoreHandle(actor), spec, std::move(ListOf(arguments))),
      ErrorKind::kPendingCallsLimit));
}

void SubmitCall(const Handle& actor, const FunctionRecord& method, OptionHolder& options,
                Arguments& arguments, std::span<Handle> results) {
  RequireHandle(actor);
  const TemplateHandle& spec = TemplateOf(method, options, static_cast<uint32_t>(results.size()));
  GiveResults(TheRuntime().SubmitToActor(CoreHandle(actor), spec, std::move(ListOf(arguments))),
              results);
}

Handle CreateActor(const FunctionRecord& constructor, OptionHolder& options, Arguments& arguments) {
  const TemplateHandle& spec = TemplateOf(constructor, options, 1);
  return PublicHandle(ValueOrThrow(TheRuntime().CreateActor(spec, std::move(ListOf(arguments))),
                                   ErrorKind::kGcsStorageFull));
}

Handle FindActor(std::string_view name, std::string_view name_space, const std::string& class_key) {
  proto::TaskTemplate creation;
  Handle actor = PublicHandle(ValueOrThrow(TheRuntime().GetActor(name, name_space, &creation)));
  if (creation.language() != proto::JobStart::CPP) {
    throw InvalidArgumentError("actor '" + std::string(name) +
                               "' is one of Python: its handle comes from GetPyActor");
  }
  const TemplateExtra extra = Deserialize<TemplateExtra>(creation.extra());
  if (extra.class_key != class_key) {
    throw InvalidArgumentError("actor '" + std::string(name) + "' is a " + creation.name() +
                               ", not what GetActor<> names");
  }
  return actor;
}

void KillActor(const Handle& actor, bool no_restart) {
  RequireHandle(actor);
  ThrowIfFailed(TheRuntime().Kill(CoreHandle(actor), no_restart));
}

RawId ActorIdOf(const Handle& actor) {
  return actor ? PublicId(ActorOf(CoreHandle(actor))) : RawId{};
}

void Cancel(const Handle& object, bool force, bool recursive) {
  RequireHandle(object);
  ThrowIfFailed(TheRuntime().Cancel(CoreHandle(object), force, recursive));
}

Handle NextItem(const Handle& stream, Timeout timeout) {
  RequireHandle(stream);
  std::optional<ObjectHandle> item =
      ValueOrThrow(TheRuntime().NextItem(CoreHandle(stream), DeadlineAfter(timeout)));
  return item ? PublicHandle(*std::move(item)) : Handle();
}

}  // namespace sheaf::inline v1::internal
