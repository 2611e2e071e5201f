// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors: objects of your classes that live in a process of their own and are called from anywhere.
//
//   class Counter {
//    public:
//     explicit Counter(int start) : value_(start) {}
//     int Add(int n) { return value_ += n; }
//    private:
//     int value_;
//   };
//   SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add);
//
//   sheaf::ActorHandle<Counter> counter = sheaf::Actor<Counter>().Remote(10);
//   sheaf::ObjectRef<int> eleven = counter.Task(&Counter::Add).Remote(1);
// Calls of one caller run in order, one at a time, unless MaxConcurrency or OutOfOrder says
// otherwise. Methods that are coroutines (sheaf::Async) take turns at each co_await. An actor ends
// when the last handle to it is gone, unless it is Detached.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sheaf/task.h"

namespace sheaf::inline v1 {
namespace internal {

template <class... Parameters>
struct ConstructorTag {
  using Types = std::tuple<Parameters...>;
};
template <size_t kSize>
struct GroupName {
  char text[kSize];
  consteval GroupName(const char (&name)[kSize]) {
    for (size_t i = 0; i < kSize; ++i) text[i] = name[i];
  }
};
template <class Method, size_t kSize>
struct GroupedMethod {
  Method method;
  GroupName<kSize> group;
};

SHEAF_API Handle CreateActor(const FunctionRecord& constructor, OptionHolder& options,
                             Arguments& arguments);
SHEAF_API Handle SubmitCall(const Handle& actor, const FunctionRecord& method,
                            OptionHolder& options, Arguments& arguments);
SHEAF_API void SubmitCall(const Handle& actor, const FunctionRecord& method, OptionHolder& options,
                          Arguments& arguments, std::span<Handle> results);
SHEAF_API Handle FindActor(std::string_view name, std::string_view name_space,
                           const std::string& class_key);
SHEAF_API void KillActor(const Handle& actor, bool no_restart);
SHEAF_API RawId ActorIdOf(const Handle& actor);

// The class that a factory makes.
template <class R>
struct MadeBy {
  using Class = R;
};
template <class C>
struct MadeBy<std::unique_ptr<C>> {
  using Class = C;
};

template <class Class>
void Destroy(void* object) {
  delete static_cast<Class*>(object);
}
template <class Class, class... Parameters>
void InvokeConstructor(Call& call) {
  using Arguments = Slots<std::tuple<Parameters...>>;
  typename Arguments::Type slots = Arguments::Read(call);
  auto make = [](auto&&... arguments) {
    return new Class(std::forward<decltype(arguments)>(arguments)...);
  };
  call.SetInstance(Arguments::Apply(make, slots), &Destroy<Class>);
  ReturnNothing(call);
}
template <class Class, auto kFactory>
void InvokeFactory(Call& call) {
  using Signature = SignatureOf<decltype(kFactory)>;
  using Arguments = Slots<typename Signature::Parameters>;
  typename Arguments::Type slots = Arguments::Read(call);
  auto make = [](auto&&... arguments) -> Class* {
    if constexpr (kIs<typename Signature::Return, std::unique_ptr>) {
      return kFactory(std::forward<decltype(arguments)>(arguments)...).release();
    } else {
      return new Class(kFactory(std::forward<decltype(arguments)>(arguments)...));
    }
  };
  Class* object = Arguments::Apply(make, slots);
  if (object == nullptr) throw InvalidArgumentError("the factory of the actor returned no object");
  call.SetInstance(object, &Destroy<Class>);
  ReturnNothing(call);
}

// One member of SHEAF_ACTOR: how it is registered.
template <class Class, auto kMember, class Type = std::remove_cv_t<decltype(kMember)>>
struct Member {
  static_assert(std::is_same_v<Class, void>,
                "SHEAF_ACTOR: a member is sheaf::Constructor<Types...>, a factory function, "
                "&Class::Method or "
                "sheaf::InGroup<\"name\">(&Class::Method)");
};
template <class Class, auto kMember, class... Parameters>
struct Member<Class, kMember, ConstructorTag<Parameters...>> {
  static constexpr bool kAsync = false;
  using ConstructorTypes = std::tuple<Parameters...>;
  static const FunctionRecord& Record(bool class_is_async = false) {
    static FunctionRecord record;
    static const bool once = [class_is_async] {
      static_assert((ParameterType<Parameters> && ...),
                    "SHEAF_ACTOR: a parameter of a constructor cannot travel between processes");
      static_assert(std::is_constructible_v<Class, Parameters...>,
                    "SHEAF_ACTOR: the class has no public constructor with the types of "
                    "sheaf::Constructor<...>");
      record.kind = FunctionRecord::Kind::kConstructor;
      record.name = TypeName<Class>();
      record.key = KeyOf<void(Parameters...)>(record.name + "()");
      record.class_key = typeid(Class).name();
      record.parameters = sizeof...(Parameters);
      record.is_async = class_is_async;
      if constexpr (std::is_constructible_v<Class, Parameters...>) {
        record.invoke = &InvokeConstructor<Class, Parameters...>;
      }
      return true;
    }();
    (void)once;
    return record;
  }
  static void Register(bool class_is_async) { internal::Register(&Record(class_is_async)); }
};
template <class Class, auto kFactory, class R, class... Parameters>
struct Member<Class, kFactory, R (*)(Parameters...)> {
  static constexpr bool kAsync = false;
  static_assert(
      std::is_same_v<typename MadeBy<R>::Class, Class>,
      "SHEAF_ACTOR: a factory returns an object of the actor's class, or a std::unique_ptr to one");
  static void Register(bool class_is_async) {
    static FunctionRecord record;
    static PointerNode<R (*)(Parameters...)> node{kFactory, &record};
    record.kind = FunctionRecord::Kind::kConstructor;
    record.name = TypeName<Class>();
    record.key = KeyOf<R(Parameters...)>(NameOf<kFactory>());
    record.class_key = typeid(Class).name();
    record.parameters = sizeof...(Parameters);
    record.is_async = class_is_async;
    record.invoke = &InvokeFactory<Class, kFactory>;
    internal::Register(&record);
    PointerList<R (*)(Parameters...), Class>::Add(&node);
  }
};
template <class Class, auto kFactory, class R, class... Parameters>
struct Member<Class, kFactory, R (*)(Parameters...) noexcept>
    : Member<Class, static_cast<R (*)(Parameters...)>(kFactory)> {};

template <class Class, auto kMethod>
struct MethodMember {
  using Signature = SignatureOf<decltype(kMethod)>;
  using Pointer = typename Signature::Pointer;
  static_assert(std::is_base_of_v<typename Signature::Class, Class>,
                "SHEAF_ACTOR: a method is of another class");
  static constexpr bool kAsync = RemoteOf<typename Signature::Return>::kAsync;
  static void RegisterIn(std::string group) {
    static FunctionRecord record;
    static PointerNode<Pointer> node{kMethod, &record};
    record.kind = FunctionRecord::Kind::kMethod;
    const std::string name = NameOf<kMethod>();  // Perhaps of a base class.
    record.name = TypeName<Class>() + name.substr(name.rfind("::"));
    record.key = KeyOf<typename Signature::Plain>(record.name);
    record.class_key = typeid(Class).name();
    record.parameters = std::tuple_size_v<typename Signature::Parameters>;
    record.streaming = RemoteOf<typename Signature::Return>::kStreaming;
    record.group = std::move(group);
    if constexpr (CheckFunction<decltype(kMethod)>()) record.invoke = &InvokeMethod<Class, kMethod>;
    internal::Register(&record);
    PointerList<Pointer, Class>::Add(&node);
  }
};
template <class Class, auto kMethod, class Base, class Function>
  requires std::is_function_v<Function>
struct Member<Class, kMethod, Function Base::*> : MethodMember<Class, kMethod> {
  static void Register(bool) { MethodMember<Class, kMethod>::RegisterIn(""); }
};
template <class Class, auto kMember, class Method, size_t kSize>
struct Member<Class, kMember, GroupedMethod<Method, kSize>> : MethodMember<Class, kMember.method> {
  static void Register(bool) {
    MethodMember<Class, kMember.method>::RegisterIn(kMember.group.text);
  }
};

// All that SHEAF_ACTOR says of a class.
template <class Class, auto... kMembers>
struct ActorMembers {
  static constexpr bool kAsync = (Member<Class, kMembers>::kAsync || ...);
  static bool Register() {
    static const bool once = (Member<Class, kMembers>::Register(kAsync), ..., true);
    return once;
  }
  // The record of the first constructor that takes the arguments, or nullptr_t.
  template <class... Given>
  static constexpr auto ConstructorFor() {
    return First<Given...>(std::type_identity<Member<Class, kMembers>>()...);
  }

