// SPDX-License-Identifier: Apache-2.0
// Profiles as JSON. The reader checks every field, and reports errors with the line of the value.
#include "advisor/sim/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tithe/seam/machine.h"

namespace tithe::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
constexpr std::size_t kMaxPoints = 10'000;
constexpr std::size_t kMaxPhases = 16, kMaxAssumed = 100;

Json curve_json(const Curve& curve) {
  Json list = Json::array();
  for (const auto& [values, seconds] : curve.points) list.push_back({values, seconds});
  return list;
}

Json codec_json(const CodecCosts& c) {
  Json json = {{"typical", c.typical},
               {"encode", curve_json(c.encode)},
               {"store", curve_json(c.store)},
               {"merge", curve_json(c.merge)}};
  for (const CodecCosts& phase : c.later) json["later_phases"].push_back(codec_json(phase));
  return json;
}

// One step of the path to a value in the file: a field or an item of a list.
struct Step {
  std::string field;  // empty: an item of a list
  std::size_t item;
};

class Reader {
 public:
  Reader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  Result<Profile> read(const Json& root) {
    TITHE_TRY(object(root, "a profile"));
    if (!root.contains("profile") || root["profile"] != kFormat)
      return wrong(
          fmt::format("'profile' must be {}: this file is not a profile, or has another format; create one "
                      "with tithe profile",
                      kFormat));
    Profile p;
    for (const auto& item : root.items()) {
      const Within within(path_, item.key());
      TITHE_TRY(field(p, item.key(), item.value()));
    }
    for (std::size_t k = 0; k < p.links.size(); ++k) {
      const Within list(path_, "links"), one(path_, k);
      if (p.links[k].from >= p.ranks || p.links[k].to >= p.ranks)
        return wrong(fmt::format("a link from rank {} to rank {}, of {} ranks", p.links[k].from,
                                 p.links[k].to, p.ranks));
    }
    if (p.machine.empty() || p.tithe.empty())
      return wrong("'machine' or 'tithe' is missing: create a new profile with tithe profile");
    return p;
  }

 private:
  // Adds a field or an item of a list to the path while it is in scope, for error messages.
  class Within {
   public:
    Within(std::vector<Step>& path, const std::string& field) : path_(path) { path_.push_back({field, 0}); }
    Within(std::vector<Step>& path, std::size_t item) : path_(path) { path_.push_back({{}, item}); }
    ~Within() { path_.pop_back(); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    std::vector<Step>& path_;
  };

  // The line of the current value: finds the names of the path in turn, and counts the objects of a list.
  std::ptrdiff_t line() const {
    std::size_t at = 0;
    for (const Step& step : path_) {
      const std::string sought = step.field.empty() ? "{" : Json(step.field).dump();
      for (std::size_t left = step.item + 1; left > 0; --left) {
        const std::size_t next = text_.find(sought, at);
        if (next == std::string_view::npos) break;
        at = next + sought.size();
      }
    }
    return 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  }
  Status wrong(std::string_view what) const {
    return {Code::kInvalid, fmt::format("{}:{}: {}", file_, line(), what)};
  }
  Status object(const Json& json, std::string_view what) const {
    return json.is_object() ? Status{} : wrong(fmt::format("{} must be an object", what));
  }
  Status number(std::string_view name, const Json& json, double& into) const {
    if (!json.is_number()) return wrong(fmt::format("'{}' must be a number", name));
    into = json.get<double>();
    if (!std::isfinite(into) || into < 0)
      return wrong(fmt::format("'{}' must be a number of at least 0", name));
    return {};
  }
  Status whole(std::string_view name, const Json& json, int& into) const {
    if (!json.is_number_integer() || json.get<std::int64_t>() < 0 || json.get<std::int64_t>() > 1'000'000)
      return wrong(fmt::format("'{}' must be a whole number, 0 .. 1000000", name));
    into = json.get<int>();
    return {};
  }
  Status text(std::string_view name, const Json& json, std::string& into) const {
    if (!json.is_string() || json.get_ref<const std::string&>().size() > 1000)
      return wrong(fmt::format("'{}' must be a text of at most 1000 bytes", name));
    into = json.get<std::string>();
    return {};
  }
  Status curve(std::string_view name, const Json& json, Curve& into) const {
    const Status bad = wrong(fmt::format("'{}' must be a list of [values, seconds], both ascending", name));
    if (!json.is_array() || json.size() > kMaxPoints) return bad;
    for (const Json& point : json) {
      if (!point.is_array() || point.size() != 2) return bad;
      double values = 0, seconds = 0;
      TITHE_TRY(number(name, point[0], values));
      TITHE_TRY(number(name, point[1], seconds));
      if (values <= 0 || (!into.points.empty() && values <= into.points.back().first)) return bad;
      into.points.emplace_back(values, seconds);
    }
    return {};
  }
  Status unknown(std::string_view name, std::string_view where) const {
    return wrong(fmt::format(
        "unknown field '{}' in {}: the profile has another version; create a new one with tithe profile",
        printable(name, 100), where));
  }

