// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options --link, --queue, --card and --delay-ms of commands whose ranks may be emulated hosts.
#include <CLI/CLI.hpp>

#include "emulated_hosts.h"

namespace tithe::cli {

// --queue and --card; each command has its own help text for --link.
void add_queue_and_card(CLI::App& app, std::size_t& queue_bytes, std::string& card);
void add_delay(CLI::App& app, double& delay_ms);  // --delay-ms

// `link`: a rate; nullopt: "none". kInvalid names the option and the cure. with_cost: the rate may include the cost of
// a frame ("1Gb/s+50us"), which the emulated link does not have.
Result<std::optional<ShapedLink>> shaped_link(const std::string& link, bool with_cost,
                                              std::size_t queue_bytes = kSwitchQueueBytes,
                                              const std::string& card = kCardModes[0], double delay_ms = 0);

}  // namespace tithe::cli
