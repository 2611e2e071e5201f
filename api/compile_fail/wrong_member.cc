// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: SHEAF_ACTOR: a member is sheaf::Constructor<Types...>
#include <sheaf/sheaf.h>

class Counter {};
SHEAF_ACTOR(Counter, 5);
