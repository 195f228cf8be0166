// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs for tests of kernels: those of codecs/, and texts with features that those lack.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lang/cuda/emit_cuda.h"
#include "lang/loader.h"
#include "support/codec_run.h"

namespace tithe::testing {

using lang::Combination;
using lang::LoadedProgram;
using lang::NamedPhase;

// A phase of a file of codecs/, or of a text.
struct Program {
  const char* file;
  const char* settings;
  std::size_t phase = 0;
  const char* text = nullptr;
};
// A first phase with items of all kinds, and a second phase that reads them in every way.
inline constexpr const char* kMaxima =
    "codec maxima \"a doc\"\nblock 20\nphase a by max\nsend\n"
    "  table low: u8 = min(count(x > 0), 255)\n  end: f32 = largest(abs(x))\n  each: f32[] = x\n"
    "  code: u3[] = u32(clamp(abs(x), 0, 7))\n"
    "phase b by decode\nsend\n  once most: u8 = 3\n  up: u1[] = x > 0\n  near: u1[] = each > x\ndecode\n"
    "  if up then f32(low) else if near then end else each + f32(code)\n";
// Numbers of all blocks: the second phase alone has kernels.
inline constexpr const char* kOnce =
    "codec whole \"a doc\"\nblock 20\nphase a by max\nsend\n"
    "  once all: f32 = largest_of_blocks(largest(abs(x)))\n"
    "phase b by sum\nsend\n  level: int[] = stochastic_level(x, all, 3)\ndecode\n  f32(level) * all\n";
inline constexpr Program kPrograms[] = {
#define TITHE_PROGRAM(file, settings, spec) {#file, settings},
#include "../../codecs/programs.def"
#undef TITHE_PROGRAM
    {"onebit", ""},
    {"tbq", ""},
    {"qsgd", "bits=3"},
    {"qsgd", "bits=5,norm=l2,bucket=64"},
    {"qsgd", "bits=8,norm=l2,bucket=4096"},
    {"terngrad", "cut=2.5"},
    {"natural", ""},
    {"nuqsgd", "bits=3"},
    {"qsgd_shared", ""},
    {"qsgd_shared", "bits=3,norm=l2,feedback=none"},
    {"terngrad_shared", "cut=2.5,workers=3"},
    {"threshold", "tau=0.5,values=bf16,indices=auto"},
    {"threshold", "tau=0"},
    {"dgc", "ratio=0.1,sample=0.05,cap=1"},
    {"dgc", "ratio=0.25,values=8bit,indices=bitmap"},
    {"graddrop", "ratio=0.25"},
    {"adacomp", ""},
    {"threelc", ""},
    {"examples/farthest", ""},
    {"examples/majority", ""},
    {"maxima", "", 0, kMaxima},
    {"whole", "", 0, kOnce}};

// A program compiled from a text, and its codec; both live as long as this object.
struct Made {
  std::unique_ptr<LoadedProgram> own;
  const LoadedProgram* program = nullptr;
  Settings settings;

  explicit Made(const Program& of) {
    if (of.text == nullptr) {
      const char* elsewhere = std::getenv("TITHE_TEST_SOURCE");  // of a packed test (tools/gpu_pack.sh)
      std::string text =
          fmt::format("{}/codecs/{}.codec", elsewhere == nullptr ? TITHE_SOURCE_DIR : elsewhere, of.file);
      if (*of.settings != 0) text += std::string(":") + of.settings;
      const Result<Spec> spec = parse_spec(text);  // not prepared, so that nothing is compiled
      EXPECT_TRUE(spec.ok()) << spec.status().what();
      program = spec->codec->program;
      settings = spec->settings;
      return;
    }
    lang::Problems problems;
    own = lang::compile({"test.codec", of.text}, problems);
    EXPECT_NE(own, nullptr);
    program = own.get();
    settings = defaults(own->codec);
  }
  const Codec& codec() const { return program->codec; }
  // Functions of a program of one phase have plain names.
  std::string_view name(std::size_t phase) const {
    return program->phases.size() > 1 ? program->phases[phase].name : std::string_view();
  }
  std::vector<NamedPhase> kernels() const {
    std::vector<NamedPhase> some;
    for (std::size_t p = 0; p < program->phases.size(); ++p)
      if (const Combination& of = program->of(settings, p); lang::no_kernels(of, settings) == nullptr)
        some.push_back({name(p), &of});
    return some;
  }
};

inline std::vector<Program> with_kernels() {
  std::vector<Program> some;
  for (const Program& program : kPrograms) {
    const Made made(program);
    for (std::size_t p = 0; p < made.program->phases.size(); ++p)
      if (lang::no_kernels(made.program->of(made.settings, p), made.settings) == nullptr)
        some.push_back({program.file, program.settings, p, program.text});
  }
  return some;
}

}  // namespace tithe::testing
