// SPDX-License-Identifier: Apache-2.0
// tithe lang show: shows properties that follow from a program in the codec language: the layout and the size of a
// payload, the number of memory passes, and the generated C++ and CUDA kernels.
#include <fmt/format.h>

#include <vector>

#include "catalogue/programs.h"
#include "lang/cpp/emit_cpp.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/loader.h"
#include "lang/prepare.h"
#include "tithe/seam/catalogue.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct LangShowArgs {
  std::string spec;
  bool layout = false;
  bool passes = false;
  bool cpp = false;
  bool cuda = false;
};

constexpr std::size_t kShownSizes[] = {1, 1000, 1'000'000, 25'000'000};

std::string type_of(const lang::Item& item) {
  if (item.coding == lang::Coding::kInts) return "int[]";
  if (item.coding == lang::Coding::kTrits) return "trits[]";
  if (item.coding == lang::Coding::kPlaces) return "places[]";
  if (item.coding == lang::Coding::kWidths) return "u<...>[]";
  return fmt::format("{}{}{}", item.is_float ? "f" : "u", item.bits,
                     !item.array      ? ""
                     : item.full != 0 ? "[block]"
                                      : "[]");
}

std::string bytes_of(const lang::Item& item) {
  switch (item.coding) {
    case lang::Coding::kTrits:
      return "up to len / 5";
    case lang::Coding::kPlaces:
      return fmt::format("{} + {} bits each", lang::count_bytes(item.full), lang::place_bits(item.full));
    case lang::Coding::kWidths:
      return fmt::format("up to {} len / 8", item.bits);
    default:
      return item.array && item.full == 0 ? fmt::format("ceil({} len / 8)", item.bits)
                                          : fmt::format("{}", lang::item_bytes(item, 1));
  }
}

// The item's condition as written in the file.
std::string where_of(const lang::LoadedProgram& program, std::size_t phase, std::size_t k) {
  const lang::SendItem& item = program.file.phases[phase].send[k];
  return item.where ? std::string(program.source.of(item.where->at)) : "";
}

// Shows items without block structure. False if there are block items to show.
bool show_whole(const lang::Checked& checked, Report& report) {
  if (checked.sends_values)
    report.text +=
        "values: the value array of docs/reference/format_sparse.md, \"Sparse payloads\", one for each "
        "index\n";
  if (checked.sends_indices)
    report.text +=
        "indices: the list of docs/reference/format_sparse.md, \"Sparse payloads\", without its values\n";
  if (checked.adds()) {
    const lang::Item& item = checked.items[0];
    report.text += fmt::format(
        "int[] {}: the int fields of docs/reference/format_sums.md, of each value its distance from {}, at "
        "most {} of a "
        "rank\n",
        item.name, item.low, item.top);
  }
  return checked.sends_values || checked.sends_indices || checked.adds();
}

void show_layout(const lang::LoadedProgram& program, std::size_t phase, const lang::Checked& checked,
                 Report& report) {
  Json items = Json::array();
  if (show_whole(checked, report)) return;
  if (checked.counts) report.text += "  0     2                 u16      ranks counted\n";
  if (checked.sends_pairs)
    report.text +=
        "pairs: the list of indices and values of docs/reference/format_sparse.md, \"Sparse payloads\"\n";
  const auto part_of = [](const lang::Item& item) { return item.once ? 0 : item.table ? 1 : 2; };
  const auto heading = [&](int part) {
    if (part == 0) return std::string("once\n");
    if (part == 1) return std::string("then, one behind the other for all blocks\n");
    if (checked.block == 0) return std::string("then, of all len = n values\n");
    return fmt::format("then, of each {} values (len: the last ones may be fewer)\n", checked.block);
  };
  for (int part = 0; part < 3; ++part) {
    std::size_t at = part == 0 && checked.counts ? lang::kCountBytes : 0;
    bool moves = part == 1;
    bool headed = false;
    for (std::size_t k = 0; k < checked.items.size(); ++k) {
      const lang::Item& item = checked.items[k];
      if (part_of(item) != part) continue;
      if (!headed) report.text += heading(part);
      headed = true;
      const std::string place = moves ? "then" : fmt::format("{}", at);
      const std::string bytes = bytes_of(item);
      const std::string known = item.per != 0 ? fmt::format("bytes of each {} values' blocks", item.per)
                                : !item.array && item.input == lang::kNone ? "known to the receiver"
                                                                           : where_of(program, phase, k);
      report.text +=
          fmt::format("  {:<5} {:<17} {:<8} {:<12} {}\n", place, bytes, type_of(item), item.name, known);
      items.push_back({{"once", item.once},
                       {"table", item.table},
                       {"name", item.name},
                       {"type", type_of(item)},
                       {"bytes", bytes},
                       {"where", known}});
      if (item.array) moves = true;
      at += lang::item_bytes(item, 1);
    }
  }
  report.json["block"] = checked.block;
  report.json["items"] = std::move(items);
}

void show_sizes(const lang::LoadedProgram& program, const Phase& phase, const Settings& settings,
                Report& report) {
  Json sizes = Json::object();
  report.text += program.codec.traits.fixed_size ? "bytes" : "bytes at most";
  for (const std::size_t n : kShownSizes) {
    const std::size_t bytes = phase.bound(settings, n);
    report.text += fmt::format("{} {} of {} values", n == kShownSizes[0] ? "" : ",", bytes, n);
    sizes[std::to_string(n)] = bytes;
  }
  report.text += '\n';
  report.json["bytes"] = std::move(sizes);
}

