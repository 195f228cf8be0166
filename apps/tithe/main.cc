// SPDX-License-Identifier: Apache-2.0
// The command line: verbs come from verbs.def, each in a file of its name.
//
// Exit codes (docs/cli.md): 0 done; 1 the data, the machine or a peer is the trouble; 2 the command line is.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "tithe/machine.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

const Verb* const kVerbs[] = {
#define TITHE_VERB(name) &name##_verb,
#include "verbs.def"
#undef TITHE_VERB
};

struct Chosen {
  CLI::App* app;
  Run run;
};

// `bench_codec` becomes `codec` under `bench`.
CLI::App* subcommand(CLI::App& root, const Verb& verb) {
  const std::size_t cut = verb.name.find('_');
  if (cut == std::string_view::npos)
    return root.add_subcommand(std::string(verb.name), std::string(verb.doc));
  const std::string group(verb.name.substr(0, cut));
  const auto known = root.get_subcommands([&](CLI::App* app) { return app->get_name() == group; });
  CLI::App* parent = known.empty() ? nullptr : known.front();
  if (parent == nullptr) {
    parent = root.add_subcommand(group, fmt::format("see `tithe {} --help`", group));
    parent->require_subcommand(1);
  }
  return parent->add_subcommand(std::string(verb.name.substr(cut + 1)), std::string(verb.doc));
}

// The innermost subcommand on the line so far: the one whose --help answers.
std::string path_of(const CLI::App& root) {
  std::string path = root.get_name();
  for (const CLI::App* app = &root;;) {
    const auto parsed = app->get_subcommands();
    if (parsed.empty()) return path;
    app = parsed.front();
    path += ' ' + app->get_name();
  }
}

// "unknown verb 'x'; known: ..." where the line goes wrong at a verb; else empty.
std::string unknown_verb(const CLI::App& root, int argc, char** argv) {
  const CLI::App* app = &root;
  for (int i = 1; i < argc; ++i) {
    const auto verbs = app->get_subcommands([](const CLI::App*) { return true; });
    if (verbs.empty() || argv[i][0] == '-') return {};
    std::string known;
    const CLI::App* next = nullptr;
    for (const CLI::App* verb : verbs) {
      known += fmt::format(" {}", verb->get_name());
      if (verb->get_name() == argv[i]) next = verb;
    }
    if (next == nullptr) return fmt::format("unknown verb '{}'; known:{}", argv[i], known);
    app = next;
  }
  return {};
}

int fail(bool json, int exit_code, std::string_view code, int peer, std::string_view what) {
  fmt::print(stderr, "tithe: {}\n", what);
  if (json) {
    Json error = {{"code", code}, {"what", what}};
    if (peer != Status::kNoPeer) error["peer"] = peer;
    fmt::print("{}\n", Json{{"error", error}}.dump(2));
  }
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App root("Synchronises gradients in as few bytes as the job can bear.", "tithe");
  root.set_version_flag("--version", "tithe " TITHE_VERSION);
  root.require_subcommand(1);
  bool json = false;
  std::vector<Chosen> choices;
  for (const Verb* verb : kVerbs) {
    CLI::App* app = subcommand(root, *verb);
    Run declared = verb->declare(*app);
    app->add_flag("--json", json, "print one JSON object instead of text");
    choices.push_back({app, std::move(declared)});
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return root.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return root.exit(e);
  } catch (const CLI::ParseError& e) {
    for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
    if (const std::string unknown = unknown_verb(root, argc, argv); !unknown.empty())
      return fail(json, kUsage, "usage", Status::kNoPeer, unknown);
    return fail(json, kUsage, "usage", Status::kNoPeer,
                fmt::format("{}; see {} --help", e.what(), path_of(root)));
  }
  for (const Chosen& choice : choices) {
    if (!choice.app->parsed()) continue;
    const Status environment = check_environment();
    Result<Report> report = environment.ok() ? choice.run() : environment;
    if (!report.ok()) {
      const Status why = report.status();
      return fail(json, why.code() == Code::kInvalid ? kUsage : kFailed, name(why.code()), why.peer(),
                  why.what());
    }
    if (json)
      fmt::print("{}\n", report->json.dump(2));
    else
      fmt::print("{}", report->text);
    return report->failed ? kFailed : 0;
  }
  return kUsage;
}

}  // namespace
}  // namespace tithe::cli

int main(int argc, char** argv) { return tithe::cli::run(argc, argv); }