  // Reads one top-level field; an unknown one is an error.
  Status field(Profile& p, const std::string& name, const Json& json) {
    if (name == "profile") return {};
    if (name == "tithe") return text(name, json, p.tithe);
    if (name == "machine") return text(name, json, p.machine);
    if (name == "target") return text(name, json, p.target);
    if (name == "date") return text(name, json, p.date);
    if (name == "transport") return text(name, json, p.transport);
    if (name == "hosts") return text(name, json, p.hosts);
    if (name == "cores") return whole(name, json, p.cores);
    if (name == "ranks") return whole(name, json, p.ranks);
    if (name == "lanes") return whole(name, json, p.lanes);
    if (name == "spread") return number(name, json, p.spread);
    if (name == "together_bytes_per_s") return number(name, json, p.together_bytes_per_second);
    if (name == "mutual_bytes_per_s") return number(name, json, p.mutual_bytes_per_second);
    if (name == "one_machine") {
      if (!json.is_boolean()) return wrong("'one_machine' must be true or false");
      p.one_machine = json.get<bool>();
      return {};
    }
    if (name == "costs") return costs(p.costs, json);
    if (name == "codecs") {
      TITHE_TRY(object(json, "'codecs'"));
      for (const auto& item : json.items()) {
        const Within within(path_, item.key());
        TITHE_TRY(codec(p.costs.codecs[item.key()], item.key(), item.value()));
      }
      return {};
    }
    if (name == "assumed") {
      if (!json.is_array() || json.size() > kMaxAssumed) return wrong("'assumed' must be a list of names");
      for (const Json& one : json) TITHE_TRY(text(name, one, p.assumed.emplace_back()));
      return {};
    }
    if (name == "links") {
      if (!json.is_array()) return wrong("'links' must be a list");
      for (const Json& one : json) {
        const Within within(path_, p.links.size());
        TITHE_TRY(object(one, "a link"));
        p.links.emplace_back();
        for (const auto& item : one.items()) {
          const Within field(path_, item.key());
          TITHE_TRY(link(p.links.back(), item.key(), item.value()));
        }
      }
      return {};
    }
    return unknown(name, "a profile");
  }
  // Times by the names of kCostFields, and three fields of other types.
  Status costs(Costs& into, const Json& json) {
    TITHE_TRY(object(json, "'costs'"));
    for (const auto& item : json.items()) {
      const Within within(path_, item.key());
      if (item.key() == "eager_bytes") {
        int bytes = 0;
        TITHE_TRY(whole(item.key(), item.value(), bytes));
        into.long_messages.above = static_cast<std::size_t>(bytes);
        continue;
      }
      if (item.key() == "many_to_one") {
        TITHE_TRY(number(item.key(), item.value(), into.many_to_one));
        if (into.many_to_one <= 0 || into.many_to_one > 1)
          return wrong("'many_to_one' must be a share above 0 and up to 1");
        continue;
      }
      if (item.key() == "long_messages") {
        std::string word;
        TITHE_TRY(text(item.key(), item.value(), word));
        const auto* known = std::find_if(std::begin(kSendProtocols), std::end(kSendProtocols),
                                         [&](SendProtocol l) { return tithe::name(l) == word; });
        if (known == std::end(kSendProtocols))
          return wrong("'long_messages' must be \"at once\", \"posted\" or \"asked\"");
        into.long_messages.protocol = *known;
        continue;
      }
      const auto* known = std::find_if(std::begin(kCostFields), std::end(kCostFields),
                                       [&](const CostField& f) { return item.key() == f.in_profile; });
      if (known == std::end(kCostFields)) return unknown(item.key(), "'costs'");
      TITHE_TRY(number(item.key(), item.value(), into.*known->number));
    }
    return {};
  }
  Status codec(CodecCosts& into, const std::string& name, const Json& json, bool first = true) {
    TITHE_TRY(object(json, fmt::format("codec '{}'", printable(name, 100))));
    for (const auto& item : json.items()) {
      const Within within(path_, item.key());
      if (item.key() == "encode")
        TITHE_TRY(curve("encode", item.value(), into.encode));
      else if (item.key() == "store")
        TITHE_TRY(curve("store", item.value(), into.store));
      else if (item.key() == "merge")
        TITHE_TRY(curve("merge", item.value(), into.merge));
      else if (item.key() == "typical")
        TITHE_TRY(typical(item.value(), into.typical));
      else if (item.key() == "later_phases" && first)
        TITHE_TRY(later(into, name, item.value()));
      else
        return unknown(item.key(), fmt::format("codec '{}'", printable(name, 100)));
    }
    return {};
  }
  Status typical(const Json& json, double& into) const {
    TITHE_TRY(number("typical", json, into));
    return into <= 1 ? Status{} : wrong("'typical' must be a fraction of the largest payload");
  }
  Status later(CodecCosts& into, const std::string& name, const Json& json) {
    if (!json.is_array() || json.size() > kMaxPhases)
      return wrong(fmt::format("'later_phases' must be a list of at most {} phases", kMaxPhases));
    for (const Json& phase : json) {
      const Within within(path_, into.later.size());
      CodecCosts one;
      TITHE_TRY(codec(one, name, phase, false));
      into.later.push_back(std::move(one));
    }
    return {};
  }
  Status link(MeasuredLink& into, const std::string& name, const Json& json) const {
    if (name == "from") return whole(name, json, into.from);
    if (name == "to") return whole(name, json, into.to);
    if (name == "latency_s") return number(name, json, into.latency);
    if (name == "bytes_per_s") return number(name, json, into.bytes_per_second);
    if (name == "failed") return text(name, json, into.failed);
    return unknown(name, "a link");
  }

