// SPDX-License-Identifier: Apache-2.0
// Parses model lists. Errors name the line, which is found by searching the text, since the JSON library keeps no
// positions.
#include "advisor/measure/model_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "advisor/measure/embedded_files.h"
#include "advisor/sim/profile.h"
#include "base/nearest.h"
#include "base/text.h"
#include "tithe/limits.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kMaxShown = 100;  // bytes of an invalid text shown in an error
constexpr double kMaxMs = 1e9;          // eleven days

struct ScaledFile {
  std::string_view file;
  double scale = 1;
};

// "FILE:scale=0.1"; a colon without such an option is part of the path.
Result<ScaledFile> parse_scaled(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return ScaledFile{text};
  const std::string_view option = text.substr(colon + 1);
  const std::size_t equals = option.find('=');
  if (equals == std::string_view::npos || option.find('/') != std::string_view::npos) return ScaledFile{text};
  if (option.substr(0, equals) != "scale")
    return Status(Code::kInvalid, fmt::format("model '{}': its one option is scale, as in {}:scale=0.1",
                                              printable(text, kMaxShown), text.substr(0, colon)));
  ScaledFile scaled{text.substr(0, colon)};
  const std::string_view number = option.substr(equals + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), scaled.scale);
  if (error != std::errc{} || end != number.data() + number.size() ||
      !(scaled.scale > 0 && scaled.scale <= 1))
    return Status(Code::kInvalid, fmt::format("model '{}': scale is a number above 0 and at most 1",
                                              printable(text, kMaxShown)));
  return scaled;
}

// The byte at which a text stops being JSON.
std::size_t torn_at(std::string_view text) {
  try {
    [[maybe_unused]] const nlohmann::json whole = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    return e.byte > 0 ? e.byte - 1 : 0;
  } catch (const nlohmann::json::out_of_range& e) {
    // A number that no double holds: the message ends with 'number'.
    const std::string_view what = e.what();
    const std::size_t quote = what.find('\'');
    return std::min(text.find(what.substr(quote + 1, what.size() - quote - 2)), text.size());
  }
  return 0;
}

std::ptrdiff_t line_at(std::string_view text, std::size_t byte) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())),
                        '\n');
}

// The position of tensor k; of the list if its tensors are no objects.
std::size_t tensor_at(std::string_view text, std::size_t k) {
  std::size_t at = std::min(text.find("\"tensors\""), text.size());
  for (std::size_t left = k + 1; left > 0; --left) {
    const std::size_t next = text.find('{', at + (left == k + 1 ? 0 : 1));
    if (next == std::string_view::npos) break;
    at = next;
  }
  return at;
}

Result<ModelList> parse(std::string_view file, std::string_view text, double scale) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInvalid, fmt::format("{}: {}", file, what));
  };
  if (json.is_discarded())
    return Status(Code::kInvalid, fmt::format("{}:{}: not a list of a model: invalid JSON from here; check "
                                              "that the file is complete (data/models/README.md)",
                                              file, line_at(text, torn_at(text))));
  const auto number = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_number() && object[key] >= 0 &&
           object[key] <= kMaxMs;
  };
  const auto whole = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_number_unsigned();
  };
  const auto word = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string();
  };
  if (!word(json, "model") || !number(json, "forward_ms") || !json.contains("tensors") ||
      !json["tensors"].is_array() || json["tensors"].empty())
    return wrong(
        "not a list of a model: it needs `model`, `forward_ms` (from 0 to 1e9) and `tensors` "
        "(data/models/README.md)");
  ModelList list{.model = json["model"], .forward_ms = json["forward_ms"], .tensors = {}};
  std::set<std::string> names;
  std::size_t values = 0;
  for (const nlohmann::json& t : json["tensors"]) {
    // An error about a tensor, with its name and the line of the name (the last one, for a duplicate).
    const auto wrong_tensor = [&](const std::string& name, std::string_view what) {
      const std::string quoted = nlohmann::json(name).dump();
      const std::size_t at = names.contains(name) ? text.rfind(quoted) : text.find(quoted);
      return Status(Code::kInvalid,
                    fmt::format("{}:{}: {}: {}", file, line_at(text, at == std::string_view::npos ? 0 : at),
                                printable(name, kMaxShown), what));
    };
    if (!word(t, "name") || !whole(t, "values") || !whole(t, "row") || !number(t, "ready_ms"))
      return Status(Code::kInvalid,
                    fmt::format("{}:{}: tensor {}: it needs `name`, `values`, `row` (whole numbers) and "
                                "`ready_ms` (from 0 to 1e9)",
                                file, line_at(text, tensor_at(text, names.size())), names.size()));
    ModelTensor tensor{t["name"], t["values"], t["row"], t["ready_ms"]};
    if (tensor.values == 0 || tensor.values > kMaxValues || (values += tensor.values) > kMaxValues)
      return wrong_tensor(tensor.name, "a model must have 1 to 2^40 values per tensor and in total");
    if (tensor.row == 0 || tensor.values % tensor.row != 0)
      return wrong_tensor(tensor.name, fmt::format("{} values are not a whole number of rows of {}",
                                                   tensor.values, tensor.row));
    if (names.contains(tensor.name)) return wrong_tensor(tensor.name, "it occurs twice");
    if (!list.tensors.empty() && tensor.ready_ms < list.tensors.back().ready_ms)
      return wrong_tensor(tensor.name, "it is ready before the one above it");
    names.insert(tensor.name);
    if (scale < 1)
      tensor.row = tensor.values =
          std::max<std::size_t>(static_cast<std::size_t>(static_cast<double>(tensor.values) * scale), 1);
    list.tensors.push_back(std::move(tensor));
  }
  return list;
}

}  // namespace

std::size_t ModelList::values() const {
  std::size_t all = 0;
  for (const ModelTensor& t : tensors) all += t.values;
  return all;
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const EmbeddedFile& file : model_files()) names.push_back(file.name);
  return names;
}

Result<ModelList> open_model(std::string_view text) {
  const Result<ScaledFile> scaled = parse_scaled(text);
  if (!scaled.ok()) return scaled.status();
  const std::string file(scaled->file);
  if (file.find('/') != std::string::npos || file.ends_with(".json")) {
    const Result<std::string> whole = sim::read_text(file);
    if (!whole.ok()) return whole.status();
    return parse(file, *whole, scaled->scale);
  }
  for (const EmbeddedFile& known : model_files())
    if (known.name == file) return parse(file, known.text, scaled->scale);
  return Status(Code::kInvalid,
                fmt::format("unknown model '{}': {}; or the path of a file (data/models/README.md)",
                            printable(file, kMaxShown), suggest(file, model_names())));
}

std::vector<TensorSpan> buckets_of(const ModelList& list, double cap_mb) {
  constexpr std::size_t kMiB = 1 << 20;
  const auto cap = static_cast<std::size_t>(cap_mb * static_cast<double>(kMiB));
  return buckets_of(list, std::min(kMiB, cap), cap);
}

std::vector<TensorSpan> buckets_of(const ModelList& list, std::size_t first, std::size_t cap) {
  std::vector<TensorSpan> out;
  const TensorSpan all(list.tensors);
  std::size_t begin = 0, bytes = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    bytes += 4 * all[k].values;
    if (bytes < (out.empty() ? first : cap) && k + 1 < all.size()) continue;
    out.push_back(all.subspan(begin, k + 1 - begin));
    begin = k + 1;
    bytes = 0;
  }
  return out;
}

}  // namespace tithe::bench
