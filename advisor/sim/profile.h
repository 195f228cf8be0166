// SPDX-License-Identifier: Apache-2.0
#pragma once
// A profile: the measurements of `tithe profile` for a machine and its links, as a JSON file (fields:
// docs/guide/simulate_clusters.md).
//
//   - whole: parse_profile(to_json(p)) equals p. A truncated file or an unknown field is refused, with file and cure.
//   - bound: the profile names the machine, the version and the number of ranks of the measurement. It is used
//     elsewhere only on request (belongs_here).
//   - bounded: a file has at most 16 MiB, and no number in it is negative, NaN or infinite.
#include <string>
#include <string_view>
#include <vector>

#include "advisor/sim/cluster.h"
#include "advisor/sim/costs.h"

namespace tithe::sim {

// A link between two ranks.
struct MeasuredLink {
  Rank from = 0, to = 0;
  Seconds latency = 0;          // of a small message, one way
  double bytes_per_second = 0;  // without other traffic
  std::string failed = {};      // why it was not measured; empty: it was
  friend bool operator==(const MeasuredLink&, const MeasuredLink&) = default;
};

struct Profile {
  std::string tithe;    // the version that measured
  std::string machine;  // the processor's name
  std::string target;   // vector instructions in use (tithe/seam/machine.h)
  std::string date;     // YYYY-MM-DD
  std::string transport;
  int cores = 1;  // of the machine
  int ranks = 1;  // that measured at the same time
  int lanes = 1;
  bool one_machine = false;               // all ranks share one machine and its cores
  std::string hosts = {};                 // which ranks share a host, as in Hosts ("2x2"); empty: none do
  std::vector<std::string> assumed = {};  // names of the numbers in `costs` that were not measured
  // Dispersion of the numbers: the median over rows of (third quartile - first quartile) / median.
  double spread = 0;
  Costs costs;
  std::vector<MeasuredLink> links;
  double together_bytes_per_second = 0;  // per rank while every rank sends to one other rank; 0: not measured
  // Per rank while all ranks send to all, so that every link is busy in both directions; 0: not measured.
  double mutual_bytes_per_second = 0;

  friend bool operator==(const Profile&, const Profile&) = default;
};

std::string to_json(const Profile& profile);
Result<Profile> parse_profile(std::string_view json, const std::string& file);
Result<Profile> read_profile(const std::string& path);
// A text of at most 16 MiB: kInvalid if it is larger, kIo if it cannot be read.
Result<std::string> read_text(const std::string& path);

// kInvalid if it was made on another machine, for other vector instructions or by another version.
Status belongs_here(const Profile& profile, const std::string& file);
std::string machine_name();  // of this processor

// The measured cluster: one switch, and hosts with the measured rate and latency. kInvalid if no link was measured.
Result<Cluster> cluster_of(const Profile& profile);
// Likewise, with its costs, as a file for Cluster::parse (docs/guide/simulate_clusters.md) that can be edited. kInvalid
// as above. The file has only the first phase of each codec; later phases then cost the same.
Result<std::string> cluster_text(const Profile& profile, const std::string& name);

}  // namespace tithe::sim
