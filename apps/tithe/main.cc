// SPDX-License-Identifier: Apache-2.0
// The command line: verbs come from verbs.def, each in a file of its name.
//
// Exit codes (docs/reference/cli.md): 0 success; 1 an error of the data, the machine or a peer; 2 a usage error; 128 +
// the signal's number after an interrupt.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <vector>

#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "suggestions.h"
#include "tithe/limits.h"
#include "tithe/seam/machine.h"
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

// The innermost subcommand parsed so far, whose --help applies.
const CLI::App& innermost(const CLI::App& root) {
  const auto parsed = root.get_subcommands();
  return parsed.empty() ? root : innermost(*parsed.front());
}

std::string path_of(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* app = &innermost(root); app != nullptr; app = app->get_parent())
    names.insert(names.begin(), app->get_name());
  return fmt::format("{}", fmt::join(names, " "));
}

// "a verb is needed; see tithe help", and the verbs of a group.
std::string verb_needed(const CLI::App& root) {
  const CLI::App& app = innermost(root);
  if (&app == &root) return "a verb is needed; see tithe help";
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  return fmt::format("a verb is needed after {}: {}; see {} --help", path_of(root), fmt::join(verbs, ", "),
                     path_of(root));
}

// Invalid UTF-8 (a file's name, a peer's text) is replaced, since JSON cannot hold it.
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

// Prints to standard output, or to stderr if standard output is used for a file. False on error, with errno set.
bool print(std::string_view text) {
  std::FILE* to = standard_output_in_use() ? stderr : stdout;
  return std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0;
}

void complain(std::string_view what) {  // if stderr is closed too, only the exit code remains
  const std::string line = fmt::format("tithe: {}\n", what);
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

int fail(bool json, int exit_code, std::string_view code, int peer, std::string_view what) {
  // With --json, the output is only one JSON object, on stderr if standard output holds a file.
  if (!json || !standard_output_in_use())
    complain(what);  // else stderr holds one object, like stdout otherwise
  if (json) {
    Json error = {{"code", code}, {"what", what}};
    if (peer != Status::kNoPeer) error["peer"] = peer;
    static_cast<void>(print(dump(Json{{"error", error}})));
  }
  return exit_code;
}

int answer(const Report& report, bool json) {
  if (print(json ? dump(report.json) : report.text)) return report.failed ? kFailed : 0;
  complain(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  return kFailed;
}

// Containers throw if memory runs out; nothing else of tithe's throws.
Result<Report> guarded(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return Status(Code::kUnsupported, "not enough memory for this");
  } catch (const std::length_error&) {
    return Status(Code::kUnsupported, "not enough memory for this");
  } catch (const std::exception& e) {
    return Status(Code::kIo, e.what());
  }
}

// Parses the command line and runs one verb. find_suggestion() runs first, because its messages are better than the
// parser's.
int run(int argc, char** argv) {
  CLI::App root("Compressed gradient synchronisation for data-parallel training.", "tithe");
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
  const std::string mistake = find_suggestion(root, argc, argv);
  const auto wrong = [&](const std::string& parser) {
    for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
    if (mistake.empty() && parser == CLI::RequiredError::Subcommand(1).what())
      return fail(json, kUsage, "usage", Status::kNoPeer, verb_needed(root));
    return fail(json, kUsage, "usage", Status::kNoPeer,
                fmt::format("{}; see {} --help", mistake.empty() ? parser : mistake, path_of(root)));
  };
  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return root.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return root.exit(e);
  } catch (const CLI::ParseError& e) {
    return wrong(e.what());
  }
  if (!mistake.empty()) return wrong(mistake);
  for (const Chosen& choice : choices) {
    if (!choice.app->parsed()) continue;
    const Status environment = check_environment();
    Result<Report> report = environment;
    if (environment.ok()) {
      const ProgressLine line(path_of(root));
      report = guarded(choice.run);
    }
    if (!report.ok()) {
      const Status why = report.status();
      return fail(json, why.code() == Code::kInvalid ? kUsage : kFailed, name(why.code()), why.peer(),
                  why.what());
    }
    return answer(*report, json);
  }
  return kUsage;
}

}  // namespace

void add_most_values(CLI::App& app, std::size_t& max_values) {
  app.add_option("--max-values", max_values,
                 "refuse an input that has more values, or whose header states more")
      ->check(CLI::Range(std::size_t{0}, kMaxValues))
      ->capture_default_str();
}

}  // namespace tithe::cli

int main(int argc, char** argv) {
  tithe::cli::install_interrupt_handler();
  return tithe::cli::run(argc, argv);
}
