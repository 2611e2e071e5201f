// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a task, an actor or a call asks for. Each option is a method of sheaf::Task(f),
// sheaf::Actor<C>() or handle.Task(&C::M), and can be chained:
// Task(f).Cpus(2).Retries(3).Remote(x).
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sheaf/errors.h"
#include "sheaf/internal/export.h"
#include "sheaf/internal/handle.h"

namespace sheaf::inline v1 {

class PlacementGroup;

// One label of a node must be one of `values`, or (negated) none of them.
struct LabelTerm {
  std::string key{};                  // The name of the label.
  std::vector<std::string> values{};  // The label has one of them.
  bool negated = false;               // The label has none of the values.
};
using LabelSelector = std::vector<LabelTerm>;  // All must hold.

// Where to run. Default: nodes are filled half, in order, then spread; nodes that hold large
// arguments come first.
class Strategy {
 public:
  // Which of the functions below made it.
  enum class Kind : uint8_t { kDefault, kSpread, kNode, kGroup };

  // What counts where no strategy is given.
  static Strategy Default() { return {}; }
  // On the nodes in turn.
  static Strategy Spread() { return Strategy(Kind::kSpread); }
  // On the node of this number (Nodes(), Context().node). `soft`: elsewhere when it is dead or too
  // small.
  static Strategy Node(uint32_t node, bool soft = false) {
    Strategy strategy(Kind::kNode);
    strategy.node_ = node;
    strategy.soft_ = soft;
    return strategy;
  }
  // In a bundle of the group (-1: any), whose resources it uses. `children`: tasks that it submits,
  // and actors that it makes, go there too, to any bundle, and theirs in turn; unless they have a
  // strategy of their own.
  static Strategy Group(const PlacementGroup& group, int bundle = -1, bool children = false);
  // On nodes with such labels; the first selector that some node satisfies counts. Combines with
  // the others.
  Strategy& Labels(std::vector<LabelSelector> selectors) {
    selectors_ = std::move(selectors);
    return *this;
  }

  // What the strategy was made with.
  Kind kind() const { return kind_; }
  uint32_t node() const { return node_; }
  bool soft() const { return soft_; }
  internal::RawId group() const { return group_; }
  int bundle() const { return bundle_; }
  bool children() const { return children_; }
  const std::vector<LabelSelector>& selectors() const { return selectors_; }

 private:
  friend class PlacementGroup;
  Strategy() = default;
  explicit Strategy(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kDefault;
  uint32_t node_ = 0;
  bool soft_ = false;
  bool children_ = false;
  internal::RawId group_;
  int bundle_ = -1;
  std::vector<LabelSelector> selectors_;
};

// All options in one place; which of them mean something depends on what is called.
struct Options {
  // "CPU", "GPU", "memory" (bytes), or names of your own.
  std::map<std::string, double> resources{};
  // After crashes; -1: without bound. Default 3; calls of actors: the actor's.
  std::optional<int> max_retries{};
  bool retry_exceptions = false;       // Exceptions too...
  std::string retry_rule{};            // ...of these types; empty: of all.
  std::string name{};                  // For people; of an actor: to find it by.
  std::optional<Strategy> strategy{};  // Where to run.
  // Variables set in the worker before main. It is not shared with tasks of another environment.
  std::map<std::string, std::string> environment{};
  int64_t max_unconsumed = 0;  // Generators: waits when so many items are not consumed; 0: never.
  int64_t max_unconsumed_bytes = 0;  // Or items of so many bytes; 0: never.
  uint32_t max_calls = 0;            // The worker ends after so many calls; 0: never.

  std::string name_space{};      // Of an actor's name; empty: the job's.
  bool detached = false;         // As ActorOptions::Detached.
  bool get_if_exists = false;    // As ActorOptions::GetIfExists.
  int max_restarts = 0;          // As ActorOptions::MaxRestarts.
  int max_task_retries = 0;      // As ActorOptions::MaxTaskRetries.
  uint32_t max_concurrency = 0;  // Of an actor; 0: 1, or 1,000 for those with coroutines.
  // As ActorOptions::ConcurrencyGroup.
  std::vector<std::pair<std::string, uint32_t>> concurrency_groups{};
  bool out_of_order = false;      // As ActorOptions::OutOfOrder.
  int64_t max_pending_calls = 0;  // Of an actor, per caller; 0: no bound.