 private:
  template <class... Given>
  static constexpr auto First() {
    return nullptr;
  }
  template <class... Given, class Head, class... Tail>
  static constexpr auto First(std::type_identity<Head> head, Tail... tail) {
    if constexpr (requires { typename Head::ConstructorTypes; }) {
      if constexpr (ArgumentsFit<typename Head::ConstructorTypes, Given...>::Quietly()) {
        return head;
      } else {
        return First<Given...>(tail...);
      }
    } else {
      return First<Given...>(tail...);
    }
  }
};

template <class Class>
using MembersOf = decltype(SheafActorMembers(
    static_cast<Class*>(nullptr)));  // Found beside the class: SHEAF_ACTOR made it.
template <class Class>
concept ActorClass = requires { typename MembersOf<Class>; };

}  // namespace internal

// In SHEAF_ACTOR: a constructor, by the types of its parameters.
template <class... Parameters>
inline constexpr internal::ConstructorTag<Parameters...> Constructor{};
// In SHEAF_ACTOR: a method whose calls run in the concurrency group of this name.
template <internal::GroupName kGroup, class Method>
consteval auto InGroup(Method method) {
  return internal::GroupedMethod<Method, sizeof(kGroup.text)>{method, kGroup};
}

// A method with its options, of one actor. Copyable; use one object for many calls.
template <class R, class... Parameters>
class MethodCaller : public internal::OptionHolder,
                     public RetryOptions<MethodCaller<R, Parameters...>> {
  using Remoted = internal::RemoteOf<R>;
  template <class... Given>
  using Fit = internal::ArgumentsFit<std::tuple<Parameters...>, Given...>;

 public:
  // Made by ActorHandle::Task().
  MethodCaller(internal::Handle actor, const internal::FunctionRecord* method)
      : actor_(std::move(actor)), method_(method) {}

  // Of the call, for people.
  MethodCaller& Name(std::string name) {
    this->Change().name = std::move(name);
    return *this;
  }
  // Runs in this concurrency group of the actor.
  MethodCaller& Group(std::string name) {
    this->Change().concurrency_group = std::move(name);
    return *this;
  }

  // Submits a call and returns at once: an ObjectRef to its result, or an ObjectStream of the
  // values of a generator. Calls of one caller reach the actor in the order in which they were
  // made. Throws PendingCallsLimitError as MaxPendingCalls says.
  template <class... Given>
  typename Remoted::Handle Remote(const Given&... arguments) {
    if constexpr (Fit<Given...>::Check()) {
      internal::Arguments encoded;
      internal::AddArguments(std::type_identity<std::tuple<Parameters...>>(), encoded,
                             arguments...);
      return Remoted::Handle::FromHandle(internal::SubmitCall(actor_, *method_, *this, encoded));
    }
  }
  // For methods that return a std::tuple: a reference to each element by itself.
  template <class... Given>
  auto RemoteTuple(const Given&... arguments) {
    using Value = typename Remoted::Value;
    constexpr bool kIsTuple = internal::kIs<Value, std::tuple> && !Remoted::kStreaming;
    static_assert(kIsTuple, "sheaf: RemoteTuple() is for methods that return a std::tuple");
    if constexpr (kIsTuple && Fit<Given...>::Check()) {
      internal::Arguments encoded;
      internal::AddArguments(std::type_identity<std::tuple<Parameters...>>(), encoded,
                             arguments...);
      internal::Handle results[std::tuple_size_v<Value>];
      internal::SubmitCall(actor_, *method_, *this, encoded, results);
      return internal::RefTuple<Value>::From(results);
    }
  }

 private:
  internal::Handle actor_;
  const internal::FunctionRecord* method_;
};

// An actor, by any number of copies of its handle, anywhere in the cluster: pass it as an argument,
// or inside one.
template <class Class>
class ActorHandle {
 public:
  using actor_type = Class;  // What is called.

