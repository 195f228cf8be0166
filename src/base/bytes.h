// SPDX-License-Identifier: Apache-2.0
#pragma once
// Little-endian reads and writes at any address. The wire format is little-endian on every host.
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tithe::wire {

template <typename T>
inline void put(std::uint8_t* p, T v) {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(p, &v, sizeof v);
  } else {
    std::uint8_t raw[sizeof v];
    std::memcpy(raw, &v, sizeof v);
    for (std::size_t i = 0; i < sizeof v; ++i) p[i] = raw[sizeof v - 1 - i];
  }
}

template <typename T>
inline T get(const std::uint8_t* p) {
  static_assert(std::is_trivially_copyable_v<T>);
  T v;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&v, p, sizeof v);
  } else {
    std::uint8_t raw[sizeof v];
    for (std::size_t i = 0; i < sizeof v; ++i) raw[i] = p[sizeof v - 1 - i];
    std::memcpy(&v, raw, sizeof v);
  }
  return v;
}

}  // namespace tithe::wire
