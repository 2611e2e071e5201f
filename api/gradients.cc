// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/gradients.h"

#include "api/core.h"

#include "sheaf/gradients.h"

#include <utility>

#include "api/group_state.h"

namespace sheaf::inline v1::collective {

static_assert(static_cast<int>(Compression::kTopK) == static_cast<int>(sheaf::Compression::kTopK));

struct GradientReducer::State {
  std::shared_ptr<GroupState> group;  // Outlives the reducer.
  std::unique_ptr<sheaf::GradientReducer> reducer;
};

GradientReducer::GradientReducer(Group& group, std::vector<GradientArray> arrays,
                                 const GradientOptions& options)
    : state_(std::make_unique<State>()) {
  std::vector<sheaf::GradientArray> all;
  for (GradientArray& array : arrays) all.push_back({std::move(array.name), array.count});
  state_->group = group.state_;
  sheaf::GradientOptions core;
  core.op = static_cast<ReduceOp>(options.op);
  core.compression = static_cast<sheaf::Compression>(options.compression);
  core.keep = options.keep;
  core.bucket_bytes = options.bucket_bytes;
  Communicator& communicator = CommunicatorIn(state_->group);
  core.timeout = state_->group->timeout;
  auto made = sheaf::GradientReducer::Make(communicator, std::move(all), core);
  ThrowIfFailed(made.status());
  state_->reducer = *std::move(made);
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

std::span<float> GradientReducer::array(size_t index) const {
  if (index >= state_->reducer->array_count()) {
    throw InvalidArgumentError("there is no array " + std::to_string(index) + " among " +
                               std::to_string(state_->reducer->array_count()));
  }
  return {state_->reducer->array(index), state_->reducer->count(index)};
}

void GradientReducer::MarkReady(size_t index) { ThrowIfFailed(state_->reducer->MarkReady(index)); }
void GradientReducer::Finish() { ThrowIfFailed(state_->reducer->Finish()); }

std::vector<float> GradientReducer::Residual(size_t index) const {
  return array(index).empty() ? std::vector<float>() : state_->reducer->Residual(index);
}
void GradientReducer::SetResidual(size_t index, const std::vector<float>& values) {
  if (!array(index).empty()) state_->reducer->SetResidual(index, values);
}

}  // namespace sheaf::inline v1::collective
