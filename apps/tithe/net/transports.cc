// SPDX-License-Identifier: Apache-2.0
// tithe transports: what can move bytes between ranks, and which one is taken.
#include <fmt/format.h>

#include "tithe/connect.h"
#include "verb.h"

namespace tithe::cli {
namespace {

Result<Report> list_transports(const std::string& requested) {
  const Result<TransportChoice> choice = choose_transport(requested);
  if (!choice.ok() && !requested.empty()) return choice.status();
  Report report;
  report.json["transports"] = Json::array();
  for (const TransportKind* kind : all_transports()) {
    const Status usable = kind->usable();
    const TransportProbe found = usable.ok() ? kind->probe() : TransportProbe{};
    const char* ranks = kind->open == nullptr ? "threads" : "processes";
    Json options = Json::array();
    report.text += fmt::format("{:<5} {:<10} {}{}{}\n", kind->name, ranks, kind->doc,
                               found.version.empty() ? "" : ", ", found.version);
    if (!usable.ok()) report.text += fmt::format("{:16} not here: {}\n", "", usable.what());
    for (const TransportOption& o : kind->options) {
      options.push_back({{"name", o.name}, {"default", o.fallback}, {"doc", o.doc}});
      report.text += fmt::format("{:16} {:<12} {}\n", "", o.name, o.doc);
    }
    report.json["transports"].push_back({{"name", kind->name},
                                         {"doc", kind->doc},
                                         {"ranks", ranks},
                                         {"usable", usable.ok()},
                                         {"why_not", usable.ok() ? Json() : Json(usable.what())},
                                         {"version", found.version},
                                         {"devices", found.devices},
                                         {"options", options},
                                         {"examples", kind->examples}});
  }
  if (!choice.ok()) {
    report.json["taken"] = nullptr;
    report.text += fmt::format("\nno transport is usable between processes: {}\n", choice.status().what());
    report.failed = true;
    return report;
  }
  Json values = Json::object();
  std::string text(choice->kind->name);
  for (std::size_t i = 0; i < choice->values.size(); ++i) {
    values[std::string(choice->kind->options[i].name)] = choice->values[i];
    if (!choice->values[i].empty())
      text += fmt::format("{}{}={}", text.find(':') == std::string::npos ? ':' : ',',
                          choice->kind->options[i].name, choice->values[i]);
  }
  report.json["taken"] = {{"name", choice->kind->name}, {"options", values}, {"why", choice->why}};
  report.text += fmt::format("\ntaken: {} ({})\n", text, choice->why);
  return report;
}

Run declare_transports(CLI::App& app) {
  auto requested = std::make_shared<std::string>();
  app.add_option("TRANSPORT", *requested, "a transport with its options: show the choice for it");
  return [requested] { return list_transports(*requested); };
}

}  // namespace

const Verb transports_verb = {
    .name = "transports",
    .doc = "list the transports with their options, their availability on this machine, and the default",
    .declare = declare_transports};

}  // namespace tithe::cli
