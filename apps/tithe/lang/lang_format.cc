// SPDX-License-Identifier: Apache-2.0
// tithe lang format: formats files in the codec language.
#include <fmt/format.h>

#include "file_io.h"
#include "lang/front/format.h"
#include "lang/loader.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct LangFormatArgs {
  std::vector<std::string> files;
  bool check = false;
};

Result<Report> format(const LangFormatArgs& args) {
  Report report;
  report.json["files"] = Json::array();
  for (const std::string& path : args.files) {
    const Result<lang::Source> source = lang::read_source(path);
    if (!source.ok()) return source.status();
    const std::string text = lang::formatted(source->text);
    const bool changes = text != source->text;
    if (changes && !args.check) TITHE_TRY(write_file(path, text));
    report.failed = report.failed || (changes && args.check);
    report.json["files"].push_back({{"file", path}, {"changes", changes}});
    report.text += fmt::format("{}: {}\n", path,
                               !changes     ? "formatted"
                               : args.check ? "needs formatting"
                                            : "written");
  }
  return report;
}

Run declare_lang_format(CLI::App& app) {
  auto args = std::make_shared<LangFormatArgs>();
  app.add_option("IN", args->files, "files in the codec language")->required();
  app.add_flag("--check", args->check, "write nothing; exit code 1 if a file would be changed");
  return [args] { return format(*args); };
}

}  // namespace

const Verb lang_format_verb = {
    .name = "lang_format", .doc = "format the text of a codec", .declare = declare_lang_format};

}  // namespace tithe::cli
