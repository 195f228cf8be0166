// SPDX-License-Identifier: Apache-2.0
#pragma once
// A cluster as the simulator and the planner see it: hosts, what is in them, and the links between them, as a tree of
// switches (docs/guide/simulate_clusters.md has the fields; clusters/ has examples).
//
//   tree      between two hosts there is one way: up to where their ways meet, and down again
//   duplex    a link carries its rate in both directions at once
//   devices   where gradients lie in a device's memory, they are copied to the host's and back; a network library, with
//             which plans are compared, leaves them there
//   costs     of its devices and its network, where they are known: a testbed of a paper has those that it states
//   checked   a cycle, a switch that nobody named, a link without a rate or with a rate of zero: kInvalid, with file,
//             line and cure
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "advice/sim/costs.h"
#include "tithe/hosts.h"
#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe::sim {

class Cluster {
 public:
  Cluster() = default;  // no host
  struct Host {
    int ranks = 1;
    Rank first_rank = 0;
    int machine = 0;  // whose cores its ranks' lanes run on
  };
  // Each rank's device: bytes per second between its memory and the host's, where 0 means that gradients lie in the
  // host's; and between devices of one host.
  struct Device {
    double rate = 0;
    Seconds latency = 0;
    double inside_rate = 0;
    bool there() const { return rate > 0; }
  };
  // From a file of clusters/, or text in its format; `file` is for messages.
  static Result<Cluster> read(const std::string& path);
  static Result<Cluster> parse(std::string_view text, const std::string& file);
  // `hosts` hosts of one rank on one switch; `shared`: they are one machine, whose cores they share.
  static Cluster flat(int hosts, double bytes_per_second, Seconds latency, int cores, bool shared = false);
  // The same of hosts with several ranks each, which talk by links of their own.
  struct Inside {
    int ranks = 1;
    double bytes_per_second = 1e10;
    Seconds latency = 2e-6;
  };
  static Cluster flat(int hosts, const Inside& inside, double bytes_per_second, Seconds latency, int cores,
                      bool shared = false);

  const std::string& name() const { return name_; }
  const std::string& about() const { return about_; }
  int world() const { return world_; }
  std::span<const Host> hosts() const { return hosts_; }
  int host_of(Rank r) const { return host_of_[static_cast<std::size_t>(r)]; }
  const tithe::Hosts& shared() const { return shared_; }  // which ranks share a host, as a session sees it
  std::span<const int> machine_cores() const { return machine_cores_; }  // by machine
  // Compute lanes of a rank: as many as it is told, else as its session chooses (plan/lanes.h). One where the file
  // states what codecs cost: they run on devices there.
  int lanes(Rank r, int told = 0) const;
  // Its devices' speed: what a model's times are divided by, where the file says nothing of that model.
  double speed() const { return speed_; }
  // The time that forward and backward of a model take together on its devices; 0: not known.
  Seconds compute(std::string_view model) const;
  // True if the file states costs of its devices and its network; these then stand in place of those given.
  bool states_costs() const {
    return !numbers_.empty() || eager_bytes_ || leave_ || many_to_one_ || !codecs_.empty();
  }
  Costs costs(Costs others) const;
  // The share of its rate that a link carries where two hosts send to each other at the same time. Transports that ask
  // before they send lose time there: their questions wait behind the other direction's bytes.
  double mutual() const { return mutual_; }
  void set_mutual(double share) { mutual_ = share; }

  // Bytes per second, by link: for each host up, down and inside; then for each switch up and down.
  std::span<const double> rates() const { return rates_; }
  // The links from one rank to another, and the time that a byte needs beside them. `links` is overwritten.
  Seconds route(Rank from, Rank to, std::vector<int>& links) const;

  // The `link` option of a session on this cluster: the rate of the slowest host's link, and the time of a frame from
  // one rank's memory to another's; the same inside a host, if ranks share hosts. Empty with one host, and if hosts are
  // on several switches, so that their links differ.
  std::string link_text(const Costs& costs) const;

  // Its first hosts, all of one kind, as [[hosts]] has them.
  std::string hosts_text() const;

  const Device& device(int host) const {
    return kinds_[static_cast<std::size_t>(kind_of_[static_cast<std::size_t>(host)])].device;
  }
  bool has_devices() const {
    return std::ranges::any_of(kinds_, [](const Kind& k) { return k.device.there(); });
  }
  // As a network library uses it, which leaves gradients on the devices: nothing is copied, and devices of one host
  // talk to each other. The same where there are none.
  Cluster on_devices() const;
  bool uniform() const { return kinds_.size() == 1 && switches_.size() == 1; }  // all its hosts are alike
  // The same with links of this rate, in bytes per second, between hosts; those between switches change in proportion.
  Cluster with_rate(double bytes_per_second) const;
  Cluster with_name(std::string name) const;
  // The same with every latency times `factor`; with so many times the cores.
  Cluster with_latency(double factor) const;
  Cluster with_cores(int factor) const;
  static int down_link(int host) { return 3 * host + 1; }  // of rates()
  std::string link_name(int link) const;                   // "host 3 up", "switch 1 down"

  // A world of `ranks`: the first so many of it, or of hosts of its kind as many as are needed, in the order of the
  // file and from the start again. kInvalid for none.
  Result<Cluster> sized(int ranks) const;

 private:
  struct Switch {
    int up = -1;  // the one above; -1: the top
    Seconds latency = 0;
    double rate = 0;
  };
  struct Kind {  // of hosts, as the file has them
    int count = 1, ranks = 1, cores = 1, at = 0;
    double rate = 0, inside_rate = 0;
    Seconds latency = 0, inside_latency = 0;
    Device device = {};
  };
  friend class ClusterReader;
  void build(int most_ranks);

  std::string name_, about_;
  std::vector<Switch> switches_;
  std::vector<Kind> kinds_;
  int shared_cores_ = 0;  // 0: each host has its own
  double speed_ = 1, mutual_ = 1;
  std::map<std::string, Seconds, std::less<>> compute_;        // by model
  std::vector<std::pair<Seconds Costs::*, Seconds>> numbers_;  // of [costs]
  std::optional<std::size_t> eager_bytes_;                     // of [costs], as what follows
  std::optional<Leaves> leave_;
  std::optional<double> many_to_one_;
  std::map<std::string, CodecCosts, std::less<>> codecs_;  // "*": those that have none of their own

  std::vector<Host> hosts_;
  std::vector<int> kind_of_, host_of_, machine_cores_;
  std::vector<double> rates_;
  tithe::Hosts shared_;
  int world_ = 0;
};

}  // namespace tithe::sim
