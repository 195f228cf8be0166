// SPDX-License-Identifier: Apache-2.0
// Examines the raw command line before CLI11 does, since CLI11's messages name neither the nearest verb nor the cure.
#include "suggestions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/text.h"
#include "tithe/seam/catalogue.h"
#include "verb_tree.h"

namespace tithe::cli {
namespace {

constexpr std::size_t kMaxShown = 100;  // bytes of an invalid word that are shown

std::string unknown(std::string_view what, std::string_view wrong, const std::vector<std::string>& known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  return fmt::format("{} '{}': {}", what, printable(wrong, kMaxShown), suggest(wrong, names));
}

// The verb on the command line, and the number of its words. An unknown verb is stored in *mistake.
const CLI::App* verb_of(const CLI::App& root, int argc, char** argv, int* words, std::string* mistake) {
  const CLI::App* app = &root;
  for (*words = 1; *words < argc; ++*words) {
    const std::string_view word = argv[*words];
    const auto verbs = app->get_subcommands([](const CLI::App*) { return true; });
    if (verbs.empty() || word.starts_with('-')) break;
    std::vector<std::string> known;
    const CLI::App* next = nullptr;
    for (const CLI::App* verb : verbs) {
      known.push_back(verb->get_name());
      if (verb->get_name() == word) next = verb;
    }
    if (next == nullptr) {
      *mistake = unknown("unknown verb", word, known);
      break;
    }
    app = next;
  }
  return app;
}

// `topk ratio=0.01` instead of `topk:ratio=0.01`.
std::string missing_colon(std::string_view codec, std::string_view next) {
  const Codec* known = find_codec(codec);
  const std::size_t equals = next.find('=');
  if (known == nullptr || equals == std::string_view::npos || access(std::string(next).c_str(), F_OK) == 0)
    return {};
  const std::string_view name = next.substr(0, equals);
  const auto has = [&](std::span<const ParamSpec> params) {
    return std::any_of(params.begin(), params.end(), [&](const ParamSpec& p) { return p.name == name; });
  };
  if (!has(known->params) && !has(feedback_params())) return {};
  return fmt::format("'{0} {1}': write parameters after a colon, separated by commas: {0}:{1}", codec,
                     printable(next, kMaxShown));
}

// `replay bf16` instead of `replay --codec bf16`.
std::string missing_flag(const std::vector<std::string>& flags, std::string_view word) {
  for (const std::string& flag : flags)
    for (const std::string& value : values_for(flag))
      if (word.substr(0, word.find(':')) == value)
        return fmt::format("write '{1}' after {0}: {0} {1}", flag, printable(word, kMaxShown));
  return {};
}

}  // namespace

std::string find_suggestion(const CLI::App& root, int argc, char** argv) {
  int first = 1;
  std::string mistake;
  const CLI::App* app = verb_of(root, argc, argv, &first, &mistake);
  if (!mistake.empty()) return mistake;
  std::vector<std::string> flags;
  bool flags_alone = true;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    flags_alone = flags_alone && !option->get_positional();
  }
  for (int i = first; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--")) {
      const std::string_view flag = word.substr(0, word.find('='));
      if (std::find(flags.begin(), flags.end(), flag) == flags.end())
        return unknown("unknown option", flag, flags);
    } else if (flags_alone && !std::string_view(argv[i - 1]).starts_with("--")) {
      if (std::string flag = missing_flag(flags, word); !flag.empty()) return flag;
    }
    if (i + 1 < argc)
      if (std::string colon = missing_colon(word, argv[i + 1]); !colon.empty()) return colon;
  }
  return {};
}

}  // namespace tithe::cli
