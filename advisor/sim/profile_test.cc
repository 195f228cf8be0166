// SPDX-License-Identifier: Apache-2.0
#include "advisor/sim/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tithe/seam/catalogue.h"
#include "tithe/seam/machine.h"

namespace tithe::sim {
namespace {

Profile some() {
  Profile p;
  p.tithe = "9.9.9";
  p.machine = "a machine";
  p.target = "avx2";
  p.date = "2026-01-02";
  p.transport = "tcp";
  p.cores = 4;
  p.ranks = 3;
  p.one_machine = true;
  p.spread = 0.07;
  p.costs.step = 1.25e-6;
  p.costs.turn = 3e-6;
  p.costs.slice = 4e-4;
  p.costs.move = 4e-3;
  p.costs.checksum_byte = 1e-10;
  p.costs.many_to_one = 0.87;
  p.costs.long_messages = {SendProtocol::kPosted, 8192};
  p.costs.codecs["dgc:ratio=0.01"] = {.encode = {{{256, 1e-6}, {65536, 3e-5}}},
                                      .store = {{{256, 1e-7}}},
                                      .merge = {{{256, 2e-7}}},
                                      .typical = 0.93};
  p.costs.codecs["powersgd"] = {
      .encode = {{{256, 1e-6}}},
      .store = {{{256, 0}}},
      .merge = {{{256, 1e-7}}},
      .later = {{.encode = {{{256, 2e-6}}}, .store = {{{256, 3e-6}}}, .merge = {}, .typical = 0.5}}};
  p.assumed = {"eager_bytes"};
  p.links = {{.from = 0, .to = 1, .latency = 30e-6, .bytes_per_second = 1e8},
             {.from = 1, .to = 2, .failed = "nothing came"}};
  p.together_bytes_per_second = 8e7;
  p.mutual_bytes_per_second = 6e7;
  return p;
}

TEST(Profile, RoundTripsThroughText) {
  const Result<Profile> read = parse_profile(to_json(some()), "p.json");
  ASSERT_TRUE(read.ok()) << read.status().what();
  EXPECT_EQ(*read, some());
}

TEST(Profile, RoundTripsThroughAFile) {
  const std::string path = testing::TempDir() + "tithe_profile_test.json";
  std::ofstream(path) << to_json(some());
  const Result<Profile> read = read_profile(path);
  ASSERT_TRUE(read.ok()) << read.status().what();
  EXPECT_EQ(*read, some());
  std::filesystem::remove(path);
  EXPECT_EQ(read_profile("/no such folder/p.json").status().code(), Code::kIo);
}

// A file truncated at any length is refused.
TEST(Profile, RefusesATruncatedProfile) {
  const std::string text = to_json(some());
  for (std::size_t n = 0; n + 2 < text.size(); n += 37) {
    const Result<Profile> read = parse_profile(text.substr(0, n), "p.json");
    ASSERT_FALSE(read.ok()) << n;
    EXPECT_EQ(read.status().what().rfind("p.json: ", 0), 0U);
  }
}

TEST(Profile, RefusesAnInvalidProfileWithTheField) {
  const auto error_of = [](std::string text, std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const Result<Profile> read = parse_profile(text, "p.json");
    return read.ok() ? std::string("taken") : read.status().what();
  };
  const std::string good = to_json(some());
  EXPECT_NE(error_of(good, "\"profile\": 1", "\"profile\": 2").find("another format"), std::string::npos);
  EXPECT_NE(error_of(good, "\"step_s\"", "\"stap_s\"").find("'stap_s'"), std::string::npos);
  EXPECT_NE(error_of(good, "\"step_s\": 1.25e-06", "\"step_s\": -1").find("'step_s'"), std::string::npos);
  EXPECT_NE(error_of(good, "\"ranks\": 3", "\"ranks\": 3.5").find("'ranks'"), std::string::npos);
  EXPECT_NE(error_of(good, "65536.0", "255.0").find("ascending"), std::string::npos);
  EXPECT_NE(error_of(good, "\"machine\": \"a machine\",", "").find("is missing"), std::string::npos);
  EXPECT_NE(error_of(good, "\"one_machine\": true", "\"one_machine\": 1").find("'one_machine'"),
            std::string::npos);
  EXPECT_NE(error_of(good, "\"later_phases\": [", "\"later_phases\": [3, ").find("must be an object"),
            std::string::npos);
  EXPECT_NE(error_of(good, "\"eager_bytes\"\n", "7\n").find("'assumed'"), std::string::npos);
}

TEST(Profile, ErrorsNameTheLine) {
  const auto expect_line = [](std::string_view from, std::string_view to, std::string_view at) {
    std::string text = to_json(some());
    const std::size_t found = text.find(from, text.find(at));
    ASSERT_NE(found, std::string::npos) << from;
    text.replace(found, from.size(), to);
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(found), '\n');
    const std::string error = parse_profile(text, "p.json").status().what();
    EXPECT_EQ(error.rfind("p.json:" + std::to_string(line) + ":", 0), 0U) << error << ", line " << line;
  };
  expect_line("\"ranks\": 3", "\"ranks\": 3.5", "\"ranks\"");
  expect_line("\"step_s\": 1.25e-06", "\"step_s\": -1", "\"step_s\"");
  expect_line("\"typical\": 0.93", "\"typical\": 1.5", "\"codecs\"");
  expect_line("\"typical\": 0.5", "\"typical\": 1.5", "\"later_phases\"");
  expect_line("\"store\": [", "\"stor\": [", "\"later_phases\"");
  expect_line("\"latency_s\": 0.0", "\"latency_s\": \"x\"", "\"to\": 2");  // the second link
}

TEST(Profile, LinksConnectRanksOfTheProfile) {
  Profile p = some();
  p.links.push_back({.from = 1, .to = 3, .latency = 30e-6, .bytes_per_second = 1e8});
  EXPECT_NE(parse_profile(to_json(p), "p.json").status().what().find("from rank 1 to rank 3, of 3 ranks"),
            std::string::npos);
}

TEST(Profile, EachPhaseHasItsOwnCosts) {
  const Result<Profile> read = parse_profile(to_json(some()), "p.json");
  ASSERT_TRUE(read.ok());
  const CodecCosts& two = read->costs.codecs.at("powersgd");
  EXPECT_DOUBLE_EQ(two.of_phase(0).encode.at(256), 1e-6);
  EXPECT_DOUBLE_EQ(two.of_phase(1).encode.at(256), 2e-6);
  EXPECT_DOUBLE_EQ(two.of_phase(1).typical, 0.5);
  const CodecCosts& one = read->costs.codecs.at("dgc:ratio=0.01");
  EXPECT_EQ(&one.of_phase(1), &one) << "later phases default to the first one";
}

TEST(Profile, RefusesAProfileOfAnotherMachineOrVersion) {
  Profile p = some();
  EXPECT_NE(belongs_here(p, "p.json").what().find("version '9.9.9'"), std::string::npos);
  p.tithe = "0.1.0";
  EXPECT_NE(belongs_here(p, "p.json").what().find("machine 'a machine'"), std::string::npos);
  p.machine = machine_name();
  p.target = "none";
  EXPECT_NE(belongs_here(p, "p.json").what().find("vector instructions"), std::string::npos);
  p.target = target();
  EXPECT_TRUE(belongs_here(p, "p.json").ok());
}

TEST(Profile, ClusterFromMeasurements) {
  const Result<Cluster> cluster = cluster_of(some());
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ(cluster->world(), 3);
  EXPECT_DOUBLE_EQ(cluster->rates()[0], 8e7);
  EXPECT_EQ(cluster->machine_cores().size(), 1U);
  Profile none = some();
  none.links.clear();
  EXPECT_FALSE(cluster_of(none).ok());
}

TEST(Profile, ClusterFileOfMeasurementsIsTheSameCluster) {
  Profile p = some();
  p.ranks = 4;
  p.links.push_back({.from = 2, .to = 3, .latency = 20e-6, .bytes_per_second = 2e8});
  for (const char* hosts : {"", "2x2"}) {
    p.hosts = hosts;
    const Result<std::string> text = cluster_text(p, "mine \"at\" home");
    ASSERT_TRUE(text.ok()) << text.status().what();
    const Result<Cluster> read = Cluster::parse(*text, "mine.toml");
    ASSERT_TRUE(read.ok()) << read.status().what() << "\n" << *text;
    const Result<Cluster> direct = cluster_of(p);
    ASSERT_EQ(read->rates().size(), direct->rates().size());
    for (std::size_t l = 0; l < read->rates().size(); ++l)
      if (p.hosts == "2x2" || l % 3 < 2) {  // a host with one rank has no link inside
        EXPECT_DOUBLE_EQ(read->rates()[l], direct->rates()[l]) << l;
      }
    EXPECT_TRUE(std::ranges::equal(read->machine_cores(), direct->machine_cores()));
    EXPECT_EQ(read->mutual(), direct->mutual());
    std::vector<int> links;
    for (const Rank to : {1, 3}) EXPECT_EQ(read->route(0, to, links), direct->route(0, to, links));
    const Costs costs = read->costs({});
    for (const CostField& f : kCostFields) EXPECT_DOUBLE_EQ(costs.*f.number, p.costs.*f.number) << f.name;
    EXPECT_EQ(costs.long_messages, p.costs.long_messages);
    EXPECT_EQ(costs.many_to_one, p.costs.many_to_one);
    const Result<const CodecCosts*> dgc = costs.of(*parse_spec("dgc:ratio=0.01"));
    ASSERT_TRUE(dgc.ok()) << dgc.status().what();
    EXPECT_EQ(**dgc, p.costs.codecs.at("dgc:ratio=0.01"));
    EXPECT_TRUE(costs.of(*parse_spec("powersgd")).ok());
  }
  p.links.clear();
  EXPECT_EQ(cluster_text(p, "none").status().code(), Code::kInvalid);
}

TEST(Curve, InterpolatesLinearlyAndExtrapolatesProportionally) {
  const Curve curve{{{100, 10.0}, {200, 30.0}}};
  EXPECT_DOUBLE_EQ(curve.at(150), 20.0);
  EXPECT_DOUBLE_EQ(curve.at(50), 5.0);
  EXPECT_DOUBLE_EQ(curve.at(400), 60.0);
  EXPECT_DOUBLE_EQ(curve.at(0), 0.0);
  EXPECT_DOUBLE_EQ(Curve{}.at(10), 0.0);
}

}  // namespace
}  // namespace tithe::sim
