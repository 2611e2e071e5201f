// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: this class is no actor: write SHEAF_ACTOR(Class
#include <sheaf/sheaf.h>

class Counter {};

void Run() { sheaf::Actor<Counter>().Remote(); }
