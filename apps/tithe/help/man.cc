// SPDX-License-Identifier: Apache-2.0
// tithe man: the manual page, generated from the verbs. Usage: `tithe man > tithe.1`
#include <fmt/format.h>

#include "verb_tree.h"

namespace tithe::cli {
namespace {

// Escapes text for roff: a minus does not become a hyphen, and no line begins a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\e";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

Result<Report> manual(const CLI::App& app) {
  Report report;
  std::string& page = report.text;
  page = ".TH TITHE 1 \"\" \"tithe " TITHE_VERSION
         "\" \"User Commands\"\n.SH NAME\n"
         "tithe \\- compressed gradient synchronisation between the ranks of a training job\n"
         ".SH SYNOPSIS\n.B tithe\n.I VERB\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH VERBS\n";
  for (const VerbInfo& verb : all_verbs(app)) {
    page += fmt::format(".SS {}\n{}.\n", roff(usage(verb)), roff(verb.doc));
    for (const auto* list : {&verb.positionals, &verb.flags})
      for (const ArgumentInfo& a : *list) {
        page += fmt::format(".TP\n.B {}\n{}", roff(a.name), roff(a.doc));
        page += a.fallback.empty() ? ".\n" : fmt::format(" (unless given: {}).\n", roff(a.fallback));
      }
  }
  page +=
      ".SH EXIT STATUS\n"
      ".TP\n.B 0\nDone.\n"
      ".TP\n.B 1\nError in the data, the machine or a peer.\n"
      ".TP\n.B 2\nWrong usage.\n"
      ".TP\n.B 128+n\nEnded by signal n.\n"
      ".SH ENVIRONMENT\n"
      ".TP\n.B TITHE_TARGET\nThe best vector instructions to use.\n"
      ".TP\n.B TITHE_FORCE_REFERENCE\n1: the readable reference of every codec; the same bytes, slower.\n"
      ".TP\n.B UCX_TLS, UCX_NET_DEVICES\nTransports and devices for UCX, e.g. tcp and eth0.\n"
      ".PP\nFor all others see docs/reference/cli.md.\n";
  report.json = {{"page", page}};
  return report;
}

Run declare_man(CLI::App& app) {
  return [&app] { return manual(app); };
}

}  // namespace

const Verb man_verb = {
    .name = "man", .doc = "print the manual page: tithe man > tithe.1", .declare = declare_man};

}  // namespace tithe::cli