void show_passes(const lang::Combination& of, Report& report) {
  const bool all = of.program.block == 0;
  const std::size_t looks = of.schedule.passes.size();
  if (!of.schedule.looked.reduce.empty())
    report.text += fmt::format("reads all blocks first, {} time{} each\n", of.schedule.look.size(),
                               of.schedule.look.size() == 1 ? "" : "s");
  report.text += fmt::format("reads {} {} time{}: {} to look, and one to send and to leave\n",
                             all ? "all values" : "each block", looks + 1, looks == 0 ? "" : "s", looks);
  if (!all && looks > 0) report.text += "  from memory once: a block stays in the cache\n";
  report.json["passes"] = looks + 1;
  report.json["nodes"] = of.program.nodes.size();
}

// The C++ that is compiled on this machine, phase by phase, with the reason for phases without C++.
Result<Report> show_cpp(const lang::LoadedProgram& program, const Spec& spec) {
  std::vector<lang::CppBody> bodies;
  std::string without, why;
  for (std::size_t p = 0; p < program.phases.size(); ++p) {
    const lang::Combination& of = program.of(spec.settings, p);
    if (lang::by_kernels(of))
      return Status(
          Code::kUnsupported,
          fmt::format("{} sends {}, for which the library has kernels: tithe generates no C++ for it",
                      program.name, of.program.sends_indices ? "indices" : "pairs"));
    if (const char* none = lang::only_interpreted(of.program)) {
      why = none;
      without += fmt::format("// Without {}: {}\n", program.phases[p].name, why);
      continue;
    }
    bodies.push_back(lang::emit_cpp(of.program, of.schedule));
  }
  if (bodies.empty()) return Status(Code::kUnsupported, fmt::format("{}: {}", program.name, why));
  Report report;
  report.text = without + lang::cpp_file(bodies, "tithe_program");
  report.json = {{"name", program.name}, {"cpp", report.text}};
  return report;
}

// The kernels that nvcc compiles, phase by phase, with the reason for phases without kernels.
Result<Report> show_cuda(const lang::LoadedProgram& program, const Spec& spec) {
  std::vector<lang::NamedPhase> phases;
  std::string without, why;
  const bool several = program.phases.size() > 1;
  for (std::size_t p = 0; p < program.phases.size(); ++p) {
    const lang::Combination& of = program.of(spec.settings, p);
    const std::string_view name = several ? program.phases[p].name : std::string_view();
    if (const char* none = lang::no_kernels(of, spec.settings)) {
      why = none;
      without += fmt::format("// Without {}: {}\n", name, why);
    } else {
      phases.push_back({name, &of});
    }
  }
  if (phases.empty()) return Status(Code::kUnsupported, fmt::format("{}: {}", program.name, why));
  Report report;
  report.text = without + lang::cuda_file(phases);
  report.json = {{"name", program.name}, {"cuda", report.text}};
  return report;
}

Result<Report> show(const LangShowArgs& args) {
  const std::string path = args.spec.substr(0, args.spec.find(':'));
  const Result<const lang::LoadedProgram*> loaded = catalogue::load(path);
  if (!loaded.ok()) return loaded.status();
  const std::string settings = args.spec.substr(path.size());
  const Result<Spec> spec = parse_spec((*loaded)->name + settings);
  if (!spec.ok()) return spec.status();
  const lang::LoadedProgram& program = **loaded;
  if (args.cpp) return show_cpp(program, *spec);
  if (args.cuda) return show_cuda(program, *spec);
  Report report;
  report.json = {{"name", program.name}, {"doc", program.doc}};
  report.text = fmt::format("{}: {}\n", to_string(*spec), program.doc);
  const bool both = !args.layout && !args.passes;
  const bool several = program.phases.size() > 1;
  for (std::size_t p = 0; p < program.phases.size(); ++p) {
    const lang::Combination& of = program.of(spec->settings, p);
    Report one;
    if (several) one.text = fmt::format("phase {} by {}\n", program.phases[p].name, name(of.program.law));
    if (args.layout || both) {
      show_layout(program, p, of.program, one);
      show_sizes(program, program.phases[p], spec->settings, one);
    }
    if ((args.passes || both) && !of.program.sends_values) show_passes(of, one);
    report.text += one.text;
    if (several)
      report.json["phases"].push_back(std::move(one.json));
    else
      report.json.update(one.json);
  }
  if (args.passes || both) {
    const std::string how = lang::how_it_runs(program, spec->settings);
    report.text += how + "\n";
    report.json["runs"] = how;
  }
  return report;
}

Run declare_lang_show(CLI::App& app) {
  auto args = std::make_shared<LangShowArgs>();
  app.add_option("IN", args->spec, "a file in the codec language, and its settings: mine.codec:bits=4")
      ->required();
  app.add_flag("--layout", args->layout, "only the bytes of a payload");
  app.add_flag("--passes", args->passes, "only the number of passes over the values, and how it runs");
  app.add_flag("--cpp", args->cpp, "only the C++ that tithe compiles");
  app.add_flag("--cuda", args->cuda, "only its CUDA kernels");
  return [args] { return show(*args); };
}

}  // namespace

const Verb lang_show_verb = {.name = "lang_show",
                             .doc = "show the bytes and passes of a codec in the codec language",
                             .declare = declare_lang_show};

}  // namespace tithe::cli
