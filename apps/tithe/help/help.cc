// SPDX-License-Identifier: Apache-2.0
// tithe help: lists all verbs on a page, or describes one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"
#include "verb_tree.h"

namespace tithe::cli {
namespace {

Json argument_json(const ArgumentInfo& a) {
  return {{"name", a.name},
          {"doc", a.doc},
          {"default", a.fallback.empty() ? Json() : Json(a.fallback)},
          {"required", a.required}};
}

Json verb_json(const VerbInfo& verb) {
  Json json = {
      {"verb", verb.path}, {"doc", verb.doc}, {"arguments", Json::array()}, {"options", Json::array()}};
  for (const ArgumentInfo& a : verb.positionals) json["arguments"].push_back(argument_json(a));
  for (const ArgumentInfo& a : verb.flags) json["options"].push_back(argument_json(a));
  return json;
}

std::string verb_text(const VerbInfo& verb) {
  std::string text = fmt::format("{}: {}\n\n  {}\n\n", verb.path, verb.doc, usage(verb));
  for (const auto* list : {&verb.positionals, &verb.flags})
    for (const ArgumentInfo& a : *list)
      text += fmt::format("  {:<14} {}{}\n", a.name, a.doc,
                          a.fallback.empty() ? "" : fmt::format(" (unless given: {})", a.fallback));
  return text;
}

Result<Report> help(const CLI::App& app, const std::vector<std::string>& words) {
  const std::vector<VerbInfo> verbs = all_verbs(app);
  Report report;
  if (words.empty()) {
    report.json["verbs"] = Json::array();
    report.text = "tithe: compressed gradient synchronisation between the ranks of a training job\n\n";
    for (const VerbInfo& verb : verbs) {
      report.json["verbs"].push_back(verb_json(verb));
      report.text += fmt::format("  {:<12} {}\n", verb.path, verb.doc);
    }
    report.text +=
        "\n"
        "tithe help VERB        its arguments and options\n"
        "tithe codecs NAME      a codec's parameters, and when to use it\n"
        "tithe doctor           the parts that this machine has, and how to install missing ones\n"
        "docs/reference/cli.md has examples of each.\n";
    return report;
  }
  const std::string path = fmt::format("{}", fmt::join(words, " "));
  std::vector<std::string_view> known;
  for (const VerbInfo& verb : verbs) {
    known.push_back(verb.path);
    if (verb.path != path && !verb.path.starts_with(path + ' ')) continue;
    if (!report.text.empty()) report.text += '\n';
    report.text += verb_text(verb);
    report.json["verbs"].push_back(verb_json(verb));
  }
  if (report.text.empty())
    return Status(Code::kInvalid, fmt::format("unknown verb '{}': {}", path, suggest(path, known)));
  return report;
}

Run declare_help(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("VERB", *words, "the verb to describe, e.g. bench codec");
  return [words, &app] { return help(app, *words); };
}

}  // namespace

const Verb help_verb = {
    .name = "help", .doc = "list all verbs, or the arguments and options of one", .declare = declare_help};

}  // namespace tithe::cli
