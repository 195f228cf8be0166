// SPDX-License-Identifier: Apache-2.0
// tithe completion: generates a shell script from the verbs and the names of codecs, strategies and transports.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/nearest.h"
#include "verb_tree.h"

namespace tithe::cli {
namespace {

// The words that may follow `path` as a verb: the first words for "", the verbs under it for "bench".
std::vector<std::string> words_after(const std::vector<VerbInfo>& verbs, const std::string& path) {
  std::vector<std::string> words;
  for (const VerbInfo& verb : verbs) {
    if (!path.empty() && !verb.path.starts_with(path + ' ')) continue;
    const std::string rest = path.empty() ? verb.path : verb.path.substr(path.size() + 1);
    std::string word = rest.substr(0, rest.find(' '));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

std::set<std::string> groups(const std::vector<VerbInfo>& verbs) {
  std::set<std::string> out;
  for (const VerbInfo& verb : verbs)
    if (const std::size_t blank = verb.path.find(' '); blank != std::string::npos)
      out.insert(verb.path.substr(0, blank));
  return out;
}

std::string bash(const std::vector<VerbInfo>& verbs) {
  std::string known = "''";  // case patterns of verb prefixes
  std::string values, arguments;
  const auto offer = [](const std::vector<std::string>& words, bool files) {
    return fmt::format("COMPREPLY=($(compgen {}-W \"{}\" -- \"$cur\"))", files ? "-f " : "",
                       fmt::join(words, " "));
  };
  for (const std::string& group : groups(verbs)) {
    known += fmt::format("|'{}'", group);
    arguments += fmt::format("    '{}') {} ;;\n", group, offer(words_after(verbs, group), false));
  }
  for (const VerbInfo& verb : verbs) {
    known += fmt::format("|'{}'", verb.path);
    std::vector<std::string> words;
    bool files = false;
    for (const ArgumentInfo& flag : verb.flags) {
      words.push_back(flag.name);
      const std::vector<std::string> may_be = values_for(flag.name);
      if (!may_be.empty() || names_a_file(flag.name))
        values += fmt::format("    '{} {}') {}; return ;;\n", verb.path, flag.name,
                              offer(may_be, names_a_file(flag.name)));
    }
    for (const ArgumentInfo& argument : verb.positionals) {
      for (std::string& value : values_for(argument.name)) words.push_back(std::move(value));
      files = files || names_a_file(argument.name);
      if (argument.name == "VERB")
        for (std::string& value : words_after(verbs, "")) words.push_back(std::move(value));
    }
    arguments += fmt::format("    '{}') {} ;;\n", verb.path, offer(words, files));
  }
  std::vector<std::string> first = words_after(verbs, "");
  first.insert(first.end(), {"--help", "--version"});
  return fmt::format(
      "# Completion for tithe, from `tithe completion`; docs/reference/cli.md says how to load it.\n"
      "_tithe_words() {{\n"
      "  local cur=\"${{COMP_WORDS[COMP_CWORD]}}\" prev=\"${{COMP_WORDS[COMP_CWORD-1]}}\" verb='' word\n"
      "  for word in \"${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}\"; do\n"
      "    case \"${{verb:+$verb }}$word\" in\n"
      "      {}) verb=\"${{verb:+$verb }}$word\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$verb $prev\" in\n"
      "{}"
      "  esac\n"
      "  case \"$verb\" in\n"
      "    '') {} ;;\n"
      "{}"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _tithe_words tithe\n",
      known, values, offer(first, false), arguments);
}

// zsh uses the bash script through bashcompinit, so the script must not use zsh's own variables, such as `path`. As a
// file in $fpath it is first executed as the function _tithe, for a completion.
std::string zsh(const std::vector<VerbInfo>& verbs) {
  return "#compdef tithe\nautoload -U +X bashcompinit && bashcompinit\n" + bash(verbs) +
         "if [[ $funcstack[1] = _tithe ]]; then _bash_complete -o filenames -F _tithe_words; fi\n";
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("\\'") : std::string(1, c);
  return out + "'";
}

std::string fish(const std::vector<VerbInfo>& verbs) {
  std::string script =
      "# Completion for tithe, from `tithe completion`; docs/reference/cli.md says how to load it.\n"
      "complete -c tithe -f\n";
  for (const std::string& word : words_after(verbs, ""))
    script += fmt::format("complete -c tithe -n __fish_use_subcommand -a {}\n", word);
  for (const std::string& group : groups(verbs))
    script += fmt::format("complete -c tithe -n '__fish_seen_subcommand_from {}' -a '{}'\n", group,
                          fmt::join(words_after(verbs, group), " "));
  for (const VerbInfo& verb : verbs) {
    const std::size_t blank = verb.path.find(' ');
    std::string seen = fmt::format("__fish_seen_subcommand_from {}", verb.path.substr(0, blank));
    if (blank != std::string::npos)
      seen += fmt::format("; and __fish_seen_subcommand_from {}", verb.path.substr(blank + 1));
    for (const ArgumentInfo& flag : verb.flags) {
      const std::vector<std::string> may_be = values_for(flag.name);
      script += fmt::format("complete -c tithe -n '{}' -l {}{}{} -d {}\n", seen, flag.name.substr(2),
                            flag.takes_value ? (names_a_file(flag.name) ? " -r -F" : " -x") : "",
                            may_be.empty() ? "" : fmt::format(" -a '{}'", fmt::join(may_be, " ")),
                            in_quotes(flag.doc));
    }
    for (const ArgumentInfo& argument : verb.positionals) {
      if (const auto may_be = values_for(argument.name); !may_be.empty())
        script += fmt::format("complete -c tithe -n '{}' -a '{}'\n", seen, fmt::join(may_be, " "));
      if (names_a_file(argument.name)) script += fmt::format("complete -c tithe -n '{}' -F\n", seen);
    }
  }
  return script;
}

Result<Report> completion(const CLI::App& app, const std::string& shell) {
  const std::vector<VerbInfo> verbs = all_verbs(app);
  Report report;
  if (shell == "bash") {
    report.text = bash(verbs);
  } else if (shell == "zsh") {
    report.text = zsh(verbs);
  } else if (shell == "fish") {
    report.text = fish(verbs);
  } else {
    const std::vector<std::string> shells = values_for("SHELL");
    const std::vector<std::string_view> known(shells.begin(), shells.end());
    return Status(Code::kInvalid, fmt::format("unknown shell '{}': {}", shell, suggest(shell, known)));
  }
  report.json = {{"shell", shell}, {"script", report.text}};
  return report;
}

Run declare_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  return [shell, &app] { return completion(app, *shell); };
}

}  // namespace

const Verb completion_verb = {
    .name = "completion",
    .doc = "print a shell's completion of verbs, options and names: source <(tithe completion bash)",
    .declare = declare_completion};

}  // namespace tithe::cli
