// SPDX-License-Identifier: Apache-2.0
// class_edges: the codec's edges and units, for every bound and mode.
#include "Vclass_edges.h"
#include "reference.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const auto m = std::make_unique<Vclass_edges>();
  seed() = args(argc, argv).seed;
  for (int literal = 0; literal < 2; ++literal)
    for (int bound = 0; bound < 128; ++bound) {
      m->literal = literal != 0;
      m->bound = static_cast<CData>(bound);
      m->eval();
      const auto c = classes(literal ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict,
                             std::clamp(bound, 1, tithe::inceptionn::kMaxB));
      BENCH_CHECK(m->e_low == c.low >> 23 && m->e_middle == c.middle >> 23 && m->e_top == c.top >> 23);
      BENCH_CHECK(m->shift1 == 150 + std::ilogb(c.unit[0]) && m->shift2 == 150 + std::ilogb(c.unit[1]));
    }
  std::printf("class_edges: 2 modes, 128 bounds\n");
}
