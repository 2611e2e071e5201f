// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/limits.h"

namespace sheaf {

void CutError(Error* error) {
  if (error->payload.size() > kMaxErrorPayload) {
    absl::StrAppend(&error->message, "\n(the exception itself is not sent: it has ",
                    error->payload.size(), " bytes, at most ", kMaxErrorPayload, ")");
    error->payload.clear();
  }
  if (error->message.size() <= kMaxErrorWords) return;
  // The beginning says what failed, the end of a traceback how.
  const size_t part = kMaxErrorWords / 2 - 128;
  const size_t size = error->message.size();
  error->message = absl::StrCat(absl::string_view(error->message).substr(0, part), "\n... (",
                                size - 2 * part, " of ", size, " bytes are left out here) ...\n",
                                absl::string_view(error->message).substr(size - part));
}

}  // namespace sheaf
