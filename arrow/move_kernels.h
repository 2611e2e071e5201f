// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The loops of Gather and Scatter, which differ only in which side they walk in sequence: a gather
// writes in sequence and reads where it is told, a scatter reads in sequence and writes so.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "arrow/bits.h"

namespace sheaf::arrow {

// `ahead` is told the rows that are read some rows later, and may fetch what they have into the cache.
struct GatherOrder {
  std::span<const uint32_t> from;
  template <class Move, class Ahead>
  void ForEach(Move move, Ahead ahead) const {
    constexpr int64_t kAhead = 24;
    const auto rows = static_cast<int64_t>(from.size());
    const uint32_t* const row = from.data();
    int64_t to = 0;
    for (; to + kAhead < rows; ++to) {
      ahead(int64_t{row[to + kAhead]});
      move(int64_t{row[to]}, to);
    }
    for (; to < rows; ++to) move(int64_t{row[to]}, to);
  }
};

struct ScatterOrder {
  std::span<const uint32_t> to;
  template <class Move, class Ahead>
  void ForEach(Move move, Ahead) const {  // Processors see what comes next by themselves.
    const auto rows = static_cast<int64_t>(to.size());
    for (int64_t from = 0; from < rows; ++from) move(from, int64_t{to[static_cast<size_t>(from)]});
  }
};

// A value of 16 or 32 bytes, moved as one.
template <int kBytes>
struct Wide {
  uint8_t bytes[kBytes];
};

template <class T, class Order>
void MoveValues(const uint8_t* in, const Order& order, uint8_t* out) {
  order.ForEach([&](int64_t from, int64_t to) { Store<T>(out, to, Load<T>(in, from)); },
                [&](int64_t from) { __builtin_prefetch(in + from * int64_t{sizeof(T)}); });
}

template <class Order>
void MoveFixed(const uint8_t* in, int64_t width, const Order& order, uint8_t* out) {
  switch (width) {
    case 1:
      return MoveValues<uint8_t>(in, order, out);
    case 2:
      return MoveValues<uint16_t>(in, order, out);
    case 4:
      return MoveValues<uint32_t>(in, order, out);
    case 8:
      return MoveValues<uint64_t>(in, order, out);
    case 16:
      return MoveValues<Wide<16>>(in, order, out);
    case 32:
      return MoveValues<Wide<32>>(in, order, out);
    default:
      order.ForEach(
          [&](int64_t from, int64_t to) {
            std::memcpy(out + to * width, in + from * width, static_cast<size_t>(width));
          },
          [&](int64_t from) { __builtin_prefetch(in + from * width); });
  }
}

// Bits of `out` are 0 before.
template <class Order>
void MoveBits(const uint8_t* in, int64_t offset, const Order& order, uint8_t* out) {
  order.ForEach([&](int64_t from, int64_t to) { OrBit(out, to, GetBit(in, offset + from)); },
                [&](int64_t from) { __builtin_prefetch(in + (offset + from) / 8); });
}

// As memcpy, without a call where there is little, as in most columns of text. It touches no byte
// beyond either side.
inline void CopyShort(uint8_t* to, const uint8_t* from, int64_t size) {
  if (size > 16) {
    std::memcpy(to, from, static_cast<size_t>(size));
  } else if (size >= 8) {
    const auto last = Load<uint64_t>(from + size - 8, 0);
    Store<uint64_t>(to, 0, Load<uint64_t>(from, 0));
    Store<uint64_t>(to + size - 8, 0, last);
  } else if (size >= 4) {
    const auto last = Load<uint32_t>(from + size - 4, 0);
    Store<uint32_t>(to, 0, Load<uint32_t>(from, 0));
    Store<uint32_t>(to + size - 4, 0, last);
  } else if (size > 0) {
    to[0] = from[0];
    to[size / 2] = from[size / 2];
    to[size - 1] = from[size - 1];
  }
}

// Writes how long each row is to `lengths` [1 + row], and gives the sum.
template <class Offset, class Order>
int64_t MoveLengths(const uint8_t* offsets, const Order& order, uint8_t* lengths) {
  int64_t sum = 0;
  order.ForEach(
      [&](int64_t from, int64_t to) {
        const auto start = Load<Offset>(offsets, from);
        const auto length = static_cast<Offset>(Load<Offset>(offsets, from + 1) - start);
        Store<Offset>(lengths, to + 1, length);
        sum += length;
      },
      [&](int64_t from) { __builtin_prefetch(offsets + from * int64_t{sizeof(Offset)}); });
  return sum;
}

// Row by row, to where `to_offsets` say. The offsets that `ahead` reads are in the cache since
// MoveLengths, or nearly so.
template <class From, class To, class Order>
void MoveBytes(const uint8_t* from_offsets, const uint8_t* in, const uint8_t* to_offsets,
               const Order& order, uint8_t* out) {
  order.ForEach(
      [&](int64_t from, int64_t to) {
        const auto start = Load<From>(from_offsets, from);
        const auto size = Load<From>(from_offsets, from + 1) - start;
        CopyShort(out + Load<To>(to_offsets, to), in + start, size);
      },
      [&](int64_t from) { __builtin_prefetch(in + Load<From>(from_offsets, from)); });
}

}  // namespace sheaf::arrow