  std::string concurrency_group{};  // Of a call of an actor: where it runs.
};

namespace internal {

// A list of exception types by which retries are decided in the worker. The same program runs
// there, so a name is enough.
struct RetryRule {
  std::string key;
  bool (*matches)(std::exception_ptr);
};
SHEAF_API void RegisterRetryRule(const RetryRule* rule);

template <class... Errors>
bool MatchesAny(std::exception_ptr error) {
  const auto matches = [&error]<class E>(std::type_identity<E>) {
    try {
      std::rethrow_exception(error);
    } catch (const E&) {
      return true;
    } catch (...) {
      return false;
    }
  };
  return (matches(std::type_identity<Errors>()) || ...);
}
template <class... Errors>
struct RetryRuleOf {
  static const RetryRule* Register() {
    static const RetryRule rule{(std::string() + ... + (std::string(typeid(Errors).name()) + " ")),
                                &MatchesAny<Errors...>};
    RegisterRetryRule(&rule);
    return &rule;
  }
  static inline const RetryRule* const registered = Register();  // In every process, before main.
};

// Options of one caller object, and the template made of them at its first call. Copying copies the
// options.
class OptionHolder {
 public:
  OptionHolder() = default;
  OptionHolder(const OptionHolder& other)
      : options_(other.options_ == nullptr ? nullptr : new Options(*other.options_)),
        prepared_(other.prepared_) {}
  OptionHolder(OptionHolder&&) noexcept = default;
  OptionHolder& operator=(OptionHolder other) noexcept {
    std::swap(options_, other.options_);
    std::swap(prepared_, other.prepared_);
    return *this;
  }
  Options& Change() {
    prepared_ = nullptr;
    if (options_ == nullptr) options_ = std::make_unique<Options>();
    return *options_;
  }
  const Options* options() const { return options_.get(); }  // Null: all by default.
  std::shared_ptr<const void>& prepared() { return prepared_; }

 private:
  std::unique_ptr<Options> options_;
  std::shared_ptr<const void> prepared_;
};

}  // namespace internal

// Options of everything that needs a worker: tasks and actors. Each returns the object itself.
template <class Self>
class PlacedOptions {
 public:
  // How many CPUs it needs; 1 unless said. It waits until some node has them free.
  Self& Cpus(double count) { return Resource("CPU", count); }
  // How many GPUs; below 1: a part of a shared one. CUDA_VISIBLE_DEVICES is set in the worker.
  Self& Gpus(double count) { return Resource("GPU", count); }
  // How many bytes of the "memory" that its node has for tasks. They are reserved, and no limit.
  Self& Memory(double bytes) { return Resource("memory", bytes); }
  // How much of a resource, by the name that nodes were started with.
  Self& Resource(const std::string& name, double amount) {
    self().Change().resources[name] = amount;
    return self();
  }
  Self& Resources(const std::map<std::string, double>& amounts) {
    for (const auto& [name, amount] : amounts) Resource(name, amount);
    return self();
  }
  // Where to run.
  Self& Place(Strategy strategy) {
    self().Change().strategy = std::move(strategy);
    return self();
  }
  // Variables set in the worker before main. It is not shared with tasks of another environment.
  Self& Environment(std::map<std::string, std::string> variables) {
    self().Change().environment = std::move(variables);
    return self();
  }
  // For people; of an actor: to find it by, within its namespace.
  Self& Name(std::string name) {
    self().Change().name = std::move(name);
    return self();
  }

 protected:
  // The caller whose options these are.
  Self& self() { return static_cast<Self&>(*this); }
};

// Options of everything that is executed: tasks and calls of actors. Each returns the object
// itself.
template <class Self>
class RetryOptions {
 public:
  // How often it runs again when its worker crashes; -1: without bound.
  Self& Retries(int count) {
    self().Change().max_retries = count;
    return self();
  }
  // Exceptions count as failures to retry, too: of these types (and derived ones), or all.
  template <class... Errors>
  Self& RetryOn() {
    sheaf::Options& options = self().Change();
    options.retry_exceptions = true;
    if constexpr (sizeof...(Errors) > 0)
      options.retry_rule = internal::RetryRuleOf<Errors...>::registered->key;
    return self();
  }
  // Of a generator: it waits when so many of its items are not consumed.
  Self& MaxUnconsumed(int64_t items) {
    self().Change().max_unconsumed = items;
    return self();
  }
  // The same of items that have so many bytes together; one may have more.
  Self& MaxUnconsumedBytes(int64_t bytes) {
    self().Change().max_unconsumed_bytes = bytes;
    return self();
  }
  // All options at once; replaces what was set before.
  Self& Options(sheaf::Options options) {
    self().Change() = std::move(options);
    return self();
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace sheaf::inline v1
