// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options --codec and --strategy, or both as CODEC@STRATEGY, for verbs that run whole rounds.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "tithe/session.h"

namespace tithe::cli {

// Splits "dgc:ratio=0.01@gather": the text after the last @ is the strategy; without one `strategy` is unchanged. A
// path with an @ in it ("my@home/peak.codec") is a codec.
void read_setting(std::string_view text, std::string& codec, std::string& strategy);

// Adds --codec and --strategy. A strategy given twice is a usage error.
void add_codec_and_strategy(CLI::App& app, std::string& codec, std::string& strategy);

// Reads the file of --choices into the session's options; no file if the name is empty.
Status read_choices(const std::string& file, SessionOptions& session);

}  // namespace tithe::cli
