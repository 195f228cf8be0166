// SPDX-License-Identifier: Apache-2.0
#pragma once
// All readers of external bytes, as functions that check their contracts for any bytes: one target per codec of
// codecs.def, three over all of them (combine, contexts, lists of payloads), the readers of frames, spec strings,
// control frames, proposals and states, weight differences, and the codec language. The test binary runs them on
// seeds, on the corpus and on seeded mutations of both; with TITHE_FUZZ=ON libFuzzer drives the same functions.
//
// A violated contract calls fail(), which prints it and aborts, so that a sanitizer and libFuzzer notice.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tithe/byte_view.h"

namespace tithe::fuzz {

using Input = std::vector<std::uint8_t>;

struct Target {
  std::string name;
  std::function<void(ByteView)> run;
  std::vector<Input> seeds;  // inputs that get past the first checks
};

const std::vector<Target>& targets();
const Target* find_target(std::string_view name);

[[noreturn]] void fail(const std::string& what);

void add_codec_targets(std::vector<Target>& targets);    // codec_targets.cc
void add_combine_targets(std::vector<Target>& targets);  // combine_targets.cc
void add_reader_targets(std::vector<Target>& targets);   // reader_targets.cc
void add_proposal_targets(std::vector<Target>& targets);
void add_tcp_targets(std::vector<Target>& targets);
void add_lang_targets(std::vector<Target>& targets);   // lang_targets.cc
void add_delta_targets(std::vector<Target>& targets);  // delta_targets.cc

}  // namespace tithe::fuzz
