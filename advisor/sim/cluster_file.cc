// SPDX-License-Identifier: Apache-2.0
// Reads a cluster's file, in TOML (docs/guide/simulate_clusters.md).
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>

#include "advisor/sim/cluster.h"
#include "base/text.h"
#include "tithe/choices.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {

// Reads one file and stops at the first error.
class ClusterReader {
 public:
  explicit ClusterReader(const std::string& file) : file_(file) {}

  Result<Cluster> read(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text);
    if (!parsed) {
      const auto& error = parsed.error();
      return Status(Code::kInvalid, fmt::format("{}:{}: {}", file_, error.source().begin.line,
                                                printable(std::string(error.description()), 200)));
    }
    const toml::table& top = parsed.table();
    TITHE_TRY(
        known(top, {"name", "about", "cores", "speed", "switch", "hosts", "compute", "costs", "codec"}));
    TITHE_TRY(word(top, "name", out_.name_));
    TITHE_TRY(word(top, "about", out_.about_));
    TITHE_TRY(count(top, "cores", out_.shared_cores_));
    TITHE_TRY(number(top, "speed", out_.speed_));
    TITHE_TRY(each(top, "switch", [&](const toml::table& t) { return add_switch(t); }));
    for (std::size_t s = 0; s < ups_.size(); ++s) TITHE_TRY(connect(s));
    TITHE_TRY(one_tree());
    TITHE_TRY(each(top, "hosts", [&](const toml::table& t) { return add_hosts(t); }));
    TITHE_TRY(compute(top));
    TITHE_TRY(costs(top));
    TITHE_TRY(each(top, "codec", [&](const toml::table& t) { return add_codec(t); }));
    if (out_.kinds_.empty()) return at(top, "no hosts: give at least one [[hosts]] with count and rate");
    long long ranks = 0;
    for (const Cluster::Kind& k : out_.kinds_) ranks += static_cast<long long>(k.count) * k.ranks;
    if (ranks > kMaxRanks) return at(top, fmt::format("{} ranks: at most {}", ranks, kMaxRanks));
    out_.build(std::numeric_limits<int>::max());
    return std::move(out_);
  }

 private:
  static constexpr long long kMaxRanks = 1 << 20;

  Status at(const toml::node& node, std::string_view what) const {
    return {Code::kInvalid, fmt::format("{}:{}: {}", file_, node.source().begin.line, what)};
  }
  Status known(const toml::table& t, std::initializer_list<std::string_view> names) const {
    for (const auto& [key, value] : t)
      if (std::find(names.begin(), names.end(), key.str()) == names.end())
        return at(value,
                  fmt::format("unknown field '{}': {}", printable(key.str(), 60), fmt::join(names, ", ")));
    return {};
  }
  template <typename Take>
  Status each(const toml::table& top, std::string_view name, Take take) {
    const toml::node* found = top.get(name);
    if (found == nullptr) return {};
    const toml::array* list = found->as_array();
    if (list == nullptr) return at(*found, fmt::format("write [[{}]], once for each", name));
    for (const toml::node& item : *list) {
      const toml::table* t = item.as_table();
      if (t == nullptr) return at(item, fmt::format("write [[{}]], once for each", name));
      TITHE_TRY(take(*t));
    }
    return {};
  }
  Status word(const toml::table& t, std::string_view key, std::string& into) const {
    const toml::node* found = t.get(key);
    if (found == nullptr) return {};
    const auto text = found->value<std::string>();
    if (!found->is_string() || !text) return at(*found, fmt::format("{}: must be a string", key));
    into = *text;
    return {};
  }
  Status count(const toml::table& t, std::string_view key, int& into) const {
    const toml::node* found = t.get(key);
    if (found == nullptr) return {};
    const auto n = found->value<std::int64_t>();
    if (!found->is_integer() || !n || *n < 1 || *n > kMaxRanks)
      return at(*found, fmt::format("{}: must be a whole number from 1 to {}", key, kMaxRanks));
    into = static_cast<int>(*n);
    return {};
  }
  Status number(const toml::table& t, std::string_view key, double& into) const {
    const toml::node* found = t.get(key);
    if (found == nullptr) return {};
    const auto v = found->value<double>();
    if (!v || !std::isfinite(*v) || *v <= 0)
      return at(*found, fmt::format("{}: must be a number above 0", key));
    into = *v;
    return {};
  }
  // "10Gb/s"; refuses any other text and a rate of zero.
  Status rate(const toml::table& t, std::string_view key, bool needed, double& into) const {
    const toml::node* found = t.get(key);
    if (found == nullptr)
      return needed ? at(t, fmt::format("{} is missing: such as {} = \"10Gb/s\"", key, key)) : Status{};
    const auto text = found->value<std::string>();
    const Result<Link> link = text ? parse_link(*text) : Result<Link>(Link{});
    if (!link.ok() || !link->known() || text->find_first_of("+,") != std::string::npos)
      return at(*found, fmt::format("{}: must be a rate above 0, such as \"10Gb/s\" or \"1.2GB/s\"", key));
    into = link->bytes_per_second;
    return {};
  }
  Status time(const toml::table& t, std::string_view key, Seconds& into) const {
    const toml::node* found = t.get(key);
    return found == nullptr ? Status{} : time(*found, key, into);
  }
  Status time(const toml::node& node, std::string_view key, Seconds& into) const {
    const auto text = node.value<std::string>();
    double value = 0;
    char unit[3] = {}, rest = 0;
    const int got = text ? std::sscanf(text->c_str(), "%lf%2[a-z]%c", &value, unit, &rest) : 0;
    const std::string_view u = unit;
    const double factor = u == "ns" ? 1e-9 : u == "us" ? 1e-6 : u == "ms" ? 1e-3 : u == "s" ? 1.0 : 0.0;
    if (got != 2 || factor == 0 || !std::isfinite(value) || value < 0)
      return at(node, fmt::format("{}: must be a time, such as \"50us\" or \"20ms\"", key));
    into = value * factor;
    return {};
  }

  // ---- Costs of devices and network

  Status table(const toml::table& top, std::string_view name, const toml::table*& into) const {
    const toml::node* found = top.get(name);
    into = found == nullptr ? nullptr : found->as_table();
    return found == nullptr || into != nullptr ? Status{} : at(*found, fmt::format("write [{}], once", name));
  }
  Status compute(const toml::table& top) {
    const toml::table* models = nullptr;
    TITHE_TRY(table(top, "compute", models));
    if (models == nullptr) return {};
    for (const auto& [model, value] : *models) {
      Seconds& seconds = out_.compute_[std::string(model.str())];
      TITHE_TRY(time(value, printable(model.str(), 60), seconds));
      if (seconds <= 0)
        return at(value, fmt::format("{}: must be a time above 0", printable(model.str(), 60)));
    }
    return {};
  }
  // [costs]: times by the names of kCostFields, and four fields of other types.
  Status costs(const toml::table& top) {
    const toml::table* numbers = nullptr;
    TITHE_TRY(table(top, "costs", numbers));
    if (numbers == nullptr) return {};
    for (const auto& [key, value] : *numbers) {
      if (key.str() == "eager_bytes") {
        const auto bytes = value.value<std::int64_t>();
        if (!value.is_integer() || !bytes || *bytes < 0)
          return at(value, "eager_bytes: must be a whole number of at least 0");
        out_.eager_bytes_ = static_cast<std::size_t>(*bytes);
        continue;
      }
      if (key.str() == "many_to_one" || key.str() == "both_ways") {
        const auto share = value.value<double>();
        if (!share || !(*share > 0 && *share <= 1))
          return at(value, fmt::format("{}: must be above 0 and at most 1, such as 0.9", key.str()));
        if (key.str() == "many_to_one")
          out_.many_to_one_ = *share;
        else
          out_.mutual_ = *share;
        continue;
      }
      if (key.str() == "long_messages") {
        const SendProtocol* rule = nullptr;
        for (const SendProtocol& l : kSendProtocols)
          if (value.value<std::string_view>() == name(l)) rule = &l;
        if (rule == nullptr)
          return at(value,
                    "long_messages: \"at once\", \"posted\" or \"asked\" (docs/guide/simulate_clusters.md)");
        out_.protocol_ = *rule;
        continue;
      }
      std::string list = "eager_bytes, long_messages, many_to_one, both_ways";
      const CostField* known = nullptr;
      for (const CostField& f : kCostFields) {
        list += fmt::format(", {}", f.name);
        if (key.str() == f.name) known = &f;
      }
      if (known == nullptr)
        return at(value, fmt::format("unknown field '{}': {}", printable(key.str(), 60), list));
      Seconds seconds = 0;
      TITHE_TRY(time(value, known->name, seconds));
      out_.numbers_.emplace_back(known->number, seconds);
    }
    return {};
  }
  Status add_codec(const toml::table& t) {
    TITHE_TRY(known(t, {"name", "encode", "store", "merge", "typical"}));
    std::string name;
    TITHE_TRY(word(t, "name", name));
    if (name.empty()) return at(t, "a codec needs a name; \"*\" is the entry for all other codecs");
    if (name != "*" && name != kDeltaCosts) {
      const Result<Spec> spec = parse_spec(name);
      if (!spec.ok()) return at(t, spec.status().what());
      name = to_string(*spec);
    }
    CodecCosts costs;
    TITHE_TRY(curve(t, "encode", costs.encode));
    TITHE_TRY(curve(t, "store", costs.store));
    TITHE_TRY(curve(t, "merge", costs.merge));
    TITHE_TRY(number(t, "typical", costs.typical));
    if (costs.typical > 1)
      return at(*t.get("typical"), "typical: must be a fraction of the largest payload, at most 1");
    if (!out_.codecs_.try_emplace(name, std::move(costs)).second)
      return at(t, fmt::format("there are two codecs '{}'", printable(name, 60)));
    return {};
  }
  // [[values, "time"], ...], both ascending.
  Status curve(const toml::table& t, std::string_view key, Curve& into) const {
    constexpr std::size_t kMaxPoints = 1000;
    const toml::node* found = t.get(key);
    if (found == nullptr)
      return at(t,
                fmt::format("{} is missing: such as {} = [[1, \"100us\"], [1000000, \"200us\"]]", key, key));
    const toml::array* list = found->as_array();
    if (list == nullptr || list->empty() || list->size() > kMaxPoints)
      return at(*found, fmt::format("{}: a list of [values, \"time\"] is needed", key));
    for (const toml::node& point : *list) {
      const toml::array* pair = point.as_array();
      const auto values = pair != nullptr && pair->size() == 2 ? (*pair)[0].value<double>() : std::nullopt;
      if (!values) return at(point, fmt::format("{}: a list of [values, \"time\"] is needed", key));
      Seconds seconds = 0;
      TITHE_TRY(time((*pair)[1], key, seconds));
      const bool ascends = into.points.empty()
                               ? *values > 0
                               : *values > into.points.back().first && seconds >= into.points.back().second;
      if (!std::isfinite(*values) || !ascends)
        return at(point, fmt::format("{}: values and times must ascend", key));
      into.points.emplace_back(*values, seconds);
    }
    return {};
  }

  Status add_switch(const toml::table& t) {
    TITHE_TRY(known(t, {"name", "up", "rate", "latency"}));
    std::string name, up;
    TITHE_TRY(word(t, "name", name));
    TITHE_TRY(word(t, "up", up));
    if (name.empty()) return at(t, "a switch needs a name");
    if (!numbers_.try_emplace(name, static_cast<int>(numbers_.size())).second)
      return at(t, fmt::format("there are two switches '{}'", printable(name, 60)));
    Cluster::Switch s;
    TITHE_TRY(rate(t, "rate", !up.empty(), s.rate));
    TITHE_TRY(time(t, "latency", s.latency));
    out_.switches_.push_back(s);
    ups_.push_back({up, &t});
    return {};
  }
  Status connect(std::size_t s) {
    const auto& [up, table] = ups_[s];
    return up.empty() ? Status{} : find_switch(*table, "up", up, out_.switches_[s].up);
  }

  Status find_switch(const toml::table& t, std::string_view key, const std::string& name, int& into) const {
    const auto found = numbers_.find(name);
    if (found == numbers_.end())
      return at(*t.get(key), fmt::format("{} = '{}': unknown switch; define it in a [[switch]]", key,
                                         printable(name, 60)));
    into = found->second;
    return {};
  }
  Status one_tree() {
    if (out_.switches_.empty()) out_.switches_.push_back({});  // all hosts are on one switch
    int top = -1;
    for (std::size_t s = 0; s < out_.switches_.size(); ++s) {
      int at_switch = static_cast<int>(s);
      std::size_t above = 0;
      for (; out_.switches_[static_cast<std::size_t>(at_switch)].up >= 0; ++above) {
        if (above > out_.switches_.size())
          return at(*ups_[s].second,
                    "this switch is above itself: the links form a cycle and must form a tree");
        at_switch = out_.switches_[static_cast<std::size_t>(at_switch)].up;
      }
      if (top >= 0 && at_switch != top)
        return at(*ups_[s].second,
                  "this switch is not connected to the first one: set `up` in it or in the switch above it");
      top = at_switch;
      constexpr std::size_t kMaxAbove = 3;
      if (above > kMaxAbove)
        return at(*ups_[s].second, fmt::format("more than {} switches above this one", kMaxAbove));
    }
    return {};
  }
  // [[hosts]]: a group of equal hosts, connected to one switch.
  Status add_hosts(const toml::table& t) {
    TITHE_TRY(known(t, {"count", "ranks", "cores", "at", "rate", "latency", "inside", "inside_latency",
                        "device", "device_latency", "device_inside"}));
    Cluster::Kind k;
    TITHE_TRY(count(t, "count", k.count));
    TITHE_TRY(count(t, "ranks", k.ranks));
    TITHE_TRY(count(t, "cores", k.cores));
    TITHE_TRY(rate(t, "rate", true, k.rate));
    TITHE_TRY(time(t, "latency", k.latency));
    k.inside_rate = 1e10;
    k.inside_latency = 2e-6;
    TITHE_TRY(rate(t, "inside", k.ranks > 1, k.inside_rate));
    TITHE_TRY(time(t, "inside_latency", k.inside_latency));
    TITHE_TRY(rate(t, "device", false, k.device.rate));
    TITHE_TRY(time(t, "device_latency", k.device.latency));
    TITHE_TRY(rate(t, "device_inside", false, k.device.inside_rate));
    if (!k.device.exists() && (t.contains("device_latency") || t.contains("device_inside")))
      return at(
          t,
          "`device` is missing: bytes per second between a device's memory and the host's, such as 12GB/s");
    std::string where;
    TITHE_TRY(word(t, "at", where));
    if (where.empty() && out_.switches_.size() > 1)
      return at(t, "`at` is missing: the switch that these hosts are on");
    if (!where.empty()) TITHE_TRY(find_switch(t, "at", where, k.at));
    out_.kinds_.push_back(k);
    return {};
  }

  const std::string& file_;
  Cluster out_;
  std::map<std::string, int> numbers_;
  std::vector<std::pair<std::string, const toml::table*>> ups_;
};

Result<Cluster> Cluster::parse(std::string_view text, const std::string& file) {
  return ClusterReader(file).read(text);
}

Result<Cluster> Cluster::read(const std::string& path) {
  std::string text;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return Status(Code::kIo, fmt::format("{}: cannot be opened", path));
  char some[4096];
  for (std::size_t n = 0; (n = std::fread(some, 1, sizeof some, file.get())) > 0;) {
    text.append(some, n);
    if (text.size() > (std::size_t{1} << 20))
      return Status(Code::kInvalid, fmt::format("{}: larger than 1 MiB", path));
  }
  if (std::ferror(file.get()) != 0)
    return Status(Code::kIo, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return parse(text, path);
}

}  // namespace tithe::sim