  const std::string& file_;
  const std::string_view text_;
  std::vector<Step> path_;
};

}  // namespace

std::string to_json(const Profile& p) {
  Json root = {{"profile", kFormat},   {"tithe", p.tithe},
               {"machine", p.machine}, {"target", p.target},
               {"date", p.date},       {"transport", p.transport},
               {"cores", p.cores},     {"ranks", p.ranks},
               {"lanes", p.lanes},     {"one_machine", p.one_machine},
               {"spread", p.spread},   {"assumed", p.assumed}};
  if (!p.hosts.empty()) root["hosts"] = p.hosts;
  Json costs = Json::object();
  for (const CostField& f : kCostFields) costs[f.in_profile] = p.costs.*f.number;
  costs["eager_bytes"] = p.costs.long_messages.above;
  costs["many_to_one"] = p.costs.many_to_one;
  costs["long_messages"] = tithe::name(p.costs.long_messages.protocol);
  root["costs"] = std::move(costs);
  Json codecs = Json::object();
  for (const auto& [name, c] : p.costs.codecs) codecs[name] = codec_json(c);
  root["codecs"] = std::move(codecs);
  Json links = Json::array();
  for (const MeasuredLink& l : p.links) {
    Json one = {
        {"from", l.from}, {"to", l.to}, {"latency_s", l.latency}, {"bytes_per_s", l.bytes_per_second}};
    if (!l.failed.empty()) one["failed"] = l.failed;
    links.push_back(std::move(one));
  }
  root["links"] = std::move(links);
  root["together_bytes_per_s"] = p.together_bytes_per_second;
  root["mutual_bytes_per_s"] = p.mutual_bytes_per_second;
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Profile> parse_profile(std::string_view json, const std::string& file) {
  try {
    return Reader(file, json).read(Json::parse(json.begin(), json.end()));
  } catch (const Json::exception& e) {
    const std::string_view what = e.what();
    return Status(Code::kInvalid,
                  fmt::format("{}: not valid JSON: {}", file,
                              printable(what.substr(std::min(what.find("] ") + 2, what.size())), 300)));
  }
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  if (!file || !(file.read(text.data(), static_cast<std::streamsize>(text.size())) || file.eof()))
    return Status(Code::kIo, fmt::format("{}: cannot be read", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes) return Status(Code::kInvalid, fmt::format("{}: larger than 16 MiB", path));
  return text;
}

Result<Profile> read_profile(const std::string& path) {
  const Result<std::string> text = read_text(path);
  return text.ok() ? parse_profile(*text, path) : text.status();
}

std::string machine_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown";
}

Status belongs_here(const Profile& p, const std::string& file) {
  const auto differs = [&](std::string_view what, const std::string& theirs, const std::string& ours) {
    return Status(Code::kInvalid, fmt::format("{}: made for {} '{}', this is '{}': create one here with "
                                              "tithe profile, or accept it with --foreign-profile",
                                              file, what, printable(theirs, 100), ours));
  };
  if (p.tithe != TITHE_VERSION) return differs("version", p.tithe, TITHE_VERSION);
  if (p.machine != machine_name()) return differs("machine", p.machine, machine_name());
  if (p.target != target()) return differs("vector instructions", p.target, target());
  return {};
}

namespace {

// Statistics of the links of one kind.
struct Found {
  double slowest = 0;
  Seconds latency = 0;
  int good = 0;
  void add(const MeasuredLink& l) {
    slowest = good == 0 ? l.bytes_per_second : std::min(slowest, l.bytes_per_second);
    latency += l.latency;
    ++good;
  }
  Seconds mean() const { return good == 0 ? 0 : latency / good; }
};

}  // namespace

Result<Cluster> cluster_of(const Profile& p) {
  const Result<Hosts> hosts = Hosts::parse(p.hosts, p.ranks);
  if (!hosts.ok())
    return Status(Code::kInvalid, fmt::format("the profile's hosts: {}", hosts.status().what()));
  const int count = hosts->count(p.ranks), each = p.ranks / std::max(1, count);
  for (const std::vector<int>& of : hosts->ranks(p.ranks))
    if (static_cast<int>(of.size()) != each || of.back() - of.front() + 1 != each)
      return Status(Code::kInvalid, fmt::format("the profile's hosts are '{}': hosts must have equal numbers "
                                                "of consecutive ranks; otherwise give --cluster",
                                                p.hosts));
  Found between, inside;
  for (const MeasuredLink& l : p.links)
    if (l.failed.empty() && l.bytes_per_second > 0)
      (hosts->of_rank(l.from) == hosts->of_rank(l.to) ? inside : between).add(l);
  if (between.good + inside.good == 0)
    return Status(Code::kInvalid,
                  "the profile has no link: measure between ranks (tithe profile --ranks 4), or give "
                  "--cluster or --link");
  // The rate of a host is the sum over its ranks, measured while all ranks send.
  const double rate = p.together_bytes_per_second > 0 ? p.together_bytes_per_second * each
                      : between.good > 0              ? between.slowest
                                                      : inside.slowest;
  const int cores = std::max(1, p.cores);
  Cluster cluster = each == 1 ? Cluster::flat(count, rate, between.mean(), cores, p.one_machine)
                              : Cluster::flat(count, {each, inside.slowest, inside.mean()}, rate,
                                              between.mean(), cores, p.one_machine);
  if (p.mutual_bytes_per_second > 0)
    cluster.set_mutual(std::min(1.0, p.mutual_bytes_per_second * each / rate));
  return cluster;
}

}  // namespace tithe::sim
