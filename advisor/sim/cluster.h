// SPDX-License-Identifier: Apache-2.0
#pragma once
// A cluster as the simulator and the planner see it: hosts and their ranks, cores and devices, and the links between
// them, as a tree of switches (docs/guide/simulate_clusters.md has the fields; data/clusters/ has examples).
//
//   - tree: two hosts have one route, up to their common switch and down again.
//   - duplex: a link has its rate in both directions at once.
//   - devices: gradients in device memory are copied to the host and back. A network library, the baseline of plans,
//     leaves them on the devices.
//   - costs: the file may state the costs of its devices and network, as for the testbed of a paper.
//   - checked: a cycle, an unknown switch, and a link without a rate or with rate zero are refused: kInvalid, with
//     file, line and cure.
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "advisor/sim/costs.h"
#include "tithe/hosts.h"
#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe::sim {

class Cluster {
 public:
  Cluster() = default;  // without hosts
  struct Host {
    int ranks = 1;
    Rank first_rank = 0;
    int machine = 0;  // the machine whose cores run its ranks' lanes
  };
  // Each rank's device: the rate in bytes per second between its memory and the host's (0: gradients are in host
  // memory), and the rate between devices of one host.
  struct Device {
    double rate = 0;
    Seconds latency = 0;
    double inside_rate = 0;
    bool exists() const { return rate > 0; }
  };
  // Reads a file of data/clusters/, or text in its format; `file` is for messages.
  static Result<Cluster> read(const std::string& path);
  static Result<Cluster> parse(std::string_view text, const std::string& file);
  // `hosts` hosts with one rank each on one switch. `shared`: they are one machine and share its cores.
  static Cluster flat(int hosts, double bytes_per_second, Seconds latency, int cores, bool shared = false);
  // Likewise, for hosts with several ranks each, which have a link inside the host.
  struct Inside {
    int ranks = 1;
    double bytes_per_second = 1e10;
    Seconds latency = 2e-6;
  };
  static Cluster flat(int hosts, const Inside& inside, double bytes_per_second, Seconds latency, int cores,
                      bool shared = false);

  const std::string& name() const { return name_; }
  int world() const { return world_; }
  std::span<const Host> hosts() const { return hosts_; }
  int host_of(Rank r) const { return host_of_[static_cast<std::size_t>(r)]; }
  const tithe::Hosts& shared() const { return shared_; }  // the hosts of the ranks, as a session detects them
  std::span<const int> machine_cores() const { return machine_cores_; }  // by machine
  // The compute lanes of a rank: `requested`, else the number that a session would choose (plan/lanes.h). One lane if
  // the file states the costs of codecs, since codecs then run on devices.
  int lanes(Rank r, int requested = 0) const;
  // The speed of its devices, which divides a model's times if the file has no time for that model.
  double speed() const { return speed_; }
  // The time of a model's forward and backward pass on its devices; 0: unknown.
  Seconds compute(std::string_view model) const;
  // True if the file states costs of its devices and its network. They replace the costs given to costs().
  bool states_costs() const {
    return !numbers_.empty() || eager_bytes_ || protocol_ || many_to_one_ || !codecs_.empty();
  }
  Costs costs(Costs others) const;
  // The share of its rate that a link has while two hosts send to each other. A rendezvous
  // protocol loses time, because its requests queue behind data.
  double mutual() const { return mutual_; }
  void set_mutual(double share) { mutual_ = share; }

  // Bytes per second by link: up, down and inside for each host; then up and down for each switch.
  std::span<const double> rates() const { return rates_; }
  // Stores the links from one rank to another in `links`, and returns the latency.
  Seconds route(Rank from, Rank to, std::vector<int>& links) const;

  // The `link` option of a session on this cluster: the rate of the slowest host's link and the time of a frame between
  // two ranks' memories; and the same inside a host, if ranks share hosts. Empty with one host, and with several
  // switches, since the links then differ.
  std::string link_text(const Costs& costs) const;

  // Its first kind of hosts, in the format of [[hosts]].
  std::string hosts_text() const;

  const Device& device(int host) const {
    return kinds_[static_cast<std::size_t>(kind_of_[static_cast<std::size_t>(host)])].device;
  }
  bool has_devices() const {
    return std::ranges::any_of(kinds_, [](const Kind& k) { return k.device.exists(); });
  }
  // The cluster as seen by a network library that leaves gradients on the devices: nothing is copied, and devices of
  // one host communicate directly. Unchanged if there are no devices.
  Cluster on_devices() const;
  bool uniform() const { return kinds_.size() == 1 && switches_.size() == 1; }  // all hosts are alike
  // The same cluster with this rate between hosts, in bytes per second; rates between switches change in proportion.
  Cluster with_rate(double bytes_per_second) const;
  Cluster with_name(std::string name) const;
  // The same cluster with every latency multiplied by `factor`; with `factor` times the cores.
  Cluster with_latency(double factor) const;
  Cluster with_cores(int factor) const;
  static int down_link(int host) { return 3 * host + 1; }  // index in rates()
  std::string link_name(int link) const;                   // "host 3 up", "switch 1 down"

  // A world of `ranks` ranks: the first ones of the cluster. If it has too few, the hosts of the file are repeated in
  // their order. kInvalid for none.
  Result<Cluster> sized(int ranks) const;

 private:
  struct Switch {
    int up = -1;  // the switch above; -1: this is the top
    Seconds latency = 0;
    double rate = 0;
  };
  // A group of equal hosts, as in the file.
  struct Kind {
    int count = 1, ranks = 1, cores = 1, at = 0;
    double rate = 0, inside_rate = 0;
    Seconds latency = 0, inside_latency = 0;
    Device device = {};
  };
  friend class ClusterReader;
  void build(int max_ranks);

  std::string name_, about_;
  std::vector<Switch> switches_;
  std::vector<Kind> kinds_;
  int shared_cores_ = 0;  // 0: each host has its own cores
  double speed_ = 1, mutual_ = 1;
  std::map<std::string, Seconds, std::less<>> compute_;        // by model
  std::vector<std::pair<Seconds Costs::*, Seconds>> numbers_;  // from [costs]
  std::optional<std::size_t> eager_bytes_;                     // from [costs], like the next ones
  std::optional<SendProtocol> protocol_;
  std::optional<double> many_to_one_;
  std::map<std::string, CodecCosts, std::less<>> codecs_;  // "*": the default of all others

  std::vector<Host> hosts_;
  std::vector<int> kind_of_, host_of_, machine_cores_;
  std::vector<double> rates_;
  tithe::Hosts shared_;
  int world_ = 0;
};

}  // namespace tithe::sim
