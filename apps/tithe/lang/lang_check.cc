// SPDX-License-Identifier: Apache-2.0
// tithe lang check: checks a file in the codec language, and lists its errors by line.
#include <fmt/format.h>

#include <algorithm>

#include "lang/loader.h"
#include "verb.h"

namespace tithe::cli {
namespace {

Json problem_json(const lang::Source& source, const lang::Problem& problem) {
  const std::string_view before = std::string_view(source.text).substr(0, problem.at.first);
  const std::size_t start = before.rfind('\n') + 1;  // 0 if there is none
  return {{"line", std::count(before.begin(), before.end(), '\n') + 1},
          {"column", problem.at.first - start + 1},
          {"what", problem.what},
          {"help", problem.help}};
}

Result<Report> check_files(const std::vector<std::string>& files) {
  Report report;
  report.json["files"] = Json::array();
  for (const std::string& path : files) {
    const Result<lang::Source> source = lang::read_source(path);
    if (!source.ok()) return source.status();
    lang::Problems problems;
    const auto program = lang::compile(*source, problems);
    Json file = {{"file", path}, {"ok", program != nullptr}, {"lines", lang::code_lines(*source)}};
    file["name"] = program != nullptr ? Json(program->name) : Json();
    file["problems"] = Json::array();
    for (const lang::Problem& p : problems.all()) file["problems"].push_back(problem_json(*source, p));
    report.json["files"].push_back(std::move(file));
    report.text += program != nullptr
                       ? fmt::format("{}: ok, {}, {} lines\n", path, program->name, lang::code_lines(*source))
                       : problems.text(*source);
    report.failed = report.failed || program == nullptr;
  }
  return report;
}

Run declare_lang_check(CLI::App& app) {
  auto files = std::make_shared<std::vector<std::string>>();
  app.add_option("IN", *files, "files in the codec language")->required();
  return [files] { return check_files(*files); };
}

}  // namespace

const Verb lang_check_verb = {.name = "lang_check",
                              .doc = "check a codec that is written in the codec language for errors",
                              .declare = declare_lang_check};

}  // namespace tithe::cli
