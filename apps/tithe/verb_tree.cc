// SPDX-License-Identifier: Apache-2.0
// Collects verbs and their arguments from the CLI11 application.
#include "verb_tree.h"

#include <fmt/format.h>

#include "advisor/measure/model_list.h"
#include "tithe/connect.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/graph.h"

namespace tithe::cli {
namespace {

ArgumentInfo info_of(const CLI::Option& option) {
  return {.name = option.nonpositional() ? "--" + option.get_lnames().front() : option.get_name(true),
          .doc = option.get_description(),
          .fallback = option.get_default_str(),
          .takes_value = option.get_items_expected_max() > 0,
          .required = option.get_required()};
}

void collect(const CLI::App& app, const std::string& path, std::vector<VerbInfo>& out) {
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* verb : below)
    collect(*verb, path.empty() ? verb->get_name() : path + ' ' + verb->get_name(), out);
  if (!below.empty()) return;
  VerbInfo info{.path = path, .doc = app.get_description(), .positionals = {}, .flags = {}};
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional() ? !option->get_lnames().empty() : true)
      (option->nonpositional() ? info.flags : info.positionals).push_back(info_of(*option));
  out.push_back(std::move(info));
}

}  // namespace

const CLI::App& root_of(const CLI::App& app) {
  const CLI::App* root = &app;
  while (root->get_parent() != nullptr) root = root->get_parent();
  return *root;
}

std::vector<VerbInfo> all_verbs(const CLI::App& app) {
  std::vector<VerbInfo> all;
  collect(root_of(app), "", all);
  return all;
}

std::string usage(const VerbInfo& verb) {
  std::string text = fmt::format("tithe {}", verb.path);
  if (!verb.flags.empty()) text += " [OPTIONS]";
  for (const ArgumentInfo& p : verb.positionals)
    text += p.required ? fmt::format(" {}", p.name) : fmt::format(" [{}]", p.name);
  return text;
}

std::vector<std::string> values_for(std::string_view argument) {
  std::vector<std::string> names;
  if (argument == "CODEC" || argument == "--codec" || argument == "NAME")
    for (const Codec* codec : all_codecs()) names.emplace_back(codec->name);
  if (argument == "--strategy")
    for (const Strategy* strategy : all_strategies()) names.emplace_back(strategy->name);
  if (argument == "TRANSPORT" || argument == "--transport")
    for (const TransportKind* kind : all_transports()) names.emplace_back(kind->name);
  if (argument == "--model")
    for (const std::string_view model : bench::model_names()) names.emplace_back(model);
  if (argument == "SHELL") names = {"bash", "zsh", "fish"};
  return names;
}

bool names_a_file(std::string_view argument) {
  return argument == "IN" || argument == "OUT" || argument == "--python" || argument == "--choices";
}

}  // namespace tithe::cli
