// SPDX-License-Identifier: Apache-2.0
// tithe lang show: what follows from a program in the codec language without being written in it: the layout of a
// payload, its size, how often memory is read, and the C++ that is made of it.
#include <fmt/format.h>

#include "lang/compiled.h"
#include "lang/emit_cpp.h"
#include "lang/loader.h"
#include "tithe/spec.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct Args {
  std::string spec;
  bool layout = false;
  bool passes = false;
  bool cpp = false;
};

constexpr std::size_t kSizes[] = {1, 1000, 1'000'000, 25'000'000};

std::string type_of(const lang::Item& item) {
  return fmt::format("{}{}{}", item.is_float ? "f" : "u", item.bits, item.array ? "[]" : "");
}

// As written in the file.
std::string where_of(const lang::LoadedProgram& program, std::size_t k) {
  const lang::SendItem& item = program.file.send[k];
  return item.where ? std::string(program.source.of(item.where->at)) : "";
}

void show_layout(const lang::LoadedProgram& program, const lang::Checked& checked, Report& report) {
  Json items = Json::array();
  if (checked.sends_pairs)
    report.text += "pairs: the list of indices and values of docs/format.md, \"Sparse payloads\"\n";
  for (const bool once : {true, false}) {
    std::size_t at = 0;
    bool moves = false;
    bool headed = false;
    for (std::size_t k = 0; k < checked.items.size(); ++k) {
      const lang::Item& item = checked.items[k];
      if (item.once != once) continue;
      if (!headed)
        report.text +=
            once ? "once\n"
            : checked.block == 0
                ? "then, of all len = n values\n"
                : fmt::format("then, of each {} values (len: the last ones may be fewer)\n", checked.block);
      headed = true;
      const std::string place = moves ? "then" : fmt::format("{}", at);
      const std::string bytes = item.array ? fmt::format("ceil({} len / 8)", item.bits)
                                           : fmt::format("{}", lang::item_bytes(item, 1));
      const std::string known =
          !item.array && item.input == lang::kNone ? "known to the receiver" : where_of(program, k);
      report.text +=
          fmt::format("  {:<5} {:<17} {:<7} {:<12} {}\n", place, bytes, type_of(item), item.name, known);
      items.push_back(
          {{"once", once}, {"name", item.name}, {"type", type_of(item)}, {"bytes", bytes}, {"where", known}});
      if (item.array) moves = true;
      at += lang::item_bytes(item, 1);
    }
  }
  report.json["block"] = checked.block;
  report.json["items"] = std::move(items);
}

void show_passes(const lang::Checked& checked, Report& report) {
  const bool all = checked.block == 0;
  report.text += fmt::format("reads {} {} time{}: {} to look, and one to send and to leave\n",
                             all ? "all values" : "each block", checked.passes + 1,
                             checked.passes == 0 ? "" : "s", checked.passes);
  if (!all && checked.passes > 0) report.text += "  from memory once: a block stays in the cache\n";
  report.json["passes"] = checked.passes + 1;
  report.json["nodes"] = checked.nodes.size();
}

// The C++ that this processor's compiler is given.
Result<Report> show_cpp(const lang::LoadedProgram& program, const Spec& spec) {
  const lang::Combination& of = program.of(spec.settings);
  if (of.program.sends_pairs)
    return Status(
        Code::kUnsupported,
        fmt::format("{} sends pairs, for which the library has kernels: no C++ is made of it", program.name));
  const lang::CppBody body = lang::emit_cpp(of.program, of.schedule);
  Report report;
  report.text = lang::cpp_file(std::span(&body, 1), "tithe_program");
  report.json = {{"name", program.name}, {"cpp", report.text}};
  return report;
}

Result<Report> show(const Args& args) {
  const std::string path = args.spec.substr(0, args.spec.find(':'));
  const Result<const lang::LoadedProgram*> loaded = lang::load(path);
  if (!loaded.ok()) return loaded.status();
  const std::string settings = args.spec.substr(path.size());
  const Result<Spec> spec = parse_spec((*loaded)->name + settings);
  if (!spec.ok()) return spec.status();
  const lang::LoadedProgram& program = **loaded;
  const lang::Checked& checked = program.of(spec->settings).program;
  if (args.cpp) return show_cpp(program, *spec);
  Report report;
  report.json = {{"name", program.name}, {"doc", program.doc}};
  report.text = fmt::format("{}: {}\n", to_string(*spec), program.doc);
  const bool both = !args.layout && !args.passes;
  if (args.layout || both) {
    show_layout(program, checked, report);
    Json sizes = Json::object();
    report.text += program.codec.traits.fixed_size ? "bytes" : "bytes at most";
    for (const std::size_t n : kSizes) {
      const std::size_t bytes = program.phase.bound(spec->settings, n);
      report.text += fmt::format("{} {} of {} values", n == kSizes[0] ? "" : ",", bytes, n);
      sizes[std::to_string(n)] = bytes;
    }
    report.text += '\n';
    report.json["bytes"] = std::move(sizes);
  }
  if (args.passes || both) {
    show_passes(checked, report);
    const std::string how = lang::how_it_runs(program, spec->settings);
    report.text += how + "\n";
    report.json["runs"] = how;
  }
  return report;
}

Run declare(CLI::App& app) {
  auto args = std::make_shared<Args>();
  app.add_option("IN", args->spec, "a file in the codec language, and its settings: mine.codec:bits=4")
      ->required();
  app.add_flag("--layout", args->layout, "only the bytes of a payload");
  app.add_flag("--passes", args->passes, "only how often the values are read, and what runs it");
  app.add_flag("--cpp", args->cpp, "only the C++ that is compiled of it");
  return [args] { return show(*args); };
}

}  // namespace

const Verb lang_show_verb = {
    .name = "lang_show",
    .doc = "what follows from a codec in the codec language: its bytes and its passes",
    .declare = declare};

}  // namespace tithe::cli
