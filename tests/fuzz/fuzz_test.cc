// SPDX-License-Identifier: Apache-2.0
// The fuzz targets without a fuzzer: their seeds, the corpus in corpus/<target>/, and seeded mutations of both.
//   TITHE_FUZZ_RUNS=100000          mutations per target (default: 5000)
//   TITHE_FUZZ_CASE=frame:17        only that mutation of that target, as printed by a failure
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "base/rng.h"
#include "fuzz/targets.h"

// Defined by a sanitizer's run time, if any.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace tithe::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path corpus() { return fs::path(TITHE_SOURCE_DIR) / "tests/fuzz/corpus"; }

std::vector<Input> corpus_of(const Target& target) {
  std::vector<fs::path> paths;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(corpus() / target.name, none))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// Draws for one mutation: a function of (target, number) alone.
class Dice {
 public:
  Dice(std::string_view target, std::uint64_t number) : key_(number) {
    for (const char c : target) key_ = mix64(key_ ^ static_cast<std::uint8_t>(c));
  }
  std::uint64_t next() { return mix64(key_ + 0x9e3779b97f4a7c15ULL * ++drawn_); }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

Input mutate(const std::vector<Input>& from, Dice& dice) {
  static constexpr std::uint64_t kEdges[] = {0,
                                             1,
                                             0x7f,
                                             0x80,
                                             0xff,
                                             0xffff,
                                             0x7fffffff,
                                             0x80000000,
                                             0xffffffff,
                                             0x7f800000 /* Inf */,
                                             0x7fc00000 /* NaN */,
                                             ~std::uint64_t{0}};
  Input input = from[dice.below(from.size())];
  for (std::size_t steps = 1 + dice.below(4); steps > 0; --steps) {
    const std::size_t at = dice.below(input.size());
    switch (dice.below(7)) {
      case 0:  // one bit
        if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1U << dice.below(8));
        break;
      case 1:  // one byte
        if (!input.empty()) input[at] = static_cast<std::uint8_t>(dice.next());
        break;
      case 2:  // shorter
        input.resize(at);
        break;
      case 3:  // longer
        for (std::size_t k = dice.below(20); k > 0; --k)
          input.push_back(static_cast<std::uint8_t>(dice.next()));
        break;
      case 4: {  // a number at an edge
        const std::size_t width = std::size_t{1} << dice.below(4);
        const std::uint64_t edge = kEdges[dice.below(std::size(kEdges))];
        for (std::size_t k = 0; k < width && at + k < input.size(); ++k)
          input[at + k] = static_cast<std::uint8_t>(edge >> (8 * k));
        break;
      }
      case 5: {  // the rest of another input
        const Input& other = from[dice.below(from.size())];
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(std::min(at, other.size())),
                     other.end());
        break;
      }
      default: {  // a piece again
        if (input.empty()) break;
        const Input piece(
            input.begin() + static_cast<std::ptrdiff_t>(at),
            input.begin() + static_cast<std::ptrdiff_t>(std::min(input.size(), at + 1 + dice.below(16))));
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(dice.below(input.size())), piece.begin(),
                     piece.end());
      }
    }
  }
  return input;
}

// The command that repeats the running mutation, printed on a failure: by fail(), by a signal handler, or by a
// sanitizer if one is linked in.
char way_back[128];
void print_way_back() {
  if (way_back[0] != 0 && write(STDERR_FILENO, way_back, std::strlen(way_back)) < 0) std::_Exit(1);
}
void on_signal(int number) {
  print_way_back();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void watch() {
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) std::signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_way_back);
}

class FuzzTarget : public testing::TestWithParam<std::string> {
 protected:
  const Target& target() const { return *find_target(GetParam()); }
};

TEST_P(FuzzTarget, SeedsAndCorpus) {
  for (const Input& input : target().seeds) target().run(input);
  for (const Input& input : corpus_of(target())) target().run(input);
}

TEST_P(FuzzTarget, SeededMutations) {
  std::vector<Input> from = target().seeds;
  for (Input& input : corpus_of(target())) from.push_back(std::move(input));
  std::uint64_t first = 0;
  std::uint64_t last = 5000;
  if (const char* runs = std::getenv("TITHE_FUZZ_RUNS")) last = std::strtoull(runs, nullptr, 10);
  if (const char* one = std::getenv("TITHE_FUZZ_CASE")) {
    const std::string_view text(one);
    const std::size_t colon = text.find(':');
    if (text.substr(0, colon) != target().name || colon == std::string_view::npos)
      GTEST_SKIP() << "another case is selected";
    first = std::strtoull(one + colon + 1, nullptr, 10);
    last = first + 1;
  }
  watch();
  for (std::uint64_t k = first; k < last; ++k) {
    Dice dice(target().name, k);
    const Input input = mutate(from, dice);
    std::snprintf(way_back, sizeof way_back, "again: TITHE_FUZZ_CASE=%s:%llu fuzz_tests\n",
                  target().name.c_str(), static_cast<unsigned long long>(k));
    target().run(input);
  }
  way_back[0] = 0;
}

TEST(FuzzCorpus, EveryFolderBelongsToATarget) {
  for (const auto& entry : fs::directory_iterator(corpus()))
    EXPECT_NE(find_target(entry.path().filename().string()), nullptr) << entry.path();
}

TEST(FuzzDeathTest, BrokenPromiseEndsTheRun) { EXPECT_DEATH(fail("planted"), "fuzz: planted"); }

INSTANTIATE_TEST_SUITE_P(All, FuzzTarget, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Target& each : targets()) names.push_back(each.name);
                           return names;
                         }()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tithe::fuzz
