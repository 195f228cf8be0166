// SPDX-License-Identifier: Apache-2.0
#include "link_options.h"

#include <iterator>
#include <vector>

#include "tithe/choices.h"

namespace tithe::cli {

void add_queue_and_card(CLI::App& app, std::size_t& queue_bytes, std::string& card) {
  app.add_option("--queue", queue_bytes, "size of the queue of a link in bytes")
      ->check(CLI::Range(std::size_t{10'000}, std::size_t{1} << 30))
      ->capture_default_str();
  app.add_option("--card", card,
                 "the network card in front of each host's link: none, exact or lossy (card/docs/card.md)")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kCardModes), std::end(kCardModes))))
      ->capture_default_str();
}

void add_delay(CLI::App& app, double& delay_ms) {
  app.add_option("--delay-ms", delay_ms, "latency between two hosts, one way, in milliseconds")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
}

Result<std::optional<ShapedLink>> shaped_link(const std::string& link, bool with_cost,
                                              std::size_t queue_bytes, const std::string& card,
                                              double delay_ms) {
  if (link == "none") {
    if (delay_ms > 0)
      return Status(Code::kInvalid, "--delay-ms: the delay between emulated hosts requires --link");
    if (card == kCardModes[0]) return std::optional<ShapedLink>{};
    return Status(Code::kInvalid, "--card: a card between a host and its link requires --link");
  }
  const Result<Link> rate = parse_link(link);
  if (!rate.ok()) return Status(rate.status().code(), "--link: " + rate.status().what() + "; or none");
  if (!rate->known() || rate->inside_bytes_per_second > 0 ||
      (!with_cost && link.find('+') != std::string::npos))
    return Status(Code::kInvalid, "--link: none, or a rate such as 1Gb/s");
  return std::optional<ShapedLink>({rate->bytes_per_second, queue_bytes, card_mode(card), delay_ms});
}

}  // namespace tithe::cli
