// SPDX-License-Identifier: Apache-2.0
#pragma once
// A profile: what `tithe profile` measured of a machine and its links, as a JSON file (fields:
// docs/guide/simulate_clusters.md).
//
//   whole     parse_profile(to_json(p)) gives the same profile; a file that is torn, or has a field that nobody
//             knows, is refused with file and cure
//   bound     it says on which machine, with which version and by how many ranks at once it was made: used
//             elsewhere only if that is asked for (belongs_here)
//   bounded   a file is at most 16 MiB, and no number in it is negative, NaN or infinite
#include <string>
#include <string_view>
#include <vector>

#include "advice/sim/cluster.h"
#include "advice/sim/costs.h"

namespace tithe::sim {

// Between two ranks.
struct MeasuredLink {
  Rank from = 0, to = 0;
  Seconds latency = 0;          // of a small message, one way
  double bytes_per_second = 0;  // alone
  std::string failed = {};      // why there are no numbers; empty: there are
  friend bool operator==(const MeasuredLink&, const MeasuredLink&) = default;
};

struct Profile {
  std::string tithe;    // the version that measured
  std::string machine;  // the processor's name
  std::string target;   // vector instructions in use (tithe/seam/machine.h)
  std::string date;     // YYYY-MM-DD
  std::string transport;
  int cores = 1;  // of the machine
  int ranks = 1;  // that measured at once
  int lanes = 1;
  bool one_machine = false;  // all ranks share it, and its cores
  std::string hosts = {};    // which ranks share a host, as Hosts has it ("2x2"); empty: each has its own
  std::vector<std::string> assumed =
      {};             // numbers of `costs` that were not measured, by their names in the file
  double spread = 0;  // of the numbers: median over rows of (third quartile - first) / median
  Costs costs;
  std::vector<MeasuredLink> links;
  double together_bytes_per_second = 0;  // that a rank sends while all do, each to one; 0: not measured
  double mutual_bytes_per_second =
      0;  // while all send to all, so that what goes to a rank and what comes from it
          // meet; 0: not measured

  friend bool operator==(const Profile&, const Profile&) = default;
};

std::string to_json(const Profile& profile);
Result<Profile> parse_profile(std::string_view json, const std::string& file);
Result<Profile> read_profile(const std::string& path);

// kInvalid if it was made on another machine, for other vector instructions or by another version.
Status belongs_here(const Profile& profile, const std::string& file);
std::string machine_name();  // of this processor

// The cluster that was measured: a host per rank, each with the rate and the latency of its links, all on one switch.
// kInvalid where no link was measured.
Result<Cluster> cluster_of(const Profile& profile);
// The same with its costs as a file that Cluster::parse takes (docs/guide/simulate_clusters.md), to be kept and edited.
// kInvalid as above. Phases of a codec after the first are not in it: each is then like the first.
Result<std::string> cluster_text(const Profile& profile, const std::string& name);

}  // namespace tithe::sim