  ActorHandle() = default;  // Empty: no actor.
  // Whether it names an actor.
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  // 32 hexadecimal digits, as the command line takes them.
  std::string id() const { return internal::ToHex(internal::ActorIdOf(handle_)); }
  // Whether both name the same actor.
  friend bool operator==(const ActorHandle& a, const ActorHandle& b) {
    return a.handle_.id() == b.handle_.id();
  }

  // A method, to be called: handle.Task(&Counter::Add).Remote(1). Throws InvalidArgumentError when
  // SHEAF_ACTOR does not name it.
  template <class R, class Base, class... Parameters>
  MethodCaller<R, Parameters...> Task(R (Base::*method)(Parameters...)) const {
    return Caller<R, Parameters...>(method);
  }
  template <class R, class Base, class... Parameters>
  MethodCaller<R, Parameters...> Task(R (Base::*method)(Parameters...) const) const {
    return Caller<R, Parameters...>(method);
  }
  // Ready when the constructor has run; throws what it threw.
  ObjectRef<void> Created() const { return ObjectRef<void>::FromHandle(handle_); }

  // For Sheaf's own use.
  const internal::Handle& handle() const noexcept { return handle_; }
  static ActorHandle FromHandle(internal::Handle handle) {
    ActorHandle actor;
    actor.handle_ = std::move(handle);
    return actor;
  }

