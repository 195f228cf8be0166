// SPDX-License-Identifier: Apache-2.0
// Writes a profile as a cluster's file. Numbers have 17 digits, so reading them gives the measured values.
#include <fmt/format.h>

#include <algorithm>

#include "advisor/sim/profile.h"

namespace tithe::sim {
namespace {

std::string seconds(Seconds s) { return fmt::format("\"{:.17g}s\"", s); }

// Times never fall with the number of values: a lower one is replaced by the maximum before it.
std::string curve(const Curve& c) {
  std::string out;
  Seconds most = 0;
  for (const auto& [values, time] : c.points) {
    most = std::max(most, time);
    out += fmt::format("{}[{:.17g}, {}]", out.empty() ? "" : ", ", values, seconds(most));
  }
  return fmt::format("[{}]", out);
}

std::string quoted(std::string text) {
  std::erase_if(text, [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; });
  return fmt::format("\"{}\"", text);
}

}  // namespace

std::string Cluster::hosts_text() const {
  const Kind& k = kinds_[0];
  std::string out = shared_cores_ > 0 ? fmt::format("cores = {} # of the one machine\n", shared_cores_) : "";
  out += fmt::format("[[hosts]]\ncount = {}\nranks = {}\ncores = {}\nrate = \"{:.17g}MB/s\"\nlatency = {}\n",
                     k.count, k.ranks, k.cores, k.rate / 1e6, seconds(k.latency));
  if (k.ranks > 1)
    out += fmt::format("inside = \"{:.17g}MB/s\"\ninside_latency = {}\n", k.inside_rate / 1e6,
                       seconds(k.inside_latency));
  return out;
}

Result<std::string> cluster_text(const Profile& p, const std::string& name) {
  const Result<Cluster> cluster = cluster_of(p);
  if (!cluster.ok()) return cluster.status();
  std::string out =
      fmt::format("name = {}\nabout = {}\n{}", quoted(name),
                  quoted(fmt::format("measured on {} by {}, tithe {}", p.date, p.machine, p.tithe)),
                  cluster->hosts_text());
  out += fmt::format(
      "[costs]\nlong_messages = \"{}\"\neager_bytes = {}\nmany_to_one = {:.17g}\nboth_ways = {:.17g}\n",
      tithe::name(p.costs.long_messages.protocol), p.costs.long_messages.above,
      std::clamp(p.costs.many_to_one, 1e-3, 1.0), cluster->mutual());
  for (const CostField& f : kCostFields) out += fmt::format("{} = {}\n", f.name, seconds(p.costs.*f.number));
  for (const auto& [codec, costs] : p.costs.codecs) {
    out += fmt::format("[[codec]]\nname = {}\nencode = {}\nstore = {}\nmerge = {}\n", quoted(codec),
                       curve(costs.encode), curve(costs.store), curve(costs.merge));
    if (costs.typical > 0) out += fmt::format("typical = {:.17g}\n", costs.typical);
  }
  return out;
}

}  // namespace tithe::sim
