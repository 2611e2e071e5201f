// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A stateful counter under very many calls.
#pragma once

namespace examples {

// Makes an actor, sends it `calls` calls without waiting for each, and checks every answer. False:
// one was wrong.
bool RunCounter(int calls);

}  // namespace examples