 private:
  template <class R, class... Parameters, class Pointer>
  MethodCaller<R, Parameters...> Caller(Pointer method) const {
    const internal::FunctionRecord* record = internal::PointerList<Pointer, Class>::Find(method);
    if (record == nullptr) [[unlikely]]
      internal::ThrowNotRegistered(internal::TypeName<Pointer>());
    return MethodCaller<R, Parameters...>(handle_, record);
  }

  internal::Handle handle_;
};

// Options of actors. GetActor(x) finds one that has Name(x). Unless resources are asked for, an
// actor needs one CPU to be placed and none to run. Each option returns the object itself.
template <class Self>
class ActorOptions : public internal::OptionHolder, public PlacedOptions<Self> {
 public:
  // Where its name counts; the job's own unless said.
  Self& Namespace(std::string name_space) {
    return Set(&Options::name_space, std::move(name_space));
  }
  // It lives until it is killed, also after this job. It needs a name.
  Self& Detached() { return Set(&Options::detached, true); }
  // Remote gives the actor of that name if there is one, and makes none.
  Self& GetIfExists() { return Set(&Options::get_if_exists, true); }
  // How often it is made anew when its process dies; -1: without bound.
  Self& MaxRestarts(int count) { return Set(&Options::max_restarts, count); }
  // How often a call is sent again when the actor died under it; -1: without bound.
  Self& MaxTaskRetries(int count) { return Set(&Options::max_task_retries, count); }
  // Calls at the same time: threads, or coroutines.
  Self& MaxConcurrency(uint32_t calls) { return Set(&Options::max_concurrency, calls); }
  // Further calls at the same time, for methods with sheaf::InGroup or calls with Group.
  Self& ConcurrencyGroup(std::string name, uint32_t calls) {
    this->Change().concurrency_groups.emplace_back(std::move(name), calls);
    return this->self();
  }
  // Calls may run in another order than they were made. Sheaf makes no use of it so far.
  Self& OutOfOrder() { return Set(&Options::out_of_order, true); }
  // A caller with so many calls unanswered gets PendingCallsLimitError.
  Self& MaxPendingCalls(int64_t calls) { return Set(&Options::max_pending_calls, calls); }

 private:
  template <class T>
  Self& Set(T Options::* field, T value) {
    this->Change().*field = std::move(value);
    return this->self();
  }
};

// An actor to be made, with its options.
template <class Class, class Parameters = void>
class ActorCaller : public ActorOptions<ActorCaller<Class, Parameters>> {
 public:
  ActorCaller() = default;  // By a constructor.
  // Made by Actor(factory).
  explicit ActorCaller(const internal::FunctionRecord* factory) : factory_(factory) {}

