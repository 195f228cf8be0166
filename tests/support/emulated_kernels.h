// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a phase of a program, compiled for this processor (grid_on_cpu.h), and calls of them.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/rng.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/cuda/kernel_call.h"
#include "lang/run/context.h"
#include "support/codec_run.h"
#include "support/kernel_programs.h"

namespace tithe::testing {

namespace fs = std::filesystem;
using harness::Floats;
using harness::Payload;
using lang::KernelCall;

using Kernel = void (*)(const KernelCall*, unsigned order);
using Size = std::uint64_t (*)(const KernelCall*);

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Functions of a compiled text. A phase that decodes nothing has no `decode`.
struct Functions {
  Size scratch = nullptr;
  Kernel encode = nullptr, decode = nullptr;
};

class EmulatedKernels {
 public:
  explicit EmulatedKernels(const Program& of) : made(of), name(made.name(of.phase)), phase(of.phase) {
    folder = fs::temp_directory_path() / "tithe_kernels_XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    text = lang::cuda_file({{name, &combination()}});
  }
  ~EmulatedKernels() {
    if (object_ != nullptr) ::dlclose(object_);
    fs::remove_all(folder);
  }
  EmulatedKernels(const EmulatedKernels&) = delete;
  EmulatedKernels& operator=(const EmulatedKernels&) = delete;

  const lang::Combination& combination() const { return made.program->of(made.settings, phase); }
  // Compiles `before` and the text to a shared object.
  Status compile(const lang::Compiler& compiler, const std::string& before = "") {
    const std::string include = "#include \"grid_on_cpu.h\"";
    std::string all = before + text;
    const std::size_t at = all.find(include);
    EXPECT_NE(at, std::string::npos);
    all.replace(at, include.size(), read_file(TITHE_SOURCE_DIR "/tests/support/grid_on_cpu.h"));
    const Result<std::string> object =
        lang::compile_cpp(compiler, all, "-O0", folder);  // it runs for less time than it compiles
    if (!object.ok()) return object.status();
    object_ = ::dlopen((fs::path(folder) / *object).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object_ == nullptr) return {Code::kIo, ::dlerror()};
    return {};
  }
  template <typename F>
  F function(const std::string& of) const {
    return reinterpret_cast<F>(::dlsym(object_, of.c_str()));
  }
  Functions functions() const {
    const std::string front = fmt::format("tithe_{}{}", name, name.empty() ? "" : "_");
    return {function<Size>(front + "scratch"), function<Kernel>(front + "encode"),
            function<Kernel>(front + "decode")};
  }

  const Made made;
  const std::string_view name;
  const std::size_t phase;
  std::string folder, text;

 private:
  void* object_ = nullptr;
};

constexpr std::uint8_t kUntouched = 0xee;
constexpr std::size_t kPast = 16;  // bytes behind a payload that must not be written

// One call of the kernels, in a given order of blocks and threads.
struct Outcome {
  Payload payload;
  Floats residual_out;
  std::vector<std::uint32_t> answer;
};

// The call for both directions, with its memory.
struct TestCall {
  KernelCall kernel = {};
  lang::CallMemory memory;
  lang::Agreed agreed;
  std::vector<std::uint64_t> scratch = {};

  TestCall(const Functions& of, const lang::Combination& combination, const Call& call, std::size_t n)
      : memory({}, lang::agreed_bytes(combination, call.settings, n)),
        agreed(combination, "test", call, n, memory) {
    const auto key = [&](std::uint64_t seed) {
      return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
    };
    kernel.n = n;
    kernel.key = key(call.seed);
    kernel.shared_key = key(call.shared_seed);
    std::copy(call.settings.value.begin(), call.settings.value.end(), kernel.settings);
    for (std::size_t k = 0; k < combination.program.before.size(); ++k)
      kernel.agreed[k] = agreed.numbers()[k];
    kernel.agreed_ranks = agreed.ranks();
    if (combination.program.adds()) kernel.field_bits = lang::field_bits(combination, call);
    scratch.assign(of.scratch(&kernel) / 8 + 1, 0xcdcdcdcdcdcdcdcdU);
    kernel.scratch = reinterpret_cast<std::uint8_t*>(scratch.data());
  }
};

// A copy of values, `shift` values behind an address that is aligned for 16-byte accesses.
struct Placed {
  Floats memory;
  float* at;
  Placed(const float* values, std::size_t n, std::size_t shift) : memory(n + 8), at(memory.data()) {
    while (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) ++at;
    at += shift;
    if (values != nullptr) std::copy_n(values, n, at);
  }
};

// The memory of odd orders is aligned to values and bytes only.
inline Outcome encoded(const Functions& of, TestCall& test_call, std::size_t bound, const Floats& grad,
                       const float* residual, bool in_place, unsigned order) {
  const std::size_t n = grad.size(), shift = order % 2;
  const Placed values(grad.data(), n, shift), before(residual, n, shift);
  Placed after(residual, n, shift);
  Outcome o{.payload = Payload(bound + shift + kPast, kUntouched),
            .residual_out = {},
            .answer = std::vector<std::uint32_t>(33)};
  std::uint64_t bytes = 0;
  KernelCall& kernel = test_call.kernel;
  kernel.grad = values.at;
  kernel.residual = residual == nullptr ? nullptr : in_place ? after.at : before.at;
  kernel.residual_out = of.decode == nullptr ? nullptr : after.at;
  kernel.payload = o.payload.data() + shift;
  kernel.bytes = &bytes;
  kernel.answer = o.answer.data();
  of.encode(&kernel, order);
  EXPECT_LE(bytes, bound);
  for (std::size_t k = shift + bytes; k < o.payload.size(); ++k) EXPECT_EQ(o.payload[k], kUntouched) << k;
  o.payload.erase(o.payload.begin(), o.payload.begin() + static_cast<std::ptrdiff_t>(shift));
  o.payload.resize(std::min<std::size_t>(bytes, bound));
  o.residual_out.assign(after.at, after.at + n);
  return o;
}

inline Floats decoded(const Functions& of, TestCall& test_call, Payload payload, const float* base,
                      unsigned order) {
  const std::size_t n = test_call.kernel.n, shift = order % 2;
  const Placed before(base, n, shift), out(nullptr, n, shift);
  const std::size_t bytes = payload.size();
  payload.insert(payload.begin(), shift, 0);
  payload.shrink_to_fit();
  test_call.kernel.payload = payload.data() + shift;
  test_call.kernel.payload_bytes = bytes;
  test_call.kernel.base = base == nullptr ? nullptr : before.at;
  test_call.kernel.out = out.at;
  of.decode(&test_call.kernel, order);
  return {out.at, out.at + n};
}

}  // namespace tithe::testing
