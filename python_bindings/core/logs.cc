// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/logs.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "python_bindings/core/asking.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

nb::bytes Bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// Its `error` in words, if there is one; `again`: another try may do.
nb::dict AskAboutLogs(proto::StateQuery::What what, proto::LogQuestion question) {
  proto::StateQuery query;
  query.set_what(what);
  *query.mutable_log() = std::move(question);
  const proto::StateAnswer answer =
      Ask([&](Runtime& runtime) { return runtime.Query(std::move(query), Soon()); });
  const auto kind = static_cast<ErrorKind>(answer.error_kind());
  nb::dict out;
  out["error"] = answer.error();
  out["again"] = kind == ErrorKind::kTimeout || kind == ErrorKind::kPendingCallsLimit;
  nb::list files;
  for (const proto::LogFile& file : answer.log_files())
    files.append(nb::make_tuple(Bytes(file.name()), file.group()));
  out["files"] = files;
  const proto::LogPiece& piece = answer.log();
  out["bytes"] = Bytes(piece.bytes());
  out["offset"] = piece.offset();
  out["next"] = piece.next();
  out["mark"] = piece.mark();
  out["left"] = piece.left();
  out["anew"] = piece.anew();
  out["ended"] = piece.ended();
  return out;
}

nb::dict LogList(uint32_t node, const std::string& glob) {
  proto::LogQuestion question;
  question.set_node(node);
  question.set_name(glob);
  return AskAboutLogs(proto::StateQuery::LOG_LIST, std::move(question));
}

nb::dict LogRead(uint32_t node, const nb::bytes& name, uint64_t offset, uint32_t mark) {
  proto::LogQuestion question;
  question.set_node(node);
  question.set_name(std::string(name.c_str(), name.size()));
  question.set_offset(offset);
  question.set_mark(mark);
  return AskAboutLogs(proto::StateQuery::LOG_READ, std::move(question));
}

nb::dict LogEnd(uint32_t node, const nb::bytes& name, int64_t lines, bool only_file) {
  proto::LogQuestion question;
  question.set_node(node);
  question.set_name(std::string(name.c_str(), name.size()));
  question.set_from_end(true);
  question.set_lines(lines < 0 ? UINT64_MAX : static_cast<uint64_t>(lines));
  question.set_only_file(only_file);
  return AskAboutLogs(proto::StateQuery::LOG_READ, std::move(question));
}

}  // namespace

void BindLogs(nb::module_& module) {
  module.def("log_list", &LogList, "The logs of a node that fit a pattern; node 0: this one.");
  module.def("log_read", &LogRead, "A piece of a log, behind the one that said `next` and `mark`.");
  module.def("log_end", &LogEnd, "The first piece of its last lines; below 0: of all.");
}

}  // namespace sheaf::python