  // Makes the actor and returns at once; of one with a name it returns when the name is registered,
  // and throws ActorNameTakenError when another actor has it.
  template <class... Given>
  ActorHandle<Class> Remote(const Given&... arguments) {
    if constexpr (std::is_void_v<Parameters>) {
      using Constructor = decltype(internal::MembersOf<Class>::template ConstructorFor<Given...>());
      static_assert(!std::is_same_v<Constructor, std::nullptr_t>,
                    "sheaf: none of the constructors that SHEAF_ACTOR names takes these arguments; "
                    "add sheaf::Constructor<Types...>");
      if constexpr (!std::is_same_v<Constructor, std::nullptr_t>) {
        using Chosen = typename Constructor::type;
        return Make(Chosen::Record(), std::type_identity<typename Chosen::ConstructorTypes>(),
                    arguments...);
      }
    } else if constexpr (internal::ArgumentsFit<Parameters, Given...>::Check()) {
      return Make(*factory_, std::type_identity<Parameters>(), arguments...);
    }
  }

 private:
  template <class Types, class... Given>
  ActorHandle<Class> Make(const internal::FunctionRecord& record, std::type_identity<Types> types,
                          const Given&... arguments) {
    internal::Arguments encoded;
    internal::AddArguments(types, encoded, arguments...);
    return ActorHandle<Class>::FromHandle(internal::CreateActor(record, *this, encoded));
  }

  const internal::FunctionRecord* factory_ = nullptr;
};

// By a constructor: sheaf::Actor<Counter>().Remote(10).
template <class Class>
ActorCaller<Class> Actor() {
  static_assert(internal::ActorClass<Class>,
                "sheaf: this class is no actor: write SHEAF_ACTOR(Class, sheaf::Constructor<...>, "
                "&Class::Method, ...) in its "
                "namespace");
  return ActorCaller<Class>();
}
// By a factory function that SHEAF_ACTOR names: sheaf::Actor(MakeCounter).Remote(10).
template <class R, class... Parameters>
auto Actor(R (*factory)(Parameters...)) {
  using Class = typename internal::MadeBy<R>::Class;
  static_assert(internal::ActorClass<Class>,
                "sheaf: this class is no actor: write SHEAF_ACTOR(Class, sheaf::Constructor<...>, "
                "&Class::Method, ...) in its "
                "namespace");
  const internal::FunctionRecord* record =
      internal::PointerList<R (*)(Parameters...), Class>::Find(factory);
  if (record == nullptr) internal::ThrowNotRegistered(internal::TypeName<R(Parameters...)>());
  return ActorCaller<Class, std::tuple<Parameters...>>(record);
}

// The actor of that name, in this job's namespace or `name_space`. Throws NotFoundError, or
// InvalidArgumentError when it is of another class.
template <class Class>
ActorHandle<Class> GetActor(std::string_view name, std::string_view name_space = {}) {
  return ActorHandle<Class>::FromHandle(
      internal::FindActor(name, name_space, typeid(Class).name()));
}
// Ends the actor's process; its calls end with ActorDiedError. With `no_restart` false its
// MaxRestarts counts.
template <class Class>
void Kill(const ActorHandle<Class>& actor, bool no_restart = true) {
  internal::KillActor(actor.handle(), no_restart);
}

}  // namespace sheaf::inline v1

// Makes a class callable in other processes. In the namespace of the class, after it; in a source
// file or a header:
//   SHEAF_ACTOR(Counter, sheaf::Constructor<int>, MakeCounter, &Counter::Add,
//   sheaf::InGroup<"io">(&Counter::Load));
#define SHEAF_ACTOR(Class, ...)                                                                  \
  [[maybe_unused]] inline ::sheaf::internal::ActorMembers<Class, __VA_ARGS__> SheafActorMembers( \
      Class*) {                                                                                  \
    return {};                                                                                   \
  }                                                                                              \
  static_assert(::sheaf::internal::ActorClass<Class>,                                            \
                "SHEAF_ACTOR stands in the namespace of its class");                             \
  [[maybe_unused]] static const bool SHEAF_CONCATENATE(sheaf_actor_, __COUNTER__) =              \
      ::sheaf::internal::ActorMembers<Class, __VA_ARGS__>::Register()
