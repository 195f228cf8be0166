// SPDX-License-Identifier: Apache-2.0
// The time of a GPU's kernels against a copy within its memory, per codec: tools/gpu_check.sh --parts speed. Encode
// is with feedback; decode adds one payload to a base. Medians of rounds in which the measurements alternate; JSON on
// stdout. With the tests' emulated driver the times are meaningless.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/device/gpus.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using nlohmann::json;

// The speed of a call: the minimum number of bytes that it reads and writes, divided by its time.
struct Row {
  std::string name;
  double bytes = 0;
  std::function<Status()> run;
  std::vector<double> seconds = {};
};

Status measured(Row& row) {
  const auto begin = std::chrono::steady_clock::now();
  TITHE_TRY(row.run());
  row.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return {};
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

template <typename T>
T there(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().what());
  return std::move(*result);
}

json speeds(engine::Gpu& gpu, std::size_t n, const std::vector<std::string>& codecs, int rounds) {
  lang::DeviceLane& lane = gpu.lane(0);
  const device::Device& on = gpu.on();
  const device::Memory grad = there(on.memory(4 * n)), residual = there(on.memory(4 * n)),
                       out = there(on.memory(4 * n));
  std::vector<float> values(n);
  std::uint64_t draw = 1;
  for (float& v : values) {
    draw = draw * 6364136223846793005U + 1442695040888963407U;
    const float even = static_cast<float>(static_cast<std::int32_t>(draw >> 32)) * 0x1p-31F;
    v = even * even * even;
  }
  const auto fill = [&](const device::Memory& to) {
    const Status s = gpu.ferry()->up(to.at(), values.data(), 4 * n);
    if (!s.ok()) throw std::runtime_error(s.what());
  };
  fill(grad);
  fill(residual);
  json rows = json::array();
  const double all = 4.0 * static_cast<double>(n);
  std::vector<Row> base = {
      {"copy within", 2 * all,
       [&]() -> Status {
         TITHE_TRY(on.copy_within(lane.stream(), out.at(), grad.at(), 4 * n));
         return on.wait(lane.stream());
       }},
      {"copy up", all, [&] { return gpu.ferry()->up(out.at(), values.data(), 4 * n); }},
      {"copy down", all, [&] { return gpu.ferry()->down(values.data(), out.at(), 4 * n); }}};
  const auto run = [&](std::vector<Row>& some) {
    for (int k = -1; k < rounds; ++k)
      for (Row& row : some) {
        const Status s = measured(row);
        if (!s.ok()) throw std::runtime_error(row.name + ": " + s.what());
        if (k < 0) row.seconds.clear();  // the first is plans and code
      }
    for (const Row& row : some)
      rows.push_back(
          {{"name", row.name},
           {"values", n},
           {"ms", 1e3 * median(row.seconds)},
           {"gb_per_s", 1e-9 * row.bytes / median(row.seconds)},
           {"of_copy", row.bytes / median(row.seconds) / (some[0].bytes / median(some[0].seconds))}});
  };
  run(base);
  for (const std::string& text : codecs) {
    const Spec spec = there(parse_spec(text));
    const engine::Gpu::Program& made = gpu.program(spec);
    if (made.on.program == nullptr) {
      rows.push_back({{"name", text}, {"values", n}, {"why", made.on.how}});
      continue;
    }
    const Settings settings = made.settings_of(*spec.codec, spec.settings);
    const Call call{.settings = settings, .seed = 1, .shared_seed = 2, .round = 3};
    const std::size_t bound = settings.codec->phases[0].bound(settings, n);
    std::vector<std::uint8_t> room(bound);
    Encoded done;
    std::vector<Row> some = {
        base[0],
        {text + " encode", 3 * all,
         [&]() -> Status {
           const Result<Encoded> now =
               made.on.program->encode(lane, "speed", call, {grad.at(), residual.at(), out.at(), n}, room);
           if (now.ok()) done = *now;
           return now.status();
         }},
        {text + " decode", 3 * all, [&]() -> Status {
           const ByteView payload[] = {ByteView(room).first(done.bytes)};
           return made.on.program->decode(lane, "speed", call, payload, {out.at(), 1.0F}, out.at(), n);
         }}};
    some[0].seconds.clear();
    run(some);
  }
  return rows;
}

int run(int argc, char** argv) {
  std::vector<std::size_t> sizes = {25'000'000, 300'000'000};
  std::vector<std::string> codecs = {"fp8",  "onebit",     "qsgd:bits=4", "natural", "topk:ratio=0.01",
                                     "bf16", "eden:bits=3"};
  int rounds = 15, ordinal = 0;
  CLI::App app{"speeds of kernels on a GPU"};
  app.add_option("--values", sizes, "values per tensor");
  app.add_option("--codecs", codecs, "spec strings");
  app.add_option("--rounds", rounds, "of which the median is taken");
  app.add_option("--device", ordinal, "number of the GPU");
  CLI11_PARSE(app, argc, argv);
  const auto gpu = there(engine::Gpu::open(ordinal, 1));
  json out = {
      {"gpu", gpu->name()}, {"driver", device::this_driver()->found_version}, {"rows", json::array()}};
  for (const std::size_t n : sizes)
    for (json& row : speeds(*gpu, n, codecs, rounds)) out["rows"].push_back(row);
  fmt::print("{}\n", out.dump(1));
  return 0;
}

}  // namespace
}  // namespace tithe

int main(int argc, char** argv) {
  try {
    return tithe::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "device_speed: {}\n", error.what());
    return 1;
  }
}
