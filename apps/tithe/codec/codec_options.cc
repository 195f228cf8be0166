// SPDX-License-Identifier: Apache-2.0
#include "codec_options.h"

#include "file_io.h"
#include "tithe/choices.h"

namespace tithe::cli {

void read_setting(std::string_view text, std::string& codec, std::string& strategy) {
  const std::size_t at = text.rfind('@');
  const bool both = at != std::string_view::npos && text.find_first_of("/.", at) == std::string_view::npos;
  if (both) strategy = text.substr(at + 1);
  codec = text.substr(0, both ? at : text.size());
}

void add_codec_and_strategy(CLI::App& app, std::string& codec, std::string& strategy) {
  app.add_option("--codec", codec,
                 "with its parameters, e.g. topk:ratio=0.01; topk@gather sets the strategy too")
      ->capture_default_str();
  const CLI::Option* given =
      app.add_option("--strategy", strategy, "the exchange between ranks (docs/reference/strategies.md)")
          ->capture_default_str();
  app.parse_complete_callback([&codec, &strategy, given] {
    const std::string text = codec;
    read_setting(text, codec, strategy);
    if (codec != text && given->count() > 0)
      throw CLI::ValidationError("--codec",
                                 text + " names a strategy, and --strategy another: give one of them");
  });
}

Status read_choices(const std::string& file, SessionOptions& session) {
  if (file.empty()) return {};
  const Result<std::vector<std::uint8_t>> text = read_file(file, kMaxChoicesBytes / kReadPerValue);
  if (!text.ok()) return text.status();
  session.choices.assign(text->begin(), text->end());
  return {};
}

}  // namespace tithe::cli
