// SPDX-License-Identifier: Apache-2.0
#include "fuzz/targets.h"

#include <cstdio>
#include <cstdlib>

namespace tithe::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets = [] {
    std::vector<Target> all;
    add_reader_targets(all);
    add_proposal_targets(all);
    add_tcp_targets(all);
    add_lang_targets(all);
    add_codec_targets(all);
    add_combine_targets(all);
    add_delta_targets(all);
    return all;
  }();
  return kTargets;
}

const Target* find_target(std::string_view name) {
  for (const Target& t : targets())
    if (t.name == name) return &t;
  return nullptr;
}

void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

}  // namespace tithe::fuzz
