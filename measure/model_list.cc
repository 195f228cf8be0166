// SPDX-License-Identifier: Apache-2.0
#include "measure/model_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace tithe::bench {

std::size_t ModelList::values() const {
  std::size_t all = 0;
  for (const ModelTensor& t : tensors) all += t.values;
  return all;
}

Result<ModelList> read_model_list(const std::string& path, std::size_t scale) {
  std::ifstream file(path);
  if (!file) return Status(Code::kIo, fmt::format("{}: cannot be read", path));
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInvalid, fmt::format("{}: {}", path, what));
  };
  const auto number = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_number() && object[key] >= 0;
  };
  const auto word = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string();
  };
  if (!word(json, "model") || !number(json, "forward_ms") || !json.contains("tensors") ||
      !json["tensors"].is_array())
    return wrong("no list of a model: it needs `model`, `forward_ms` and `tensors`");
  ModelList list{.model = json["model"], .forward_ms = json["forward_ms"], .tensors = {}};
  std::set<std::string> names;
  for (const nlohmann::json& t : json["tensors"]) {
    if (!word(t, "name") || !number(t, "values") || !number(t, "row") || !number(t, "ready_ms"))
      return wrong("a tensor lacks `name`, `values`, `row` or `ready_ms`");
    ModelTensor tensor{t["name"], t["values"], t["row"], t["ready_ms"]};
    if (tensor.row == 0 || tensor.values % tensor.row != 0)
      return wrong(
          fmt::format("{}: {} values are no whole rows of {}", tensor.name, tensor.values, tensor.row));
    if (!names.insert(tensor.name).second) return wrong(fmt::format("{} stands twice", tensor.name));
    if (!list.tensors.empty() && tensor.ready_ms < list.tensors.back().ready_ms)
      return wrong(fmt::format("{} is ready before the one above it", tensor.name));
    if (scale > 1) tensor.row = tensor.values = std::max<std::size_t>(tensor.values / scale, 1);
    list.tensors.push_back(std::move(tensor));
  }
  return list;
}

}  // namespace tithe::bench
