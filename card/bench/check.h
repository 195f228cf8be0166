// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks for references and makers of frames. Independent of a simulator, so tests of card/model/ use them too.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace bench {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

struct Packet {
  Bytes bytes;
  std::uint64_t user = 0;  // with the first beat going in, with the last coming out
};

#define BENCH_CHECK(what)                                                           \
  do {                                                                              \
    if (!(what)) {                                                                  \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);       \
      std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed())); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

inline std::uint64_t& seed() {
  static std::uint64_t value = 1;
  return value;
}

}  // namespace bench
