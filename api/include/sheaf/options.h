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
  std::string key{};
  std::vector<std::string> values{};
  bool negated = false;
};
using LabelSelector = std::vector<LabelTerm>;  // All must hold.

// Where to run. Default: nodes are filled half, in order, then spread; nodes that hold large
// arguments come first.
class Strategy {
 public:
  enum class Kind : uint8_t { kDefault, kSpread, kNode, kGroup };

  static Strategy Default() { return {}; }
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
  bool retry_exceptions = false;  // Exceptions too...
  std::string retry_rule{};       // ...of these types; empty: of all.
  std::string name{};             // For people; of an actor: to find it by.
  std::optional<Strategy> strategy{};
  // Variables set in the worker before main. It is not shared with tasks of another environment.
  std::map<std::string, std::string> environment{};
  int64_t max_unconsumed = 0;  // Generators: waits when so many items are not consumed; 0: never.
  uint32_t max_calls = 0;      // The worker ends after so many calls; 0: never.
  // Actors.
  std::string name_space{};  // Of the name; empty: the job's.
  bool detached = false;
  bool get_if_exists = false;
  int max_restarts = 0;
  int max_task_retries = 0;
  uint32_t max_concurrency = 0;  // 0: 1, or 1,000 for actors with coroutines.
  std::vector<std::pair<std::string, uint32_t>> concurrency_groups{};
  bool out_of_order = false;
  int64_t max_pending_calls = 0;  // Per caller; 0: no bound.
  // Calls of actors.
  std::string concurrency_group{};
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

// Options of everything that needs a worker: tasks and actors.
template <class Self>
class PlacedOptions {
 public:
  Self& Cpus(double count) { return Resource("CPU", count); }
  Self& Gpus(double count) {
    return Resource("GPU", count);
  }  // Below 1: shared. CUDA_VISIBLE_DEVICES is set.
  Self& Memory(double bytes) { return Resource("memory", bytes); }
  Self& Resource(const std::string& name, double amount) {
    self().Change().resources[name] = amount;
    return self();
  }
  Self& Resources(const std::map<std::string, double>& amounts) {
    for (const auto& [name, amount] : amounts) Resource(name, amount);
    return self();
  }
  Self& Place(Strategy strategy) {
    self().Change().strategy = std::move(strategy);
    return self();
  }
  Self& Environment(std::map<std::string, std::string> variables) {
    self().Change().environment = std::move(variables);
    return self();
  }
  Self& Name(std::string name) {
    self().Change().name = std::move(name);
    return self();
  }

 protected:
  Self& self() { return static_cast<Self&>(*this); }
};

// Options of everything that is executed: tasks and calls of actors.
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
      options.retry_rule = RetryRuleOf<Errors...>::registered->key;
    return self();
  }
  // Generators: it waits when so many of its items are not consumed.
  Self& MaxUnconsumed(int64_t items) {
    self().Change().max_unconsumed = items;
    return self();
  }
  // All at once; replaces what was set before.
  Self& Options(sheaf::Options options) {
    self().Change() = std::move(options);
    return self();
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace internal
}  // namespace sheaf::inline v1
