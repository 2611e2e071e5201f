// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/function_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"

namespace sheaf {
namespace {

// Rows: 'd' hash -> data, 'j' job hash -> nothing. A further job does not write the data again.
std::string DataRow(std::string_view hash) {
  return absl::StrCat("d", absl::string_view(hash.data(), hash.size()));
}
std::string JobRow(JobNumber job, std::string_view hash) {
  return "j" + RowKey(job) + std::string(hash);
}
std::string BlobLatch(std::string_view hash) { return "blob/" + std::string(hash); }

}  // namespace

void FunctionService::Load(std::string_view row, std::string_view value) {
  if (row.starts_with('d')) {
    table_.Put(row.substr(1), std::string(value));
  } else if (row.starts_with('j') && row.size() > 5) {
    table_.AddJob(row.substr(5), NumberFromRowKey<uint32_t>(row.substr(1, 4)).value_or(0));
  }
}

void FunctionService::Put(CallPtr call, const proto::PutBlob& request) {
  if (request.hash().empty() || request.hash().size() > FunctionTable::kMaxHashBytes ||
      request.data().size() > FunctionTable::kMaxBlobBytes) {
    return context_.pipeline.Answer(
        call,
        ErrorReply(ErrorKind::kInvalidArgument,
                   absl::StrCat("a hash of ", request.hash().size(), " bytes for ",
                                request.data().size(), " bytes: want 1 to 64 for at most 32 MiB")));
  }
  context_.pipeline.Run(
      std::move(call), {BlobLatch(request.hash())},
      [this, hash = request.hash(), data = request.data(), job = request.job()]() -> Outcome {
        const FunctionTable::Blob* known = table_.Find(hash);
        if (known != nullptr && known->data != data) {
          return {
              {}, nullptr, ErrorReply(ErrorKind::kInvalidArgument, "other content has this hash")};
        }
        Outcome outcome;
        if (known != nullptr && known->jobs.contains(job)) return outcome;
        if (known == nullptr) {
          if (table_.bytes() + data.size() > context_.options.max_blob_bytes) {
            return {
                {},
                nullptr,
                ErrorReply(ErrorKind::kInvalidArgument,
                           absl::StrCat("functions and packages fill ", table_.bytes(), " of ",
                                        context_.options.max_blob_bytes, " bytes; end some jobs"))};
          }
          outcome.writes.push_back({Table::kBlobs, DataRow(hash), data});
        }
        outcome.writes.push_back({Table::kBlobs, JobRow(job, hash), ""});
        outcome.apply = [this, hash, data = known == nullptr ? data : std::string(),
                         is_new = known == nullptr, job] {
          if (is_new) table_.Put(hash, data);
          table_.AddJob(hash, job);
        };
        return outcome;
      });
}

void FunctionService::Get(const CallPtr& call, const proto::GetBlob& request) const {
  const FunctionTable::Blob* blob = table_.Find(request.hash());
  if (blob == nullptr) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kNotFound, "no function or package has this hash"));
  }
  proto::GcsReply reply;
  reply.mutable_blob()->set_data(blob->data);
  context_.pipeline.Answer(call, std::move(reply));
}

void FunctionService::Release(JobNumber job) {
  for (const std::string& hash : table_.HashesOf(job)) {
    context_.pipeline.Run(nullptr, {BlobLatch(hash)}, [this, hash, job]() -> Outcome {
      const FunctionTable::Blob* blob = table_.Find(hash);
      if (blob == nullptr || !blob->jobs.contains(job)) return {};
      Outcome outcome;
      outcome.writes = {{Table::kBlobs, JobRow(job, hash), std::nullopt}};
      if (blob->jobs.size() == 1)
        outcome.writes.push_back({Table::kBlobs, DataRow(hash), std::nullopt});
      outcome.apply = [this, hash, job] { table_.RemoveJob(hash, job); };
      return outcome;
    });
  }
}

}  // namespace sheaf
