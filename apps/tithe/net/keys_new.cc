// SPDX-License-Identifier: Apache-2.0
// tithe keys new: the certificates of a job whose connections shall be encrypted.
#include <fmt/format.h>

#include "transport/tcp/keys.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct KeysNewArgs {
  std::string folder;
  int ranks = 0;
  int days = 30;
};

Result<Report> make(const KeysNewArgs& args) {
  TITHE_TRY(tcp::make_keys(args.folder, args.ranks, std::chrono::hours(24) * args.days));
  Report report;
  report.json = {{"folder", args.folder}, {"ranks", args.ranks}, {"days", args.days}};
  report.text = fmt::format(
      "{0}: an authority (ca.pem) and certificates of {1} {2}, valid for {3} {4}\n"
      "give every rank's host ca.pem and the two files of its ranks, and open tcp:tls={0}\n",
      args.folder, args.ranks, args.ranks == 1 ? "rank" : "ranks", args.days,
      args.days == 1 ? "day" : "days");
  return report;
}

Run declare_keys_new(CLI::App& app) {
  auto args = std::make_shared<KeysNewArgs>();
  app.add_option("DIR", args->folder, "a folder that does not exist yet")->required();
  app.add_option("--ranks", args->ranks, "ranks of the job")->required()->check(CLI::Range(1, 65536));
  app.add_option("--days", args->days, "days until the keys expire")
      ->check(CLI::Range(1, 3650))
      ->capture_default_str();
  return [args] { return make(*args); };
}

}  // namespace

const Verb keys_new_verb = {
    .name = "keys_new", .doc = "create the certificates of a job, for tcp:tls=", .declare = declare_keys_new};

}  // namespace tithe::cli
