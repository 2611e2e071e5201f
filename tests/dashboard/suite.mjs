// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The cases of all files, in the order in which they run.

export const cases = [];
export const test = (name, run) => cases.push([name, run]);
