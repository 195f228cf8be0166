// SPDX-License-Identifier: Apache-2.0
// tithe lang new: writes a first codec in the codec language, as a start.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "file_io.h"
#include "lang/loader.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr const char* kFirst = R"(# {0}: TWO LINES ON THE PAYLOAD, AND THE PUBLICATION
codec {0} "the sign of each value and how large they are"
param grow: real = 1 in 0.5 .. 2 "factor of the mean magnitude"
block 1024

encode                            # computations on x, the gradient plus the residual
  size  = f32(grow) * mean(abs(x))
  minus = x < 0

send                              # the payload, in this order
  size: f32 where not signbit(size)
  minus: u1[]

decode                            # the decoded value; the rest of x stays in the residual
  if minus then -size else size
)";

Result<Report> make(const std::string& name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), fits) || (name[0] >= '0' && name[0] <= '9'))
    return Status(Code::kInvalid,
                  fmt::format("'{}': a codec's name must consist of lower-case letters, digits and _", name));
  const std::string path = name + std::string(lang::kEnding);
  if (fs::exists(path)) return Status(Code::kInvalid, fmt::format("{} exists already", path));
  const std::string text = fmt::format(kFirst, name);
  TITHE_TRY(write_file(path, text));
  Report report;
  report.json = {{"file", path}};
  report.text =
      fmt::format("{} is written; next: tithe lang check {}, tithe lang test {}\n", path, path, path);
  return report;
}

Run declare_lang_new(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "the name of the codec; its file is NAME.codec")->required();
  return [name] { return make(*name); };
}

}  // namespace

const Verb lang_new_verb = {
    .name = "lang_new", .doc = "write an example codec in the codec language", .declare = declare_lang_new};

}  // namespace tithe::cli
