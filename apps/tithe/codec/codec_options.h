// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of verbs that run whole rounds: --codec and --strategy, or both as CODEC@STRATEGY.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace tithe::cli {

// "dgc:ratio=0.01@gather": what stands behind the last @ is the strategy; without one `strategy` stays as it is. A
// path with an @ in it ("my@home/peak.codec") is a codec.
void read_setting(std::string_view text, std::string& codec, std::string& strategy);

// --codec and --strategy. A strategy that is given twice is a usage error.
void add_codec_and_strategy(CLI::App& app, std::string& codec, std::string& strategy);

}  // namespace tithe::cli
